"""Methods by name: what ``create`` makes and ``methods`` lists."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import InputError
from .base import Energy
from .composition import Composition
from .flat import Flat
from .gmm import GaussianMixture
from .logits import EnergyLogits, MaximumSoftmax

__all__ = ["Method", "complete", "create", "methods", "register"]


class Method(NamedTuple):
    """A method: what makes it, the columns it reads, and whether ``name@layer`` reads them of an earlier layer."""

    make: Callable[..., Energy]
    reads: tuple[str, ...]
    layered: bool = False
    summary: str = ""


LATER = ("heat_ood.detector",)
"""Modules further right that register methods of their own when they are imported."""
METHODS: dict[str, Method] = {}
CLASSES: dict[str, type[Energy]] = {}


def register(name: str, make: type[Energy], reads: tuple[str, ...], layered: bool = False, summary: str = "") -> None:
    """Add a method under a name; its class can then be saved and loaded."""
    METHODS[name] = Method(make, reads, layered, summary)
    CLASSES[make.name] = make


def create(name: str, **settings: Any) -> Energy:
    """An unfitted method by its name; ``gmm-std@layer3`` reads an earlier layer.

    Example:
        >>> create("gmm-std@layer3").reads
        ('std@layer3',)
    """
    base, _, layer = name.partition("@")
    complete()
    if base not in METHODS:
        raise InputError(f"There is no method {name!r}. There are {', '.join(METHODS)}.")
    method = METHODS[base]
    if not method.layered:
        if layer:
            raise InputError(f"{base} does not read earlier layers; write {base!r}.")
        return method.make(**settings)
    columns = tuple(f"{column}@{layer}" if layer else column for column in method.reads)
    return method.make(**{"columns": columns, **settings})


def methods() -> dict[str, tuple[str, ...]]:
    """The names of all methods, with what each reads.

    Example:
        >>> methods()["gmm-joint"]
        ('avg', 'std')
    """
    complete()
    return {name: method.reads for name, method in METHODS.items()}


def complete() -> None:
    """See to it that all methods are registered, whatever has been imported so far."""
    for module in LATER:
        import_module(module)


CLASSES[Composition.name] = Composition
register("gmm", GaussianMixture, ("avg",), True, "Gaussian mixture of average-pooled features")
register("gmm-std", GaussianMixture, ("std",), True, "Gaussian mixture of std-pooled features")
register("gmm-joint", GaussianMixture, ("avg", "std"), True, "Gaussian mixture of both, side by side")
register("energy", EnergyLogits, ("logits",), False, "free energy of the logits")
register("ebm", Flat, ("avg",), True, "no prior: the energy-based model alone, inside HEAT")
register("msp", MaximumSoftmax, ("logits",), False, "maximum softmax probability")
