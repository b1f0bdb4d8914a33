"""What all commands do alike: show the library's defaults, say warnings and errors in a line, exit with a code."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from ..errors import Argument, HeatError
from ._output import note
from ._registry import COMMANDS, Command
from ._spelling import speller

__all__ = ["Running"]

WRITTEN = ("out", "csv_file")
"""The options that say where a command writes."""


class Running(TyperCommand):
    """A command of the registry as typer runs it."""

    @property
    def known(self) -> Command:
        """What stands with it."""
        assert self.name is not None
        return COMMANDS[self.name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        defaults = self.known.defaults()
        for parameter in self.params:
            value = defaults.get(parameter.name or "")
            if parameter.default is None and value is not None:
                parameter.show_default = str(value)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        spell = speller(self.known, ctx.params)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("default", module="heat_ood")
                warnings.showwarning = lambda message, *_, **__: note(f"note: {said(message, spell)}")
                return super().invoke(ctx)
        except KeyboardInterrupt:
            note(f"interrupted; {self.known.interrupted}")
            raise typer.Exit(130) from None
        except MemoryError as error:
            if ctx.find_root().params.get("debug"):
                raise
            note(f"error: there is not enough memory ({error or 'for what was asked'}). Take fewer samples at a time.")
            raise typer.Exit(1) from None
        except Exception as error:
            if ctx.find_root().params.get("debug") or not expected(error):
                raise
            note(f"error: {said(error, spell)}{place_of(error, ctx.params)}")
            raise typer.Exit(1) from None


def said(message: Exception | str, spell: Callable[[Argument], str]) -> str:
    """A message with the arguments that it advises as options."""
    return message.spelt(spell) if isinstance(message, HeatError) else str(message)


def place_of(error: Exception, values: Mapping[str, Any]) -> str:
    """Where it was written to, for an error of the file system that names no file."""
    out = next((values[name] for name in WRITTEN if isinstance(values.get(name), Path)), None)
    nameless = isinstance(error, OSError) and not isinstance(error, HeatError) and error.filename is None
    return f", while writing to {out} or to temporary files" if nameless and out is not None else ""


def expected(error: Exception) -> bool:
    """Whether the message says all: our own errors, and those of the file system."""
    return isinstance(error, HeatError) or (isinstance(error, OSError) and error.errno not in (None, errno.EPIPE))
