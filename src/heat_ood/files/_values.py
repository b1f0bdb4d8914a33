"""Values as JSON, and strictly back."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import FormatError, InputError

__all__ = ["frame", "plain", "restored", "short"]

_T = TypeVar("_T")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def short(value: Any) -> str:
    """A value as an error shows it, however large it is.

    Example:
        >>> short("x"), short(list(range(10**6)))
        ("'x'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return _SHORT.repr(value)


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses and mappings as objects, tuples as lists, infinities and NaN as text.

    Anything that has a ``to_dict`` stands as what it gives, a number of numpy as a number, and all else as its text.

    Example:
        >>> plain({"a": (1, math.inf), 2: None})
        {'a': [1, 'inf'], '2': None}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return plain(value.tolist()) if hasattr(value, "tolist") and hasattr(value, "dtype") else str(value)


_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_KINDS: dict[type, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def restored(kind: type[_T], value: Any, where: str) -> _T:
    """What :func:`plain` was given, by its type: no unknown key, no missing one, no value of another type.

    Whoever calls it adds the remedy to the errors.

    Args:
        kind: a dataclass, or what may stand in one: ``str``, ``bool``, ``int``, ``float``, ``Any``, ``X | None``,
            ``tuple[X, ...]``, ``tuple[X, Y]``, ``Mapping[str, X]``, or a class with a ``from_dict``.
        value: what JSON holds.
        where: its place, for errors.

    Example:
        >>> restored(tuple[float, ...], [1, "inf"], "limits")
        (1.0, inf)
        >>> restored(tuple[float, ...], [1, "two"], "limits")
        Traceback (most recent call last):
        heat_ood.errors.FormatError: limits[1] is 'two', not a number
    """
    try:
        return _restored(kind, value, where)  # type: ignore[no-any-return]
    except RecursionError as error:
        raise FormatError(f"{where} is nested too deep") from error


def _restored(kind: Any, value: Any, where: str) -> Any:
    if kind in _KINDS:
        return _simple(kind, value, where)
    if kind is Any:
        return _anything(value)
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (inner,) = (one for one in of if one is not NoneType)
        return None if value is None else _restored(inner, value, where)
    if origin is tuple:
        return _items(of, value, where)
    if origin in (dict, Mapping):
        return {key: _restored(of[1], item, f"{where}.{key}") for key, item in _object(value, where).items()}
    if hasattr(kind, "from_dict"):
        try:
            return kind.from_dict(value)
        except FormatError as error:
            raise FormatError(f"{where} cannot be read ({error})") from error
    return _record(kind, value, where)


def _simple(kind: type, value: Any, where: str) -> Any:
    if kind is float:
        number = _NUMBERS.get(value) if isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            with suppress(OverflowError):  # a whole number of hundreds of digits
                return float(number)
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise FormatError(f"{where} is {short(value)}, not {_KINDS[kind]}")


def _anything(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _anything(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_anything(item) for item in value]
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _items(of: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise FormatError(f"{where} is not a list")
    kinds = of[:1] * len(value) if of[-1] is Ellipsis else of
    if len(kinds) != len(value):
        raise FormatError(f"{where} has {len(value)} items, not {len(kinds)}")
    return tuple(_restored(one, item, f"{where}[{i}]") for i, (one, item) in enumerate(zip(kinds, value, strict=True)))


def _object(value: Any, where: str, what: str = "a mapping") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{where} is not {what}")
    return value


def _record(cls: Any, value: Any, where: str) -> Any:
    kinds, required = _fields(cls)
    data = _object(value, where, f"a {cls.__name__}")
    if unknown := [key for key in data if key not in kinds]:
        raise FormatError(f"{where} has an unknown {unknown[0]!r}")
    if absent := [key for key in required if key not in data]:
        raise FormatError(f"{where} lacks {absent[0]!r}")
    return cls(**{key: _restored(kinds[key], item, f"{where}.{key}") for key, item in data.items()})


@cache
def _fields(cls: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The types of a dataclass's fields, and those that have no default."""
    hints = get_type_hints(cls)
    own = fields(cls)
    return {f.name: hints[f.name] for f in own}, tuple(
        f.name for f in own if f.default is MISSING and f.default_factory is MISSING
    )


def frame(rows: Sequence[Mapping[str, Any]], index: str) -> Any:
    """Rows as a pandas DataFrame, one column of them as its index; pandas is not required by anything else."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError("A data frame takes pandas, which is not installed: pip install pandas") from error
    return pd.DataFrame(list(rows)).set_index(index)
