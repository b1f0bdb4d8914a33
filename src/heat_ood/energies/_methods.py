"""Methods by name: what ``create`` makes and ``methods`` lists."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import InputError
from ..registry import METHODS, Method, complete
from ._base import Energy

__all__ = ["create", "create_prior", "find", "methods"]


def create(name: str, **settings: Any) -> Energy:
    """An unfitted method by its name; ``gmm-std@layer3`` reads an earlier layer.

    Example:
        >>> create("gmm-std@layer3").reads
        ('std@layer3',)
    """
    method, settings = _resolved(name, settings)
    energy: Energy = method.make(**settings)
    return energy


def create_prior(name: str, **settings: Any) -> Energy:
    """What HEAT composes and corrects under a method's name: the method itself, or a smooth form of it."""
    method, settings = _resolved(name, settings)
    energy: Energy = method.make.as_prior(**settings)
    return energy


def find(name: str) -> Method:
    """A method by its name, with or without a layer."""
    complete()
    base = name.partition("@")[0]
    if base not in METHODS:
        raise InputError(f"There is no method {name!r}. There are {', '.join(sorted(METHODS))}.")
    return METHODS[base]


def methods() -> dict[str, tuple[str, ...]]:
    """The names of all methods, with what each reads: to score, and to be fitted.

    Example:
        >>> methods()["gmm-joint"], methods()["dice"]
        (('avg', 'std'), ('avg', 'head'))
    """
    complete()
    return {name: tuple(dict.fromkeys((*e.reads, *e.learns))) for name in sorted(METHODS) for e in [create(name)]}


def _resolved(name: str, settings: dict[str, Any]) -> tuple[Method, dict[str, Any]]:
    """The method, and its settings with those that its name stands for, the layer among them."""
    base, _, layer = name.partition("@")
    method = find(name)
    settings = {**method.settings, **settings}
    parameters = inspect.signature(method.make).parameters
    if layer and "columns" not in parameters:
        raise InputError(f"{base} does not read earlier layers; write {base!r}.")
    if layer:
        columns = settings.get("columns", parameters["columns"].default)
        settings["columns"] = tuple(f"{column}@{layer}" for column in columns)
    try:
        inspect.signature(method.make).bind(**settings)
    except TypeError as error:
        known = ", ".join(parameters) or "no settings"
        raise InputError(f"{base} cannot be made: {error}. Its settings are {known}.") from None
    return method, settings
