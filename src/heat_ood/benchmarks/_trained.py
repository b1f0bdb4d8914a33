"""A trained backbone on disk: its weights, and beside them how they were made and how good they are."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import __version__
from ..errors import FormatError, InputError
from ..files import Format, write, write_tensors
from ..models import load_model

__all__ = ["Trained", "finish", "finished"]

FORMAT = Format("heat-ood/backbone", 1)
WEIGHTS, FACTS = "model.safetensors", "backbone.json"
ANEW = "Delete it to train this backbone anew."


@dataclass(frozen=True)
class Trained:
    """A finished backbone: ``model.safetensors`` and ``backbone.json`` in a folder.

    ``load_model(trained.model, trained.weights)`` loads it.
    """

    out: Path
    model: str
    accuracy: float
    losses: tuple[float, ...]
    facts: dict[str, Any]

    @property
    def weights(self) -> Path:
        return self.out / WEIGHTS


def finished(folder: Path, identity: dict[str, Any]) -> Trained | None:
    """What is in the folder already, if it was made in the same way."""
    file = folder / FACTS
    if not file.exists():
        return None
    facts = FORMAT.read(file, ANEW, ANEW)
    try:
        made = {"recipe": facts["recipe"], "data": facts["data"]}
        known = Trained(folder, facts["model"], facts["accuracy"], tuple(facts["losses"]), facts)
    except (KeyError, TypeError) as error:
        raise FormatError(f"{file} is damaged ({error!r}). {ANEW}") from error
    if made != identity or not known.weights.is_file():
        raise InputError(f"{folder} holds a backbone of another recipe or other data. Name another folder.")
    return known


def finish(folder: Path, model: nn.Module, loads_as: str, found: dict[str, Any]) -> Trained:
    """Write the weights, see that they load again, then write the facts."""
    write_tensors(folder / WEIGHTS, model.state_dict())
    load_model(loads_as, folder / WEIGHTS)
    facts = FORMAT.stamp({"model": loads_as, **found, "versions": versions(loads_as)})
    write(folder / FACTS, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    return Trained(folder, loads_as, facts["accuracy"], tuple(facts["losses"]), facts)


def versions(loads_as: str) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__, "heat-ood": __version__}
    if loads_as.startswith(__package__):
        import timm

        found["timm"] = timm.__version__
    return found
