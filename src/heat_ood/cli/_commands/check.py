"""``heat-ood check``: is a photo like the data that a guarded model was trained on?"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._images import images_named, pixels_of
from .._options import FALSE_ALARMS, Json, Trust
from .._output import emit, show
from .._registry import command

if TYPE_CHECKING:
    from ...guarding import Judge
    from ...images import FolderImages

__all__ = ["check"]

BATCH = 32
LARGEST = 1 << 28
"""Bytes that are read from standard input."""
STANDARD_INPUT = "-"


@command(order=14)
def check(
    guard: Annotated[Path, typer.Argument(help="A folder that heat-ood protect wrote, or a file of heat-ood export.")],
    images: Annotated[
        list[str], typer.Argument(help="Image files, folders of them, or - for an image on standard input.")
    ],
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Judge images: like the training data, or unlike it, at a false-alarm rate of 5 %. Exits with 3 if any is unlike.

    [dim]Examples:[/dim]

      heat-ood check guard photo.jpg

      heat-ood check guard.onnx photos/ more/*.png
    """
    from ...guarding import VERDICTS

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="heat-ood-") as folder:
        piped = Path(folder) / "standard input"
        if STANDARD_INPUT in images:
            piped.write_bytes(standard_input())
        found = images_named([piped if name == STANDARD_INPUT else Path(name) for name in images])
        judge, rate = opened_judge(guard, trust)
        for row in judged(judge, found, rate):
            row["file"] = STANDARD_INPUT if row["file"] == str(piped) else row["file"]
            rows.append(row)
            if not json:
                named = "" if row["class"] is None else f"; predicted class: {row['class']}"
                show(f"{row['file']}: {row['verdict']} (p-value {row['p_value']:.4f}{named})")
    flagged = sum(row["ood"] for row in rows)
    if json:
        emit({"guard": str(guard), "fpr": rate, "images": rows, "flagged": flagged})
    elif len(rows) > 1:
        show(f"{flagged:,} of {len(rows):,} images are {VERDICTS[True]}, at a false-alarm rate of {100 * rate:.3g}%")
    if flagged:
        raise typer.Exit(3)


def standard_input() -> bytes:
    """What is piped in, if it can be an image."""
    from ...errors import InputError

    found = sys.stdin.buffer.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise InputError(f"Standard input has more than {LARGEST:,} bytes, and is no image. Pipe an image in.")
    return found


def opened_judge(path: Path, trust: bool) -> tuple[Judge, float]:
    """A guard, in a folder or exported, that can judge image files, and the false-alarm rate of its verdicts."""
    from ...energies import DETECTOR_FILE
    from ...errors import InputError
    from ...export import Exported, is_exported
    from ...features import Guard
    from ...guarding import GUARD_FILE, LiveJudge, load

    if is_exported(path):
        exported = Exported(path, trust=trust)
        if exported.preprocessing is None:
            raise InputError(
                f"{path} judges features, not images. Export the guard with its model, or use heat-ood score."
            )
        return exported, exported.facts.fpr
    if not (path / GUARD_FILE).is_file():
        what = (
            "is a detector without its model: use heat-ood score" if (path / DETECTOR_FILE).is_file() else "is no guard"
        )
        raise InputError(f"{path} {what}. Pass a folder that heat-ood protect wrote.")
    guard: Guard = load(path)
    guard.detector.require_calibrated().check(FALSE_ALARMS)
    judge = LiveJudge(guard)
    if judge.preprocessing is None:
        raise InputError(
            f"The guard in {path} does not know how images were prepared for its model. Make it with heat-ood protect, "
            "or call it in Python, with images that are prepared."
        )
    return judge, FALSE_ALARMS


def judged(judge: Judge, images: FolderImages, rate: float) -> Iterator[dict[str, Any]]:
    """The verdict on each image, a batch in memory at a time."""
    from ...guarding import VERDICTS, class_name

    assert judge.preprocessing is not None
    images.preprocessing = judge.preprocessing
    names = iter(images.files)
    for pixels in pixels_of(images, BATCH):
        found = judge.judge(pixels)
        assert found.p_value is not None
        width = 0 if found.logits is None else found.logits.shape[1]
        classes = [-1] * len(pixels) if found.logits is None else found.logits.argmax(1).tolist()
        for score, p_value, index in zip(found.score.tolist(), found.p_value.tolist(), classes, strict=True):
            ood = p_value <= rate
            yield {
                "file": next(names),
                "verdict": VERDICTS[ood],
                "ood": ood,
                "p_value": p_value,
                "score": score,
                "class": None if index < 0 else class_name(judge.classes, index, width),
            }
