"""A few marks of the samples that a detector was fitted to, so that it can tell when it is calibrated on them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..features import Features
from ..files import restored

__all__ = ["NO_MARKS", "Marks", "known_share", "marks_of"]

MARKED = 64
"""So many of the fitted samples are marked, evenly spaced."""
CHANNELS = 8
"""So many channels make a mark: those that vary most."""
FEWEST = 4
"""With fewer channels, samples that differ may have the same mark."""
TOLERANCE = 1e-3
"""Marks are equal where no channel differs by more, in units of its spread: rounding does not change them."""
CHUNK = 4096


class Marks(NamedTuple):
    """Some channels of some samples."""

    channels: tuple[int, ...] = ()
    rows: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def read(cls, data: Any) -> Marks:
        """From what JSON holds; what :func:`marks_of` cannot have given is an error."""
        found = cls(*restored(tuple[tuple[int, ...], tuple[tuple[float, ...], ...]], data, "marks"))
        few = len(found.channels) <= CHANNELS and len(found.rows) <= MARKED
        even = all(len(row) == len(found.channels) and all(map(math.isfinite, row)) for row in found.rows)
        if not few or not even or not all(0 <= channel < 2**31 for channel in found.channels):
            raise InputError("its marks are not those of samples")
        return found


NO_MARKS = Marks()


def marks_of(features: Features, column: str) -> Marks:
    """The marks of some samples; none where the column does not tell samples apart."""
    n = len(features)
    spaced = torch.linspace(0, n - 1, min(MARKED, n), dtype=torch.float64)
    some = features.only((column,))[torch.unique(spaced.round().long())].column(column)
    if some is None or len(some) < FEWEST:
        return NO_MARKS
    values = some.float().cpu()
    spread = values.std(0).nan_to_num()
    channels = spread.argsort(descending=True, stable=True)[:CHANNELS].sort().values
    if int((spread[channels] > 0).sum()) < FEWEST:
        return NO_MARKS
    return Marks(tuple(channels.tolist()), tuple(map(tuple, values[:, channels].tolist())))


def known_share(marks: Marks, fitted: int, features: Features, column: str) -> float:
    """About which share of these samples is among the ``fitted`` ones that the marks were taken of.

    A sample that the fit saw is a marked one with a chance of ``len(marks.rows) / fitted``.
    """
    rows, found = torch.tensor(marks.rows), 0
    limits = TOLERANCE * rows.std(0).clamp(min=1e-30) if len(rows) else rows
    for batch in features.only((column,)).batches(CHUNK) if len(rows) else ():
        values = batch.column(column)
        if values is not None and values.shape[1] > max(marks.channels):
            found += int(_matches(values[:, list(marks.channels)].float().cpu(), rows, limits))
    return 0.0 if found < 2 else min(1.0, found * fitted / (len(rows) * max(len(features), 1)))


def _matches(values: Tensor, rows: Tensor, limits: Tensor) -> Tensor:
    """How many samples are like a marked one in every channel."""
    alike = torch.ones(len(values), len(rows), dtype=torch.bool)
    for channel in range(values.shape[1]):
        alike &= (values[:, channel, None] - rows[None, :, channel]).abs() <= limits[channel]
    return alike.any(1).sum()
