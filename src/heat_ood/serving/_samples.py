"""Samples on their way to the judge: what was uploaded, decoded and grouped by shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..guarding import Judge, Judged

__all__ = ["PIXELS", "Floats", "Part", "Samples", "joined", "judged_by", "rows_of"]

Floats = np.ndarray[Any, Any]
PIXELS = "pixels"
"""The name of what is judged as images; features have the names of their columns."""


@dataclass(frozen=True)
class Part:
    """Samples of one shape that are judged together, by column, each (n, …)."""

    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def kind(self) -> tuple[Any, ...]:
        """Parts of one kind can be joined."""
        return tuple((name, column.shape[1:], column.dtype.str) for name, column in sorted(self.columns.items()))


@dataclass(frozen=True)
class Samples:
    """All of a request: names in its order, and parts with the places of their samples in it."""

    names: Sequence[str | None]
    parts: Sequence[tuple[Part, Sequence[int]]]

    @property
    def bytes(self) -> int:
        return sum(column.nbytes for part, _ in self.parts for column in part.columns.values())


def joined(parts: Sequence[Part]) -> Part:
    """Parts of one kind as one."""
    if len(parts) == 1:
        return parts[0]
    return Part({name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns})


def judged_by(judge: Judge, part: Part) -> Judged:
    """What the judge says of a part."""
    if PIXELS in part.columns:
        return judge.judge(part.columns[PIXELS])
    return judge.judge_features(part.columns)


def rows_of(judged: Judged, start: int, end: int) -> Judged:
    """What was said of some of the samples."""
    return replace(
        judged,
        logits=None if judged.logits is None else judged.logits[start:end],
        score=judged.score[start:end],
        p_value=None if judged.p_value is None else judged.p_value[start:end],
        energies={name: values[start:end] for name, values in judged.energies.items()},
    )
