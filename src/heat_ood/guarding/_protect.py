"""One call from a model and its data to a guard: extract, distort, fit, calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from ..energies import DETECTOR_FILE, Energy, remove
from ..errors import InputError, Notice
from ..features import Extractor, Features, Guard, has_images
from ..heat import HEAT
from ._folder import save
from ._records import DETECTOR

__all__ = ["protect", "readable"]

CONTRAST = 50_000
"""At most so many training images are distorted."""


def protect(
    model: nn.Module | Extractor,
    train: Iterable[Any],
    held_out: Iterable[Any],
    folder: str | PathLike[str] | None = None,
    *,
    layers: str | Sequence[str] | None = "stages",
    detector: Energy | None = None,
    contrast: bool = True,
    per_class: bool = False,
    progress: bool = True,
) -> Guard:
    """A guarded model: images in; logits, score and p-value out, in one pass.

    Features of the training samples are extracted and, where they are images, of distorted ones; HEAT is fitted to
    them and calibrated on the held-out samples. Interrupted, the same call goes on where it was, if there is a folder.

    Args:
        model: any frozen classifier, or an :class:`Extractor` of one.
        train: a loader of ID samples with labels, best those that the model was trained on, not shuffled.
        held_out: a loader of ID samples that the model was **not** trained on.
        folder: keeps the features, the detector and how the model is made again; :func:`load` opens it. None keeps
            all in memory.
        layers: as for :class:`Extractor`.
        detector: unfitted; None is ``HEAT()``.
        contrast: distort training images, where there are images.
        per_class: let the false-alarm rate hold for each predicted class.
        progress: show bars on a terminal.

    Example:
        >>> import torch
        >>> torch.manual_seed(0) and None
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> train, held_out = ([(torch.rand(60, 4), torch.arange(60) % 3)] for _ in range(2))
        >>> guard = protect(model, train, held_out, detector=HEAT(residual=None))
        >>> guard(torch.rand(2, 4)).p_value.shape
        torch.Size([2])
    """
    for name, loader in (("train", train), ("held_out", held_out)):
        if isinstance(loader, Iterator):
            raise InputError(
                f"{name} can be read only once, and may have to be read again. Pass a DataLoader, or a list of batches."
            )
    extractor = model if isinstance(model, Extractor) else readable(Extractor(model, layers), train)
    place = None if folder is None else Path(folder)

    def kept(name: str) -> Path | None:
        return None if place is None else place / "features" / name

    fitting = extractor.extract(train, kept("train"), progress=progress, description="Training samples")
    against: Features | None = None
    unfitted = HEAT() if detector is None else detector
    corrected = isinstance(unfitted, HEAT) and unfitted.residual is not None
    if contrast and corrected and has_images(train, extractor.network):
        count = min(len(fitting), CONTRAST)
        against = extractor.contrast(train, kept("contrast"), samples=count, progress=progress)
    calibration = extractor.extract(held_out, kept("held-out"), progress=progress, description="Held-out samples")

    # until it is calibrated, the new detector has a place of its own: the guard that is there stays whole
    begun = None if place is None else place / "checkpoint" / "fitted"
    fitted = None
    if place is not None and begun is not None:
        fitted = _fitted_before((begun, place / DETECTOR), unfitted, fitting)
    if fitted is None:
        more: dict[str, Any] = {}
        if isinstance(unfitted, HEAT):
            checkpoint = None if place is None else place / "checkpoint"
            more = {"contrast": against, "progress": progress, "checkpoint": checkpoint}
        fitted = unfitted.fit(fitting, **more)
        if begun is not None:
            fitted.save(begun)
    fitted.calibrate(calibration, per_class=per_class)
    guard = extractor.guard(fitted)
    if place is not None and begun is not None:
        save(guard, place, weights=extractor.name is not None)
        remove(begun)
        with suppress(OSError):  # something else is in it
            begun.parent.rmdir()
    return guard


def readable(extractor: Extractor, train: Iterable[Any]) -> Extractor:
    """An extractor as it is, or of the last layer alone where the model has no stages."""
    if extractor.layers != "stages":
        return extractor
    first = next(iter(train), None)
    try:
        if first is not None:
            extractor(first)
    except InputError as error:
        own = {name: getattr(extractor, name) for name in ("head", "device", "autocast", "name", "weights")}
        plain = Extractor(extractor.model, **own)
        plain(first)  # what is wrong with the model or the batch itself is said here
        warnings.warn(Notice(f"The last layer alone is read: {error}"), stacklevel=3)
        return plain
    return extractor


def _fitted_before(folders: Sequence[Path], wanted: Energy, features: Features) -> Energy | None:
    """The detector that an interrupted call had fitted already; None where there is none, or another one."""
    for folder in folders:
        if not (folder / DETECTOR_FILE).is_file():
            continue
        there = Energy.load(folder)
        same = type(there) is type(wanted) and repr(there.settings) == repr(wanted.settings)
        if same and there.fitted_to(features):
            warnings.warn(Notice(f"The detector in {folder} is fitted already, and is reused."), stacklevel=3)
            return there
    return None
