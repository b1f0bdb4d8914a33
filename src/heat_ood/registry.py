"""Methods by name: each registers itself in its own file; no list of them stands anywhere.

What registers to the right of a room need not be known to it: the front door of the package knows all rooms, and
:func:`complete` has it import them when somebody first asks for a name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from .errors import InputError

__all__ = ["CLASSES", "METHODS", "Method", "complete", "register", "storable"]

_T = TypeVar("_T")


class Method(NamedTuple):
    """A method: its class, one line on what it is, and the settings that the name stands for."""

    make: type[Any]
    summary: str
    settings: dict[str, Any]


METHODS: dict[str, Method] = {}
"""What can be made by name."""
CLASSES: dict[str, type[Any]] = {}
"""What may stand in a saved file, by the name that it has there."""


def register(name: str, summary: str, **settings: Any) -> Callable[[type[_T]], type[_T]]:
    """Make a class a method: ``create(name)`` makes it, tables list it, and it can be saved.

    The first name that a class is given is its own, under which it is saved; further names stand for other settings.

    Args:
        name: in lower case, with hyphens.
        summary: one line for lists, without a full stop.
        settings: arguments of the class that the name stands for.

    Example:
        >>> from heat_ood.energies import Energy, create
        >>> @register("first-channel", "the first channel of avg")
        ... class FirstChannel(Energy):
        ...     reads = ("avg",)
        ...
        ...     def fit(self, features):
        ...         self.begin(features)
        ...         return self
        ...
        ...     def energy(self, features):
        ...         return features.avg[:, 0]
        >>> create("first-channel")
        FirstChannel()  # fitted
        >>> METHODS.pop("first-channel").summary, CLASSES.pop("first-channel").name
        ('the first channel of avg', 'first-channel')
    """

    def add(cls: type[_T]) -> type[_T]:
        known = METHODS.get(name)
        if known is not None and _identity(known.make) != _identity(cls):
            raise InputError(f"There is a method {name!r} already, {_identity(known.make)}. Choose another name.")
        if "name" not in vars(cls):
            storable(name)(cls)
        METHODS[name] = Method(cls, summary, settings)
        return cls

    return add


def storable(name: str) -> Callable[[type[_T]], type[_T]]:
    """Let a class stand in saved files under a name: a part of a method, or a value among its settings."""

    def add(cls: type[_T]) -> type[_T]:
        known = CLASSES.get(name)
        if known is not None and _identity(known) != _identity(cls):
            raise InputError(f"Saved files know {name!r} as {_identity(known)} already. Choose another name.")
        CLASSES[name] = cls
        cls.name = name  # type: ignore[attr-defined]
        return cls

    return add


def _identity(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def complete() -> None:
    """See to it that all methods are registered, whatever has been imported so far."""
    load = getattr(sys.modules.get(__package__ or ""), "_load_methods", None)
    if load is not None:
        load()
