"""What settings may be: of the constructor's types, and within a method's own limits; at a fit as from a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints, runtime_checkable

import numpy as np
from torch import Tensor

from ..errors import InputError
from ..files import short

__all__ = ["LARGEST", "MOST_PARTS", "SMALLEST", "Limited", "check_kinds", "check_positive", "check_settings", "log_of"]

SMALLEST, LARGEST = 1e-30, 1e30
"""Between these, what is divided by a setting, or multiplied by it, stays within float32."""
MOST_PARTS = 1000
"""A detector has at most so many parts: each takes time to make, whether it brings tensors or not."""
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "None",
}


@runtime_checkable
class Limited(Protocol):
    """An energy whose settings have limits of their own."""

    def check(self) -> None:
        """Refuse settings that cannot be meant, naming the one."""


def check_settings(energy: Any) -> None:
    """Refuse settings of an energy that have another type than its constructor says, or that cannot be meant.

    Example:
        >>> from heat_ood.energies import Scale
        >>> check_settings(Scale(percentile="85"))
        Traceback (most recent call last):
        heat_ood.errors.InputError: percentile of Scale is a number, not '85'.
    """
    try:
        if isinstance(energy, Limited):
            energy.check()  # first: it has the better words
    except TypeError:
        check_kinds(type(energy), energy.settings)
        raise
    check_kinds(type(energy), energy.settings)


def check_kinds(cls: type[Any], settings: Mapping[str, Any]) -> None:
    """Refuse settings of another type than the class's constructor says; what it does not say may be anything."""
    kinds: dict[str, Any] = _kinds_of(cls)  # type: ignore[arg-type]
    for name, value in settings.items():
        kind = kinds.get(name, Any)
        if fits(value, kind):
            continue
        if isinstance(value, float) and math.isnan(value):
            raise InputError(f"{name} is not a number. Leave it out of {cls.__name__}(…) for the default.")
        raise InputError(f"{name} of {cls.__name__} is {worded(kind)}, not {short(value)}.")


def check_positive(name: str, value: float, remedy: str = "") -> None:
    """Refuse a number that is not positive, or one that float32 cannot compute with."""
    if not SMALLEST <= value <= LARGEST:
        limits = f", from {SMALLEST:g} to {LARGEST:g}" if value > 0 else ""
        raise InputError(f"{name} must be positive{limits}, not {value}.{remedy}")


def log_of(value: Any, names: Iterable[str]) -> list[dict[str, float]]:
    """A training log from a file: for each epoch these numbers, by name."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"the training log is {short(value)}")
    wanted = set(names)
    for entry in value:
        if (
            not isinstance(entry, Mapping)
            or set(entry) != wanted
            or not all(isinstance(number, int | float) for number in entry.values())
        ):
            raise InputError(f"the training log holds {short(entry)}")
    return [dict(entry) for entry in value]


@cache
def _kinds_of(cls: Any) -> dict[str, Any]:
    try:
        return get_type_hints(cls.__init__)
    except (NameError, TypeError):  # of a user's own class: names that exist for a type checker alone
        return {}


def fits(value: Any, kind: Any) -> bool:
    """Whether a setting is of a type; numbers and arrays of numpy and torch count as numbers and sequences."""
    origin, of = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if kind is None or kind is NoneType:
        return value is None
    if kind in (int, float):
        return _is_number(value, kind)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in of)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in of)
    if origin is tuple or origin is Sequence:
        return _are_items(value, of)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(fits(k, of[0]) and fits(v, of[1]) for k, v in value.items())
    return isinstance(value, kind) if isinstance(kind, type) and origin is None else True


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, Integral):
        return -(2**63) <= int(value) < 2**64
    return kind is float and isinstance(value, Real) and not math.isnan(value)


def _are_items(value: Any, of: tuple[Any, ...]) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    kinds = of if len(of) > 1 and of[-1] is not Ellipsis else of[:1] * len(value)
    return len(kinds) == len(value) and all(map(fits, value, kinds))


def worded(kind: Any) -> str:
    """A type as an error names it.

    Example:
        >>> worded(int | None), worded(tuple[str, ...]), worded(Literal["s", "b"])
        ('a whole number or None', 'a sequence (text)', "'s' or 'b'")
    """
    origin, of = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, of))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(worded, of)))
    if origin in (tuple, Sequence):
        return f"a sequence ({', '.join(worded(one) for one in of if one is not Ellipsis)})"
    if origin in (dict, Mapping):
        return "a mapping"
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))
