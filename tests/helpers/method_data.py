"""Small data on which every method can be fitted, and the cases that the property tests go through."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heat_ood import Energy, Features, Prior, Residual, create, methods
from heat_ood.energies import InputEnergy, create_prior
from heat_ood.registry import METHODS

__all__ = ["BEYOND", "CASES", "PRIORS", "QUICK", "REFUSED", "Case", "fitted", "network", "samples"]

QUICK = Residual(epochs=2, hidden=8, depth=3, batch=64)
SMALL = {"residual": QUICK, "couplings": 2, "hidden": 8, "epochs": 1, "k": 5, "powers": 3, "alpha": 3, "layers": ("0",)}
"""Settings for little data and little time, by the name of the argument; a method takes those that it has."""


def import_examples() -> None:
    """The examples that add a method: importing one registers it, and the tests then find it as any other."""
    for file in sorted((Path(__file__).parents[2] / "examples").glob("*.py")):
        if "\n@register(" in file.read_text(encoding="utf-8") and file.stem not in sys.modules:
            spec = importlib.util.spec_from_file_location(file.stem, file)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


import_examples()
CASES = tuple(methods())
"""All methods, by their names."""
BEYOND = tuple(name for name in CASES if issubclass(METHODS[name].make, InputEnergy))
"""Methods that read more than features."""
PRIORS = tuple(name for name in CASES if isinstance(create_prior(name), Prior))
"""Methods that a residual can correct."""
REFUSED = tuple(name for name in CASES if name not in (*PRIORS, "heat"))
"""Methods that cannot be corrected, and say why; HEAT is corrected already."""
D, CLASSES, SILENT = 12, 4, 3


def samples(n: int = 240, seed: int = 0, dtype: torch.dtype = torch.float32, classes: int = CLASSES) -> Features:
    """Non-negative features around class means, some channels all but silent, and a head that tells the classes."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    means = torch.rand(classes, D, generator=torch.Generator().manual_seed(77), dtype=torch.float64) * 3
    scale = torch.ones(D, dtype=torch.float64)
    scale[-SILENT:] = 0.02
    avg = ((means[labels] + 0.4 * torch.randn(n, D, generator=g, dtype=torch.float64)) * scale).relu()
    std = ((means[labels].flip(1) + 0.4 * torch.randn(n, D, generator=g, dtype=torch.float64)) * scale).relu()
    weight = 2 * (means - means.mean(0)) * scale
    bias = -0.5 * ((means * scale).square().sum(1) - (means.mean(0) * scale).square().sum())
    return Features(
        avg=avg.to(dtype),
        std=std.to(dtype),
        labels=labels,
        head=(weight.to(dtype), bias.to(dtype)),
        layers={"layer3": (avg.square().to(dtype), std.square().to(dtype))},
        fingerprint="model",
    )


def network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES))
        model = nn.Sequential(*layers)
        nn.init.normal_(layers[-1].weight, std=4.0)
    return model.to(dtype).eval()


def images(n: int = 120, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 1, 6, 6, generator=g, dtype=torch.float64).to(dtype)


@dataclass(frozen=True)
class Case:
    """A method, with the data that it is fitted to and scores."""

    name: str

    @property
    def beyond(self) -> bool:
        """Whether it reads more than features."""
        return self.name in BEYOND

    def create(self, **changes: Any) -> Energy:
        parameters = inspect.signature(METHODS[self.name.partition("@")[0]].make).parameters
        small = {name: value for name, value in SMALL.items() if name in parameters}
        return create(self.name, **{**small, **changes})

    def data(self, n: int = 240, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        return images(n, seed, dtype) if self.name in BEYOND else samples(n, seed, dtype)

    def attach(self, energy: Any, dtype: torch.dtype = torch.float32) -> Any:
        if self.name not in BEYOND:
            return energy
        models = [network(seed, dtype) for seed in range(3 if energy.reads == ("models",) else 1)]
        return energy.attach(*models)

    def fitted(self, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The residual of")
            return self.attach(self.create(**changes), dtype).fit(self.data(dtype=dtype))


def fitted(name: str, dtype: torch.dtype = torch.float32) -> Any:
    return Case(name).fitted(dtype)
