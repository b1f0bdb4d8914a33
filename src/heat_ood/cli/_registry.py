"""Commands of ``heat-ood``: each registers itself in its own file, with all that is to be said of it."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import Argument
from . import _commands

__all__ = ["COMMANDS", "Command", "command", "defaults_of", "discover"]

Run = Callable[..., None]


class Command(NamedTuple):
    """A command, and what stands with it; see :func:`command`."""

    run: Run
    order: int
    interrupted: str
    defaults: Callable[[], Mapping[str, Any]]
    arguments: Mapping[str, str]
    otherwise: Callable[[Argument, Mapping[str, Any]], str | None]


COMMANDS: dict[str, Command] = {}
"""What can be run, by its name."""


def command(
    *,
    order: int,
    interrupted: str = "nothing was changed",
    defaults: Callable[[], Mapping[str, Any]] = dict,
    arguments: Mapping[str, str] | None = None,
    otherwise: Callable[[Argument, Mapping[str, Any]], str | None] = lambda argument, values: None,
) -> Callable[[Run], Run]:
    """Make a function a command, ``train_backbone`` as ``heat-ood train-backbone``; its parameters are the options.

    Args:
        order: where it stands in the help; smaller is higher.
        interrupted: what to say when it is interrupted: what is left, and how to go on.
        defaults: what the library takes for the parameters that are left out; asked for the help alone, so that
            nothing heavy is imported to parse.
        arguments: the parameter that gives an argument of the library, where the two have different names.
        otherwise: how to write an argument of the library that no parameter gives, from the command's values; None
            where there is no way.
    """

    def add(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        known = COMMANDS.get(name)
        if known is not None and known.run.__module__ != run.__module__:
            raise ValueError(f"There is a command {name} already, in {known.run.__module__}. Choose another name.")
        COMMANDS[name] = Command(run, order, interrupted, defaults, arguments or {}, otherwise)
        return run

    return add


def discover() -> dict[str, Command]:
    """All commands, those of every file in ``_commands``, in the order of the help."""
    for module in pkgutil.iter_modules(_commands.__path__):
        import_module(f"{_commands.__name__}.{module.name}")
    return dict(sorted(COMMANDS.items(), key=lambda item: item[1].order))


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of a function's arguments, by name."""
    return {name: p.default for name, p in inspect.signature(function).parameters.items() if p.default is not p.empty}
