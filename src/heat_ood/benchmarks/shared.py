"""The two CIFAR networks of the data folder: ``nets.py`` and the weights beside it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from .readers import MissingData

__all__ = ["cifar10", "cifar100", "data_root", "rooted"]

PLACE = "../shared/data"
CHECKOUT = Path(__file__).parents[3]
GET = "the folder with nets.py, cifar10.safetensors and cifar100.safetensors; HEAT_OOD_DATA says where it is"
ROOT: ContextVar[Path | None] = ContextVar("ROOT", default=None)


@contextmanager
def rooted(root: str | Path) -> Iterator[None]:
    """Functions that make a model find their data root by :func:`data_root` within the block."""
    token = ROOT.set(Path(root).expanduser())
    try:
        yield
    finally:
        ROOT.reset(token)


def data_root(place: str = PLACE) -> Path:
    """The block's root, else ``HEAT_OOD_DATA``, else a place beside the current folder or this checkout."""
    if (root := ROOT.get()) is not None:
        return root
    if given := os.environ.get("HEAT_OOD_DATA"):
        return Path(given).expanduser()
    places = (Path(place), CHECKOUT / place)
    return next((p for p in places if p.is_dir()), places[0])


def cifar10() -> nn.Module:
    """The network of CIFAR-10, trained."""
    return load("cifar10")


def cifar100() -> nn.Module:
    """The network of CIFAR-100, trained."""
    return load("cifar100")


def load(name: str) -> nn.Module:
    root = data_root()
    for file in (root / "nets.py", root / f"{name}.safetensors"):
        if not file.is_file():
            raise MissingData(f"the network of {name}", file, GET)
    model: Any = networks(root / "nets.py").load(name)
    model = model.to(memory_format=torch.channels_last)  # half as fast again on a CPU
    assert isinstance(model, nn.Module)
    return model


def networks(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("heat_ood_shared_nets", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
