"""Images that a detector finds unusual, small enough to be kept with its evaluation."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..errors import HeatError, InputError
from ..metrics import Scores, as_scores, at_least_95

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Picture", "unusual"]

COUNT, LARGEST, EXACT = 12, 96, 48
"""Images of a set; pixels of the longer side of a copy; and up to how many it is kept without loss."""


@dataclass(frozen=True)
class Picture:
    """An image as a ``data:image/…;base64,`` address, and which methods judged it OOD.

    Args:
        set: the OOD set, or the ID set.
        image: the image itself.
        caught_by: the methods that score it above the threshold which accepts 95 % of ID.
        missed_by: the others.
        scores: by method.
        file: its name, where it has one.
    """

    set: str
    image: str
    caught_by: tuple[str, ...] = ()
    missed_by: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    file: str = ""

    def __post_init__(self) -> None:
        if not self.image.startswith("data:image/"):
            raise InputError(f"A picture of {self.set!r} is not a data:image/… address. Embed the image itself.")


def unusual(
    method: str,
    id_scores: Scores,
    images: Sequence[tuple[str, Callable[[], Image]]] | None,
    name: str,
    ood_scores: Scores | None = None,
) -> tuple[Picture, ...]:
    """Small copies of the images that are judged most wrongly: of ID the highest scores, of an OOD set the lowest.

    Args:
        method: whose scores they are.
        id_scores: of ID; they give the threshold, which accepts 95 % of them.
        images: of each sample its name, and how to read it; None where there are none. One that cannot be read is
            left out.
        name: of the set.
        ood_scores: of the OOD set; None takes the ID set itself.
    """
    if images is None:
        return ()
    s = as_scores(id_scores, "the ID set")
    t = s if ood_scores is None else as_scores(ood_scores, f"the OOD set {name!r}")
    threshold = np.sort(s)[at_least_95(len(s)) - 1]
    order = np.argsort(-t if ood_scores is None else t, kind="stable")
    found = []
    for i in order[:COUNT].tolist():
        file, read = images[i]
        try:
            image = address(read())
        except (HeatError, OSError):
            continue
        caught = t[i] > threshold
        by = {"caught_by" if caught else "missed_by": (method,)}
        found.append(Picture(name, image, **by, scores={method: float(t[i])}, file=file))
    return tuple(found)


def address(image: Image) -> str:
    """A small copy as a ``data:`` address."""
    small = image.convert("RGB")
    small.thumbnail((LARGEST, LARGEST))
    kind = "png" if max(small.size) <= EXACT else "jpeg"
    file = io.BytesIO()
    small.save(file, kind, **({} if kind == "png" else {"quality": 85}))
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
