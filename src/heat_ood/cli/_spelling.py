"""How the command line writes an argument of the library: ``overwrite=True`` is ``--overwrite``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from typer.models import OptionInfo

from ..errors import Argument
from ._registry import COMMANDS, Command

__all__ = ["speller"]

PLACEHOLDERS = {str: "NAME", Path: "PATH", int: "NUMBER", float: "NUMBER"}
"""What stands for a value that the reader is to choose, by its type."""


class Option(NamedTuple):
    """An option of a command: ``--prior``, what it takes, and whether it may be given several times."""

    flag: str
    kind: type[Any]
    several: bool

    def __call__(self, value: Any) -> str:
        """The option with a value of the library's argument; ``...`` is a placeholder."""
        if self.kind is bool:
            return f"no {self.flag}" if value is False else self.flag
        if value is ...:
            return f"{self.flag} {PLACEHOLDERS.get(self.kind, 'VALUE')}"
        if self.several and isinstance(value, list | tuple):
            return " ".join(f"{self.flag} {item}" for item in value)
        return f"{self.flag} {written(value)}"


def written(value: Any) -> str:
    """False, of an option that takes a name, says that there is none; several values have commas between."""
    if value is False:
        return "none"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def options_of(command: Command) -> dict[str, Option]:
    """The options of a command by the library's arguments that they give, as its parameters declare them."""
    found: dict[str, Option] = {}
    for name, parameter in inspect.signature(command.run, eval_str=True).parameters.items():
        for declared in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(declared, OptionInfo):
                flags = declared.param_decls or (f"--{name.replace('_', '-')}",)
                found[name] = Option(flags[0], *taken(parameter.annotation.__origin__))
    return found | {argument: found[name] for argument, name in command.arguments.items()}


def taken(annotation: Any) -> tuple[type[Any], bool]:
    """What ``Path | None`` or ``list[str]`` takes, and whether several times."""
    if isinstance(annotation, UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    several = get_origin(annotation) is list
    return get_args(annotation)[0] if several else annotation, several


def speller(command: Command, values: Mapping[str, Any]) -> Callable[[Argument], str]:
    """How a command that runs writes the library's arguments.

    As an option of its own, else as it says itself, else as the option of a command that comes before it (features
    are extracted again by ``extract``, whoever finds them damaged); what no option gives stays Python.

    Args:
        command: the one that runs.
        values: of its parameters.
    """

    def spell(argument: Argument) -> str:
        own = options_of(command).get(argument.name)
        if own is not None:
            return own(argument.value)
        otherwise = command.otherwise(argument, values)
        if otherwise is not None:
            return otherwise
        earlier = sorted((known for known in COMMANDS.values() if known.order < command.order), key=lambda c: c.order)
        others = (options_of(known).get(argument.name) for known in earlier)
        return next((option(argument.value) for option in others if option is not None), str(argument))

    return spell
