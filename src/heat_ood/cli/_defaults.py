"""The library's own defaults, read when they are needed: an option that is left out has no value here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from typer.core import TyperCommand

__all__ = ["LibraryDefaults", "library_defaults"]


def library_defaults(command: str | None) -> dict[str, Any]:
    """What the library takes for the options of a command."""
    from .. import HEAT, Energy, Extractor, Residual
    from ..benchmarks import TrainingRecipe
    from ..demo import run

    functions: dict[str, Callable[..., Any]] = {"fit": HEAT, "score": Energy.predict, "demo": run}
    functions |= {"train-backbone": TrainingRecipe, "contrast": Extractor.contrast}
    if command is None or command not in functions:
        return {}
    found = {name: p.default for name, p in inspect.signature(functions[command]).parameters.items()}
    if command == "fit":
        found |= {f.name: f.default for f in fields(Residual)}
        found["prior"] = "by what the features have"
    if command == "contrast":
        found["kind"] = ", ".join(found["kinds"])
    return found


class LibraryDefaults(TyperCommand):
    """A command whose help shows the library's defaults."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        defaults = library_defaults(self.name)
        for parameter in self.params:
            value = defaults.get(parameter.name or "")
            if parameter.default is None and value is not None:
                parameter.show_default = str(value)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
