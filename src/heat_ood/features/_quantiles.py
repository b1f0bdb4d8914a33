"""An exact quantile of more values than fit into memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..errors import InputError
from ._spaces import working_dtype

__all__ = ["quantile"]

DIGIT = 16


def quantile(values: Callable[[], Iterable[Tensor]], q: float) -> float:
    r"""The ``q``-quantile of all entries of a stream, interpolated between its two neighbours as NumPy does.

    .. math:: x_{(k)} + g \, (x_{(k+1)} - x_{(k)}), \qquad k + g = q \, (n - 1), \quad 0 \le g < 1

    A float sorts as its bits do. Each pass counts the next 16 bits of those values that share the bits found so far,
    so the order statistic is exact after two passes in float32, four in float64, and a histogram is all that is held.

    Args:
        values: gives the stream afresh at each call: tensors of any shape, without NaN.
        q: in [0, 1].

    Example:
        >>> quantile(lambda: iter([torch.tensor([3.0, 1.0]), torch.tensor([2.0, 9.0])]), 0.5)
        2.5
    """
    if not 0 <= q <= 1:
        raise InputError(f"A quantile lies between 0 and 1, not at {q}. Divide a percentage by 100.")
    first = next((x for x in values() if x.numel()), None)
    if first is None:
        raise InputError("There is no quantile of no values. Pass at least one sample.")
    number = working_dtype(first)

    base, rank, position = -(1 << DIGIT - 1), -1, 0.0
    for shift in reversed(range(0, torch.finfo(number).bits, DIGIT)):
        counts = torch.stack([histogram((keys(x.to(number)) >> shift) - base) for x in values()]).sum(0)
        if rank < 0:
            position = q * (int(counts.sum()) - 1)
            rank = math.floor(position)
        reached = counts.cumsum(0)
        digit = int(torch.searchsorted(reached, rank, right=True))
        rank -= int(reached[digit] - counts[digit])
        base = (base + digit) << DIGIT
    lower = value(base >> DIGIT, number)

    share = position - math.floor(position)
    if share == 0 or rank + 1 < int(counts[digit]):
        return lower
    above = (x[x > lower] for x in values())
    return lower + share * (min(float(x.min()) for x in above if x.numel()) - lower)


def keys(x: Tensor) -> Tensor:
    """Integers in the order of the floats."""
    whole = torch.int64 if x.dtype == torch.float64 else torch.int32
    bits = (x + 0.0).contiguous().view(whole)  # adding zero makes minus zero plus zero
    return torch.where(bits < 0, bits ^ torch.iinfo(whole).max, bits).long()


def value(key: int, dtype: torch.dtype) -> float:
    """The float that has this key."""
    whole = torch.int64 if dtype == torch.float64 else torch.int32
    bits = key if key >= 0 else key ^ torch.iinfo(whole).max
    return float(torch.tensor(bits, dtype=whole).view(dtype))


def histogram(digits: Tensor) -> Tensor:
    """How often each digit occurs; what is no digit has other leading bits than those sought."""
    return torch.bincount(digits[(digits >= 0) & (digits < 1 << DIGIT)], minlength=1 << DIGIT)
