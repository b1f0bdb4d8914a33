"""Methods by name: what ``create`` makes and ``methods`` lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import InputError
from .ash import Ash
from .base import Energy
from .composition import Composition
from .dice import Dice
from .ensemble import Ensemble
from .fdbd import FastBoundary
from .flat import Flat
from .flow import ResidualFlow
from .gen import Gen
from .gmm import GaussianMixture
from .gradnorm import GradNorm
from .gram import Gram
from .klmatching import KLMatching
from .knn import KNearest
from .logits import EnergyLogits, MaximumSoftmax
from .mahalanobis import SSD, Mahalanobis
from .maxlogit import MaximumLogit
from .nnguide import NNGuide
from .odin import ODIN
from .openmax import OpenMax
from .react import React
from .relative import RelativeMixture
from .scale import Scale
from .vim import PrincipalResidual, VirtualLogit

__all__ = ["Method", "complete", "create", "create_prior", "methods", "register"]


class Method(NamedTuple):
    """A method: what makes it, the columns it reads, and whether ``name@layer`` reads them of an earlier layer.

    ``prior`` makes what HEAT composes and corrects under the method's name, where that is not the method itself: a
    smooth form of it.
    """

    make: Callable[..., Energy]
    reads: tuple[str, ...]
    layered: bool = False
    summary: str = ""
    prior: Callable[..., Energy] | None = None


LATER = ("heat_ood.detector",)
"""Modules further right that register methods of their own when they are imported."""
METHODS: dict[str, Method] = {}
CLASSES: dict[str, type[Energy]] = {}


def register(
    name: str,
    make: type[Energy],
    reads: tuple[str, ...],
    layered: bool = False,
    summary: str = "",
    prior: Callable[..., Energy] | None = None,
) -> None:
    """Add a method under a name; its class can then be saved and loaded."""
    METHODS[name] = Method(make, reads, layered, summary, prior)
    CLASSES[make.name] = make


def create(name: str, **settings: Any) -> Energy:
    """An unfitted method by its name; ``gmm-std@layer3`` reads an earlier layer.

    Example:
        >>> create("gmm-std@layer3").reads
        ('std@layer3',)
    """
    return made(name, find(name).make, settings)


def create_prior(name: str, **settings: Any) -> Energy:
    """What HEAT composes and corrects under a method's name: the method itself, or a smooth form of it."""
    method = find(name)
    return made(name, method.prior or method.make, settings)


def find(name: str) -> Method:
    complete()
    base = name.partition("@")[0]
    if base not in METHODS:
        raise InputError(f"There is no method {name!r}. There are {', '.join(METHODS)}.")
    return METHODS[base]


def made(name: str, make: Callable[..., Energy], settings: dict[str, Any]) -> Energy:
    base, _, layer = name.partition("@")
    if METHODS[base].layered:
        columns = tuple(f"{column}@{layer}" if layer else column for column in METHODS[base].reads)
        settings = {"columns": columns, **settings}
    elif layer:
        raise InputError(f"{base} does not read earlier layers; write {base!r}.")
    try:
        inspect.signature(make).bind(**settings)
    except TypeError as error:
        known = ", ".join(inspect.signature(make).parameters) or "no settings"
        raise InputError(f"{base} cannot be made: {error}. Its settings are {known}.") from None
    return make(**settings)


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


CLASSES |= {Composition.name: Composition, Flat.name: Flat}
register("msp", MaximumSoftmax, ("logits",), False, "maximum softmax probability")
register("max-logit", MaximumLogit, ("logits",), False, "largest logit")
register("energy", EnergyLogits, ("logits",), False, "free energy of the logits")
register("gen", Gen, ("logits",), False, "generalised entropy of the softmax")
register("kl-matching", KLMatching, ("logits",), False, "divergence from the mean predictions of the classes")
register("openmax", OpenMax, ("logits", "labels"), False, "log-odds of an unknown class")
register("dice", Dice, ("avg", "head"), False, "free energy of a sparsified head")
register("react", React, ("avg", "head"), False, "free energy of clipped features")
register("scale", Scale, ("avg", "head"), False, "free energy of scaled features")
register("ash", Ash, ("avg", "head"), False, "free energy of pruned features")
register("gradnorm", GradNorm, ("avg", "logits"), False, "norm of the gradient of the head")
register("fdbd", FastBoundary, ("avg", "head"), False, "distance to the decision boundaries")
register("vim", VirtualLogit, ("avg", "head"), False, "virtual logit outside the principal space")
register("vim-residual", PrincipalResidual, ("avg",), False, "norm outside the principal space")
register("gmm", GaussianMixture, ("avg",), True, "Gaussian mixture of average-pooled features")
register("gmm-std", GaussianMixture, ("std",), True, "Gaussian mixture of std-pooled features")
register("gmm-joint", GaussianMixture, ("avg", "std"), True, "Gaussian mixture of both, side by side")
register("mahalanobis", Mahalanobis, ("avg",), True, "Mahalanobis distance to the nearest class")
register("ssd", SSD, ("avg",), True, "Mahalanobis distance of normalised features, labels or not")
register("relative-gmm", RelativeMixture, ("avg",), True, "class mixture against one Gaussian of all samples")
register("relative-gmm-joint", RelativeMixture, ("avg", "std"), True, "the same of both poolings, side by side")
register("knn", KNearest, ("avg",), True, "distance to the k-th nearest ID sample", partial(KNearest, soft=True))
register("nnguide", NNGuide, ("avg", "logits"), False, "confidence guided by the nearest ID samples")
register("residual-flow", ResidualFlow, ("avg",), True, "normalising flow as residual of a Gaussian")
register("odin", ODIN, ("inputs",), False, "softmax at a high temperature, of perturbed inputs")
register("gram", Gram, ("maps",), False, "Gram matrices out of the range of the class")
register("ensemble", Ensemble, ("models",), False, "mean energy or softmax of several models")
