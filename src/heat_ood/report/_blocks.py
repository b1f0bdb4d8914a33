"""The building blocks of a report: sections, figures, panes, boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..results import Entry, Results
from ._markup import Raw, el

__all__ = ["box", "figure", "has_lines", "row_class", "section", "switch"]


def section(title: str, *content: Any, note: str = "") -> Raw:
    return el("section", el("h3", title), el("p", note, class_="soft") if note else None, *content)


def figure(title: str, chart: Raw) -> Raw:
    return el("figure", el("figcaption", title), chart)


def switch(label: str, panes: Mapping[str, Any]) -> Raw:
    """Panes of which the script shows one; without it all are there, each under its title."""
    inside = [el("div", el("h4", title), pane, class_="pane", data_title=title) for title, pane in panes.items()]
    return el("div", *inside, class_="switch", data_label=label)


def box(table: Raw, label: str) -> Raw:
    """A table scrolls in a box of its own, by keyboard too."""
    return el("div", table, class_="box", tabindex=0, role="region", aria_label=label)


def has_lines(results: Results) -> bool:
    """Whether the entries are points of lines."""
    return any(entry.x is not None for entry in results.measured)


def row_class(entry: Entry, heat: Entry | None) -> str | None:
    return "paper" if entry.kind == "paper" else "heat" if entry is heat else None
