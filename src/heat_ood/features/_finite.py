"""Features that are no numbers, found before anything is learned from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import InputError
from ._columns import column_name
from ._features import Features

__all__ = ["check_finite"]

BATCH = 1024


def check_finite(features: Features, names: Sequence[str], what: str) -> None:
    """Refuse NaN and infinities in some columns, with how many samples have them, and the first.

    One pass, a batch in memory at a time. A batch is summed, which costs as much as reading it; only where the sum is
    not finite is each number looked at.

    Args:
        features: the samples.
        names: of the columns that are read; logits that follow from the head are as finite as ``avg``.
        what: the samples, for the error.
    """
    counts: dict[str, int] = {}
    firsts: dict[str, int] = {}
    for number, batch in enumerate(features.only(names).batches(BATCH)):
        for key, column in batch.columns.items():
            if torch.isfinite(column.sum(dtype=torch.float64)):
                continue
            bad = (~torch.isfinite(column).all(1)).nonzero()
            if len(bad):
                name = column_name(key)
                counts[name] = counts.get(name, 0) + len(bad)
                firsts.setdefault(name, features.number_of(number * BATCH + int(bad[0])))
    if counts:
        found = "; ".join(
            f"{name} is not finite (NaN or infinite) in sample {firsts[name]}, the first of {count:,} such"
            for name, count in counts.items()
        )
        raise InputError(
            f"Of {len(features):,} {what}: {found}. Drop these samples, or extract again in float32 (half precision "
            "overflows above 65,504)."
        )
