"""HTML and SVG as text that cannot forget to escape: only :class:`Raw` is put in as it is."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

__all__ = ["Raw", "el", "join"]

VOID = {"meta", "img", "br", "col", "path", "line", "rect", "circle", "polyline", "polygon"}
"""Elements without content; those of SVG among them close themselves."""


class Raw(str):
    """Markup: put in as it is."""


def el(tag: str, *children: Any, **attributes: Any) -> Raw:
    """An element; text is escaped, None and False attributes are left out, ``class_`` is ``class``.

    Example:
        >>> el("td", "a < b", class_="n", data_sort=1.5)
        '<td class="n" data-sort="1.5">a &lt; b</td>'
    """
    names = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    given = "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for key, value in names.items()
        if value is not None and value is not False
    )
    if tag in VOID:
        return Raw(f"<{tag}{given}/>")
    return Raw(f"<{tag}{given}>{join(children)}</{tag}>")


def join(parts: Iterable[Any]) -> Raw:
    """One after the other; lists are joined too, None is nothing."""
    texts = []
    for part in parts:
        if isinstance(part, list | tuple):
            texts.append(join(part))
        elif part is not None:
            texts.append(part if isinstance(part, Raw) else Raw(escape(str(part))))
    return Raw("".join(texts))
