"""What a command prints: tables or JSON on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["emit", "facts", "note", "show", "table", "training_table"]

PIPED = 200
"""Columns of a table that does not go to a terminal: wide enough not to break a row."""


def show(renderable: Any) -> None:
    """Print a table or a line on standard output."""
    width = None if Console().is_terminal else PIPED
    Console(highlight=False, markup=False, emoji=False, width=width).print(renderable)


def note(text: str) -> None:
    """Print a line on standard error."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(text)


def emit(data: Any) -> None:
    """Print JSON on standard output; infinities become strings."""
    from ..files import plain

    sys.stdout.write(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, rules: Iterable[int] = ()
) -> Table:
    """Text in the first column and numbers in the others; ``rules`` are the rows with a line below."""
    result = Table(title=title, title_justify="left", title_style="bold")
    for i, name in enumerate(header):
        result.add_column(name, justify="right" if i else "left", no_wrap=i == 0)
    for i, row in enumerate(rows):
        result.add_row(*row, end_section=i in set(rules))
    return result


def facts(pairs: Mapping[str, Any], title: str | None = None) -> Table:
    """Names and values, one a line."""
    result = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    result.add_column(style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in pairs.items():
        result.add_row(name, str(value))
    return result


def training_table(outcomes: Mapping[str, str], log: Mapping[str, list[dict[str, float]]]) -> Table:
    """How each residual's training went."""
    rows = []
    for name, outcome in outcomes.items():
        best = min(log[name], key=lambda epoch: epoch["held_out_loss"], default=None)
        numbers = (
            ["–", "–"]
            if best is None
            else [f"{best['held_out_loss']:+.4f}", f"{best['energy_negative'] - best['energy_real']:.4f}"]
        )
        rows.append([name, outcome, str(len(log[name])), *numbers])
    return table(["residual of", "outcome", "epochs", "held-out loss", "gap"], rows)
