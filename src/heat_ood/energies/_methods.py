"""Methods by name: what ``create`` makes and ``methods`` lists."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import InputError
from ..registry import METHODS, Method, complete
from ._base import Energy

__all__ = ["create", "create_prior", "find", "methods"]


def create(name: str, **settings: Any) -> Energy:
    """An unfitted method by its name; ``gmm-std@layer3`` reads an earlier layer, ``gmm+layer3`` one more, side by side.

    Example:
        >>> create("gmm-std@layer3").reads, create("gmm+layer2+layer3").reads
        (('std@layer3',), ('avg', 'avg@layer2', 'avg@layer3'))
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
    """A method by its name, with or without layers."""
    complete()
    base = _parted(name)[0]
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
    base, layers = _parted(name)
    method = find(name)
    settings = {**method.settings, **settings}
    parameters = inspect.signature(method.make).parameters
    if layers != [""] and "columns" not in parameters:
        raise InputError(f"{base} does not read earlier layers; write {base!r}.")
    if layers != [""]:
        columns = settings.get("columns", parameters["columns"].default)
        settings["columns"] = tuple(f"{c}@{layer}" if layer else c for layer in layers for c in columns)
    try:
        inspect.signature(method.make).bind(**settings)
    except TypeError as error:
        known = ", ".join(parameters) or "no settings"
        raise InputError(f"{base} cannot be made: {error}. Its settings are {known}.") from None
    return method, settings


def _parted(name: str) -> tuple[str, list[str]]:
    """The method and its layers, of which the last of the network has the empty name.

    Example:
        >>> _parted("gmm"), _parted("gmm@a"), _parted("gmm+a"), _parted("gmm@a+b")
        (('gmm', ['']), ('gmm', ['a']), ('gmm', ['', 'a']), ('gmm', ['a', 'b']))
    """
    first, *more = name.split("+")
    base, _, layer = first.partition("@")
    return base, [layer, *more]
