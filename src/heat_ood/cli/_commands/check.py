"""``heat-ood check``: is a photo like the data that a guarded model was trained on?"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._images import images_named
from .._options import FALSE_ALARMS, Json
from .._output import emit, show
from .._registry import command

if TYPE_CHECKING:
    from ...features import Guard
    from ...images import FolderImages

__all__ = ["check"]

BATCH = 32
LARGEST = 1 << 28
"""Bytes that are read from standard input."""
STANDARD_INPUT = "-"
VERDICTS = {True: "unlike the training data", False: "like the training data"}


@command(order=14)
def check(
    guard: Annotated[Path, typer.Argument(help="A folder that heat-ood protect wrote.")],
    images: Annotated[
        list[str], typer.Argument(help="Image files, folders of them, or - for an image on standard input.")
    ],
    json: Json = False,
) -> None:
    """Judge images: like the training data, or unlike it, at a false-alarm rate of 5 %. Exits with 3 if any is unlike.

    [dim]Examples:[/dim]

      heat-ood check guard photo.jpg

      heat-ood check guard photos/ more/*.png
    """
    from ...guarding import load

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="heat-ood-") as folder:
        piped = Path(folder) / "standard input"
        if STANDARD_INPUT in images:
            piped.write_bytes(standard_input())
        found = images_named([piped if name == STANDARD_INPUT else Path(name) for name in images])
        opened = opened_guard(guard, load)
        for row in judged(opened, found):
            row["file"] = STANDARD_INPUT if row["file"] == str(piped) else row["file"]
            rows.append(row)
            if not json:
                named = "" if row["class"] is None else f"; predicted class: {row['class']}"
                show(f"{row['file']}: {row['verdict']} (p-value {row['p_value']:.4f}{named})")
    flagged = sum(row["ood"] for row in rows)
    if json:
        emit({"guard": str(guard), "fpr": FALSE_ALARMS, "images": rows, "flagged": flagged})
    elif len(rows) > 1:
        show(f"{flagged:,} of {len(rows):,} images are {VERDICTS[True]}, at a false-alarm rate of {FALSE_ALARMS:.0%}")
    if flagged:
        raise typer.Exit(3)


def standard_input() -> bytes:
    """What is piped in, if it can be an image."""
    from ...errors import InputError

    found = sys.stdin.buffer.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise InputError(f"Standard input has more than {LARGEST:,} bytes, and is no image. Pipe an image in.")
    return found


def opened_guard(path: Path, load: Any) -> Guard:
    """A guard that can judge image files."""
    from ...energies import DETECTOR_FILE
    from ...errors import InputError
    from ...guarding import GUARD_FILE

    if not (path / GUARD_FILE).is_file():
        what = (
            "is a detector without its model: use heat-ood score" if (path / DETECTOR_FILE).is_file() else "is no guard"
        )
        raise InputError(f"{path} {what}. Pass a folder that heat-ood protect wrote.")
    guard: Guard = load(path)
    guard.detector.require_calibrated().check(FALSE_ALARMS)
    seen = guard.detector.seen_
    if seen is None or seen.preprocessing is None:
        raise InputError(
            f"The guard in {path} does not know how images were prepared for its model. Make it with heat-ood protect, "
            "or call it in Python, with images that are prepared."
        )
    return guard


def judged(guard: Guard, images: FolderImages) -> Iterator[dict[str, Any]]:
    """The verdict on each image, a batch in memory at a time."""
    import torch
    from torch.utils.data import DataLoader

    from ...files import restored
    from ...images import Preprocessing

    images.preprocessing = restored(Preprocessing, dict(guard.detector.seen_.preprocessing), "preprocessing")
    names = iter(images.files)
    for batch in DataLoader(images, batch_size=BATCH):
        logits, scores, p_values = guard(batch)
        classes = torch.full((len(scores),), -1) if logits is None else logits.argmax(1)
        width = 0 if logits is None else logits.shape[1]
        for score, p_value, index in zip(scores.tolist(), p_values.tolist(), classes.tolist(), strict=True):
            ood = p_value <= FALSE_ALARMS
            yield {
                "file": next(names),
                "verdict": VERDICTS[ood],
                "ood": ood,
                "p_value": p_value,
                "score": score,
                "class": class_name(guard.classes, index, width),
            }


def class_name(names: tuple[str, ...] | None, index: int, width: int) -> str | None:
    """The name of a class; its number where the names are not known, or are not as many as the classes."""
    if index < 0:
        return None
    return names[index] if names is not None and len(names) == width else str(index)
