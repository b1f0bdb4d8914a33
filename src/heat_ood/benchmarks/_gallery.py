"""OOD images that some methods miss and HEAT catches, and the other way round."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ..metrics import at_least_95
from ..results import Picture
from ._jobs import Data

__all__ = ["RIVALS", "pictures_of"]

RIVALS = ("gmm", "energy")
"""The priors that the paper's figures compare HEAT with."""
CAUGHT, MISSED = 6, 2
"""Pictures of each set: caught by HEAT and missed by a rival, and missed by HEAT and caught by one."""
LARGEST = 96
"""Pixels of the longer side."""


def pictures_of(
    data: Data, scores: Mapping[str, Mapping[str, Any]], seed: int = 0, rivals: Sequence[str] = RIVALS
) -> tuple[Picture, ...]:
    """Pictures of each OOD set, drawn at random from those on which HEAT and its rivals disagree.

    Args:
        data: the images.
        scores: of each method on each set, HEAT among them; a sample is caught above the threshold that accepts
            95 % of the ID test samples.
        seed: of the draw.
        rivals: the methods that HEAT is compared with.
    """
    limits = {name: accepting_95(found["test"]) for name, found in scores.items()}
    pictures: list[Picture] = []
    for key in data.ood:
        if key not in data.images:
            continue
        caught = {name: np.asarray(found[key]) > limits[name] for name, found in scores.items()}
        ours, others = caught["HEAT"], np.stack([caught[name] for name in rivals])
        generator = np.random.default_rng(seed)
        for rows, count in ((ours & ~others.all(0), CAUGHT), (~ours & others.any(0), MISSED)):
            chosen = generator.permutation(np.flatnonzero(rows))[:count]
            pictures += [picture(data, key, int(row), scores, caught) for row in np.sort(chosen)]
    return tuple(pictures)


def accepting_95(scores: Any) -> float:
    """The smallest threshold that accepts at least 95 % of the samples."""
    return float(np.sort(scores)[at_least_95(len(scores)) - 1])


def picture(
    data: Data, key: str, row: int, scores: Mapping[str, Mapping[str, Any]], caught: Mapping[str, Any]
) -> Picture:
    images = data.images[key]
    image = images.read(images.rows[row]).convert("RGB")
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return Picture(
        set=key,
        image=f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}",
        caught_by=tuple(name for name, found in caught.items() if found[row]),
        missed_by=tuple(name for name, found in caught.items() if not found[row]),
        scores={name: float(found[key][row]) for name, found in scores.items()},
    )
