"""Docstrings for the site: what they say in reStructuredText, said in Markdown (a griffe extension)."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Docstrings", "markdown"]

MATH_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +.*| *$))*)", re.MULTILINE)
MATH = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([\w.]+)`")
REFERENCES = re.compile(r"^References:\n((?: +.*\n?|\n)+)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Turns every docstring into Markdown before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, obj)


def markdown(text: str, obj: griffe.Object) -> str:
    """Formulas in dollars, roles as links, and the headings that griffe knows."""
    text = MATH_BLOCK.sub(displayed, text)
    text = MATH.sub(lambda found: f"${' '.join(found[1].split())}$", text)
    text = ROLE.sub(lambda found: link(found[2], obj, short=bool(found[1])), text)
    for ours, known in headings(obj).items():
        text = re.sub(rf"^{ours}:$", f"{known}:", text, flags=re.MULTILINE)
    return REFERENCES.sub(lambda found: f"*Reference:* {' '.join(found[1].split())}\n", text)


def headings(obj: griffe.Object) -> dict[str, str]:
    """What griffe calls our sections; the arguments of a named tuple are its attributes, for it has no constructor."""
    tuples = isinstance(obj, griffe.Class) and "NamedTuple" in map(str, obj.bases)
    return {"Example": "Examples"} | ({"Args": "Attributes"} if tuples else {})


def displayed(found: re.Match[str]) -> str:
    """A formula on lines of its own."""
    indent, body = found[1], found[2].rstrip()
    after = found[2][len(body) :] or "\n"
    return f"{indent}$$\n{indent}{' '.join(body.split())}\n{indent}$$\n{after}"


def link(name: str, obj: griffe.Object, short: bool) -> str:
    """A name as code that leads to where it is documented, if it is."""
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref identifier="{resolved(name, obj)}" optional><code>{shown}</code></autoref>'


def resolved(name: str, obj: griffe.Object) -> str:
    """The whole name of what a docstring means by a name."""
    first, dot, rest = name.partition(".")
    if first == obj.package.name:
        return name
    try:
        return obj.resolve(first) + dot + rest
    except griffe.NameResolutionError:
        return name
