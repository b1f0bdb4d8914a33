"""JSON that a reader can find their way in."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["layout"]


def layout(value: Any, indent: str = "") -> str:
    """JSON with a line for each item, but lists of numbers and texts on one line.

    Example:
        >>> print(layout({"a": [1, 2], "b": {"c": None}}))
        {
         "a": [1, 2],
         "b": {
          "c": null
         }
        }
    """
    deeper = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key, ensure_ascii=False)}: {layout(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(deeper + layout(item, deeper) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
