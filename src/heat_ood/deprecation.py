"""Old names, kept for one version: they still work, and say what to write instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["renamed", "renamed_names"]


def renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that a name has changed."""
    warnings.warn(f"{old} is called {new} now; the old name goes in version 0.3.", DeprecationWarning, stacklevel)


def renamed_names(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module some of whose names have changed or moved.

    Args:
        module: its ``__name__``.
        names: the classes and functions of today, by their old names in this module.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = names[name]
        home = value.__module__.partition("._")[0]
        renamed(f"{module}.{name}", f"{home}.{value.__name__}")
        return value

    return get
