"""The folder of a guard: the detector, and how the model that it stands before is made again."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from ..energies import DETECTOR_FILE, Energy
from ..errors import Argument, FormatError, HeatError, InputError
from ..features import Extractor, Guard
from ..files import locked, part_of, sweep_all, write_tensors
from ..models import load_model
from ._records import AGAIN, DETECTOR, GUARD_FILE, Record, Records, is_weights

__all__ = ["load", "save"]


def save(guard: Guard, folder: Path, weights: bool) -> None:
    """Keep a guard: its detector and, beside it, how to make its model again, with its weights if they are wanted.

    The detector is what is replaced in one step: before it, all that the new one needs is there, and after it, all
    that the old one needed goes. So a reader, or a kill, finds the old guard or the new one.
    """
    extractor, fingerprint = guard.extractor, guard.detector.fingerprint or ""
    with locked(folder):
        before = Records.before(folder)
        file = before.place_for(fingerprint) if weights and extractor.name is not None else None
        record = Record.of(extractor, file)
        before.with_(fingerprint, record).write(folder)
        if file is not None:
            write_tensors(folder / file, extractor.network.state_dict(), durable=True)
        guard.detector.save(folder / DETECTOR)
        for other in before.by_fingerprint.values():
            if other.weights not in (None, file):
                remove(folder / str(other.weights))
        Records({fingerprint: record}).write(folder)
        sweep_all(folder, lambda name: is_weights(part_of(name) or ""))


def remove(file: Path) -> None:
    """Remove a file of ours; a link is somebody's own."""
    if file.is_file() and not file.is_symlink():
        file.unlink(missing_ok=True)


def load(path: str | PathLike[str], model: nn.Module | None = None) -> Any:
    """Open what was saved: a detector, or a guard with the model that it stands before.

    Args:
        path: a folder that ``detector.save`` or :func:`protect` wrote.
        model: the guard's model, where it was not named (``timm:…``, ``module:function``) when it was protected. It
            must have the weights that it had then.

    A saved detector needs no model. A named model is made again by its name: ``module:function`` runs your own code.
    """
    folder = Path(path)
    if not (folder / GUARD_FILE).exists():
        if model is not None and (folder / DETECTOR_FILE).is_file():
            return Extractor(model).guard(Energy.load(folder))
        return Energy.load(folder)
    try:
        return opened(folder, model)
    except (HeatError, OSError, RuntimeError):  # a writer may have taken away what the old guard needs: now it waits
        with locked(folder):
            return opened(folder, model)


def opened(folder: Path, model: nn.Module | None) -> Guard:
    """The guard, if nobody replaces it meanwhile."""
    detector, records = Energy.load(folder / DETECTOR), Records.read(folder)
    record = records.by_fingerprint.get(detector.fingerprint or "")
    if record is None:
        raise FormatError(f"{folder / GUARD_FILE} does not know the model of the detector beside it. {AGAIN}")
    made = made_again(folder, record) if model is None else model
    layers = "stages" if record.stages else record.layers or None
    extractor = Extractor(made, layers, False if record.headless else record.head, name=record.model)
    if detector.fingerprint not in (None, extractor.compute_fingerprint()):
        raise InputError(
            f"The guard in {folder} was fitted with other weights of this model, or other layers (fingerprint "
            f"{str(detector.fingerprint)[:12]}, now {extractor.fingerprint[:12]}). Pass the model as it was then, or "
            "protect this one."
        )
    return extractor.guard(detector)


def made_again(folder: Path, record: Record) -> nn.Module:
    """The model by its name, with its weights."""
    if record.model is None:
        raise InputError(
            f"The guard in {folder} stands before a model that has no name. Pass it: heat_ood.load(…, ",
            Argument("model"),
            ").",
        )
    weights = None if record.weights is None else folder / record.weights
    if weights is not None and (weights.is_symlink() or not weights.is_file()):
        raise FormatError(f"{weights} is missing, or no regular file. Copy the whole folder of the guard.")
    return load_model(record.model, weights)
