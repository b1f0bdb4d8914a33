"""What a command prints: tables or JSON on standard output, everything else on standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Any

from rich.console import Console
from rich.table import Table

from ..progress import visible

__all__ = ["console", "emit", "emit_rows", "facts", "note", "show", "table", "training_table"]

UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Of what :func:`visible` shows as its escape, what JSON leaves as it is."""
PIPED = 200
"""Columns of a table that does not go to a terminal: wide enough not to break a row."""


def console(**options: Any) -> Console:
    """Where text is printed as it is: brackets and colons in names mean nothing."""
    return Console(highlight=False, markup=False, emoji=False, **options)


def line(text: str) -> str:
    """Foreign text as one line, so that no name can look like a line of ours."""
    return "\\n".join(visible(text).split("\n"))


def show(renderable: Any) -> None:
    """Print a table or a line on standard output."""
    width = None if console().is_terminal else PIPED
    console(width=width).print(line(renderable) if isinstance(renderable, str) else renderable)


def note(text: str) -> None:
    """Print a line on standard error."""
    console(stderr=True, soft_wrap=True).print(line(text))


def emit(data: Any) -> None:
    """Print JSON on standard output; infinities become strings."""
    sys.stdout.write(dumped(data) + "\n")


def emit_rows(data: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print the JSON of an object with one more entry, a list of rows, of which one is held at a time."""
    begun = dumped({**data, name: []}).removesuffix("]\n}")
    sys.stdout.write(begun)
    some = False
    for row in rows:
        sys.stdout.write(("," if some else "") + indent(f"\n{dumped(row)}", "    "))
        some = True
    sys.stdout.write("\n  ]\n}\n" if some else "]\n}\n")


def dumped(data: Any) -> str:
    """JSON in which what a terminal would obey stands as its escape, which JSON reads back as it was."""
    from ..files import plain

    text = json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, rules: Iterable[int] = ()
) -> Table:
    """Text in the first column and numbers in the others; ``rules`` are the rows with a line below."""
    result = Table(title=title and visible(title), title_justify="left", title_style="bold")
    for i, name in enumerate(header):
        result.add_column(visible(name), justify="right" if i else "left", no_wrap=i == 0)
    for i, row in enumerate(rows):
        result.add_row(*map(visible, row), end_section=i in set(rules))
    return result


def facts(pairs: Mapping[str, Any], title: str | None = None) -> Table:
    """Names and values, one a line."""
    result = Table(
        title=None if title is None else visible(title),
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    result.add_column(style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in pairs.items():
        result.add_row(visible(name), visible(str(value)))
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
