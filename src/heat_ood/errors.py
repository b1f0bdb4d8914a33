"""What the library raises: each error says the cause, then what the reader can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "Argument",
    "FormatError",
    "HeatError",
    "InputError",
    "LockedError",
    "ModelError",
    "NotFittedError",
    "Notice",
]


class Argument(NamedTuple):
    """An argument that an error advises to pass: ``overwrite=True`` in Python, ``--overwrite`` on the command line.

    Args:
        name: of the argument.
        value: to give it; ``...`` where the reader is to choose one.
    """

    name: str
    value: Any = ...

    def __str__(self) -> str:
        return f"{self.name}=…" if self.value is ... else f"{self.name}={self.value!r}"


class HeatError(Exception):
    """Anything that heat-ood raises on purpose.

    Its message is made of parts: text, and arguments that whoever shows it spells in its own way.

    Example:
        >>> error = HeatError("There is one already. Pass ", Argument("overwrite", True), " to replace it.")
        >>> str(error)
        'There is one already. Pass overwrite=True to replace it.'
        >>> error.spelt(lambda argument: f"--{argument.name}")
        'There is one already. Pass --overwrite to replace it.'
    """

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__(*parts)
        self.parts = parts

    def __str__(self) -> str:
        return self.spelt(str)

    def spelt(self, spell: Callable[[Argument], str]) -> str:
        """The message, with each argument as ``spell`` writes it."""
        return "".join(spell(part) if isinstance(part, Argument) else str(part) for part in self.parts)


class InputError(HeatError, ValueError):
    """An argument or a feature set that cannot be used as it is."""


class LockedError(InputError):
    """Another process is writing to the same folder."""


class ModelError(InputError, RuntimeError):
    """The model itself raised, in its ``forward``; its own error is the cause, ``__cause__``."""


class NotFittedError(HeatError, RuntimeError):
    """A score before ``fit``, or a decision before ``calibrate``."""


class FormatError(HeatError, ValueError):
    """A file that is damaged, incomplete, foreign, or of a newer version."""


class Notice(Warning):
    """What a default did without: nothing is wrong, but there could be more."""
