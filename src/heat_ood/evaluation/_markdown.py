"""Tables in Markdown."""

from __future__ import annotations

import re

__all__ = ["code", "escape", "markdown"]


ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\|`*[]<>"})


def escape(text: str) -> str:
    """Text as it can stand in a cell or a sentence: no table, link, picture, code or tag of its own.

    Example:
        >>> print(escape("a | [b](c)"))
        a \\| \\[b\\](c)
    """
    return " ".join(text.split()).translate(ESCAPED)


def code(text: str) -> str:
    """Text as code, whatever it holds.

    Example:
        >>> print(code("heat-ood demo"), code("a`b"))
        `heat-ood demo` `` a`b ``
    """
    text = " ".join(text.split())
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def markdown(header: list[str], body: list[list[str]], note: str) -> str:
    """A table whose first column is text and the others numbers, with a note below."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, rule, *body)]
    return "\n".join([*lines, "", note, ""])
