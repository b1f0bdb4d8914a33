"""Dataclasses to JSON and strictly back: no unknown key, no missing one, no value of another type."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from ..errors import FormatError
from ..evaluation import Evaluation

__all__ = [
    "Reader",
    "anything",
    "evaluation",
    "layout",
    "many",
    "mapping",
    "number",
    "optional",
    "plain",
    "record",
    "text",
    "whole",
]

T = TypeVar("T")
Reader = Callable[[Any, str], T]
"""Takes what JSON holds and where it stands; gives the value or raises."""
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def damaged(where: str, problem: str) -> FormatError:
    return FormatError(f"The results are damaged: {where} {problem}. Run the benchmark again, or restore the file.")


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise damaged(where, f"is {value!r}, not text")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, str) and value in SPECIAL:
        return SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise damaged(where, f"is {value!r}, not a number")
    return float(value)


def whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise damaged(where, f"is {value!r}, not a whole number")
    return value


def anything(value: Any, where: str) -> Any:
    """What JSON can hold, with the infinities that it cannot."""
    if isinstance(value, dict):
        return {key: anything(item, where) for key, item in value.items()}
    if isinstance(value, list):
        return [anything(item, where) for item in value]
    return SPECIAL.get(value, value) if isinstance(value, str) else value


def evaluation(value: Any, where: str) -> Evaluation:
    try:
        return Evaluation.from_json(json.dumps(value))
    except FormatError as error:
        raise damaged(where, f"cannot be read ({error})") from error


def optional(reader: Reader[T]) -> Reader[T | None]:
    return lambda value, where: None if value is None else reader(value, where)


def many(reader: Reader[T]) -> Reader[tuple[T, ...]]:
    def read(value: Any, where: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise damaged(where, "is not a list")
        return tuple(reader(item, f"{where}[{i}]") for i, item in enumerate(value))

    return read


def mapping(reader: Reader[T]) -> Reader[dict[str, T]]:
    def read(value: Any, where: str) -> dict[str, T]:
        if not isinstance(value, dict):
            raise damaged(where, "is not a mapping")
        return {key: reader(item, f"{where}.{key}") for key, item in value.items()}

    return read


def record(cls: type[T], **readers: Reader[Any]) -> Reader[T]:
    """A dataclass, by a reader for each of its fields."""

    def read(value: Any, where: str) -> T:
        if not isinstance(value, dict):
            raise damaged(where, f"is not a {cls.__name__}")
        unknown = [key for key in value if key not in readers]
        absent = [f.name for f in fields(cls) if f.name not in value and required(f)]  # type: ignore[arg-type]
        if unknown or absent:
            problem = f"has an unknown {unknown[0]!r}" if unknown else f"lacks {absent[0]!r}"
            raise damaged(where, problem)
        return cls(**{key: readers[key](item, f"{where}.{key}") for key, item in value.items()})

    return read


def required(f: Any) -> bool:
    return f.default is MISSING and f.default_factory is MISSING


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses and mappings as objects, tuples as lists, infinities and NaN as text."""
    if isinstance(value, Evaluation):
        return plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value if value is None or isinstance(value, str | int) else str(value)


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
