"""The folder of a guard: the detector, and how the model that it stands before is made again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from ..energies import DETECTOR_FILE, Energy
from ..errors import Argument, FormatError, InputError
from ..features import Extractor, Guard
from ..files import Format, replacing, restored, write
from ..models import load_model

__all__ = ["DETECTOR", "GUARD_FILE", "KEPT", "WEIGHTS", "Record", "load", "read_record", "save"]

FORMAT = Format("heat-ood guard", 1)
GUARD_FILE, WEIGHTS, DETECTOR = "guard.json", "model.safetensors", "detector"
KEPT = (GUARD_FILE, WEIGHTS, DETECTOR, "features", "checkpoint")
"""All that lies in the folder of a guard."""
AGAIN = "Protect the model again."


@dataclass(frozen=True)
class Record:
    """How a guard's model is made again, and how its features are read.

    Args:
        model: its name, for :func:`heat_ood.models.load_model`; None where it has none, and must be passed.
        weights: whether its weights lie in the folder.
        layers: as :class:`Extractor` was given them.
        stages: whether ``layers="stages"`` was given instead.
        head: the head's name, where one was given.
        headless: whether it was said that there is none.
    """

    model: str | None = None
    weights: bool = False
    layers: tuple[str, ...] = ()
    stages: bool = False
    head: str | None = None
    headless: bool = False


def save(guard: Guard, folder: Path, weights: bool) -> None:
    """Keep a guard: its detector and, beside it, how to make its model again, with its weights if they are wanted."""
    extractor = guard.extractor
    given = extractor.layers
    named = () if given is None or given == "stages" else (given,) if isinstance(given, str) else tuple(given)
    head = extractor.head if isinstance(extractor.head, str) else None
    kept = weights and extractor.name is not None
    record = Record(extractor.name, kept, named, given == "stages", head, extractor.head is False)
    if record.weights:
        state = {
            key: value.detach().cpu().clone().contiguous() for key, value in extractor.network.state_dict().items()
        }
        with replacing(folder / WEIGHTS) as part:
            try:
                save_file(state, part)
            except SafetensorError as error:
                raise InputError(
                    f"The model's weights cannot be written to {folder / WEIGHTS} ({error}). Make room there, or "
                    "choose another folder."
                ) from error
    guard.detector.save(folder / DETECTOR)
    write(folder / GUARD_FILE, json.dumps(FORMAT.stamp(vars(record)), indent=1) + "\n")


def read_record(folder: Path) -> Record:
    """What the folder says of the model."""
    data = dict(FORMAT.read(folder / GUARD_FILE, "Pass a folder that heat_ood.protect wrote.", AGAIN))
    try:
        return restored(Record, {k: v for k, v in data.items() if k not in ("format", "version")}, "guard")
    except FormatError as error:
        raise FormatError(f"{folder / GUARD_FILE} is damaged: {error}. {AGAIN}") from error


def load(path: str | PathLike[str], model: nn.Module | None = None) -> Any:
    """Open what was saved: a detector, or a guard with the model that it stands before.

    Args:
        path: a folder that ``detector.save`` or :func:`protect` wrote.
        model: the guard's model, where it was not named (``timm:…``, ``module:function``) when it was protected. It
            must have the weights that it had then.

    A saved detector needs no model. A named model is made again by its name: ``module:function`` runs your own code.
    """
    folder = Path(path)
    if not (folder / GUARD_FILE).is_file():
        if model is not None and (folder / DETECTOR_FILE).is_file():
            return Extractor(model).guard(Energy.load(folder))
        return Energy.load(folder)
    record, detector = read_record(folder), Energy.load(folder / DETECTOR)
    if model is None:
        if record.model is None:
            raise InputError(
                f"The guard in {folder} stands before a model that has no name. Pass it: heat_ood.load(…, ",
                Argument("model"),
                ").",
            )
        model = load_model(record.model, folder / WEIGHTS if record.weights else None)
    layers = "stages" if record.stages else record.layers or None
    extractor = Extractor(model, layers, False if record.headless else record.head, name=record.model)
    if detector.fingerprint not in (None, extractor.compute_fingerprint()):
        raise InputError(
            f"The guard in {folder} was fitted with other weights of this model, or other layers (fingerprint "
            f"{str(detector.fingerprint)[:12]}, now {extractor.fingerprint[:12]}). Pass the model as it was then, or "
            "protect this one."
        )
    return extractor.guard(detector)
