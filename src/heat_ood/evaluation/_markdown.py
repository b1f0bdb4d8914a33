"""Tables in Markdown."""

from __future__ import annotations

__all__ = ["escape", "markdown"]


def escape(text: str) -> str:
    """Text as it can stand in a cell."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def markdown(header: list[str], body: list[list[str]], note: str) -> str:
    """A table whose first column is text and the others numbers, with a note below."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, rule, *body)]
    return "\n".join([*lines, "", note, ""])
