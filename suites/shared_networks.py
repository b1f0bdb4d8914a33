"""The two CIFAR networks of our development data: ``nets.py`` of the data root, and the weights beside it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from heat_ood.benchmarks import MissingData

GET = "the folder with nets.py, cifar10.safetensors and cifar100.safetensors; HEAT_OOD_DATA says where it is"


def cifar10(root: Path) -> nn.Module:
    """The network of CIFAR-10, trained."""
    return load("cifar10", root)


def cifar100(root: Path) -> nn.Module:
    """The network of CIFAR-100, trained."""
    return load("cifar100", root)


def contrastive(root: Path) -> nn.Module:
    """The network of CIFAR-10 with a projection in place of its head; ``experiments/networks.py`` trains that."""
    model: Any = load("cifar10", root)
    model.fc = projection()
    assert isinstance(model, nn.Module)
    return model


def projection(width: int = 512, projected: int = 128) -> nn.Sequential:
    """Of pooled features, for a supervised-contrastive loss."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projected))


def load(name: str, root: Path) -> nn.Module:
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
