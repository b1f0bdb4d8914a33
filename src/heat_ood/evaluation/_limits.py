"""What numbers of an evaluation can be: a file that claims others is refused before anything is drawn of it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..errors import InputError

__all__ = ["check_count", "check_finite", "check_shares"]

SLACK = 1e-9
"""What rounding may do to a share."""


def check_shares(what: str, values: Iterable[float]) -> None:
    """Refuse what is no share between 0 and 1; NaN stands for one that is not known.

    Example:
        >>> check_shares("auroc", [0.5, float("nan")])
        >>> check_shares("auroc", [50.0])
        Traceback (most recent call last):
        heat_ood.errors.InputError: auroc is 50.0, no share between 0 and 1. Give fractions, not percent.
    """
    for value in values:
        if not (math.isnan(value) or -SLACK <= value <= 1 + SLACK):
            raise InputError(f"{what} is {value}, no share between 0 and 1. Give fractions, not percent.")


def check_finite(what: str, values: Iterable[float]) -> None:
    """Refuse infinities and NaN."""
    for value in values:
        if not math.isfinite(value):
            raise InputError(f"{what} is {value}. Give a finite number.")


def check_count(what: str, value: int, least: int = 0) -> None:
    """Refuse numbers that count nothing: those below the least, and those of more than 53 bits."""
    if not least <= value < 2**53:
        shown = value if abs(value) < 10**30 else "a number of many digits"
        raise InputError(f"{what} is {shown}. Give a number of at least {least}.")
