"""Several stores of shards as one: last month's and this month's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from ._columns import check_same_model
from ._features import Features
from ._kept import Known
from ._pieces import Bytes, Numbers, Part, Parts, Pieces

__all__ = ["joined"]


class Chain(Sequence[memoryview | None]):
    """The files of several columns, numbered through; as a sequence, the bytes of those that are held now."""

    def __init__(self, columns: Sequence[Pieces]) -> None:
        self.all = [column.parts for column in columns]
        self.firsts: list[int] = np.cumsum([0, *(len(column.starts) - 1 for column in columns)]).tolist()

    def place(self, number: int) -> tuple[Parts, int]:
        """The files that a file is among, and its number there."""
        which = bisect_right(self.firsts, number) - 1
        return self.all[which], number - self.firsts[which]

    @property
    def views(self) -> Sequence[memoryview | None]:
        return self

    def __call__(self, number: int, /) -> Part:
        parts, own = self.place(number)
        return parts(own)

    def at(self, numbers: Numbers, places: Numbers, row: int, /) -> Bytes | None:
        """Rows of several columns at once are left to slices."""
        return None

    def __getitem__(self, number: Any) -> Any:
        parts, own = self.place(number)
        return parts.views[own]

    def __len__(self) -> int:
        return self.firsts[-1]


def joined(stores: Sequence[Features]) -> Features:
    """Stores of shards, one behind the other: opened like one, and their moments known like those of one.

    Args:
        stores: whole, as :meth:`Features.open` gives them; of one model, extracted in the same way.
    """
    first, *others = stores
    for store in others:
        check_same_model(first.fingerprint, store.fingerprint)
        if first.seen is not None:
            first.seen.check(store.seen)
        if store.available != first.available or not same_head(first, store):
            raise InputError(
                f"Stores with different columns or heads do not join: {first!r} and {store!r}. Extract both in the "
                "same way."
            )
    known = [store._moments for store in stores]
    columns: dict[Any, list[Any]] = {key: [store._columns[key] for store in stores] for key in first._columns}
    labels: list[Any] = [store._labels for store in stores]
    whole = all(isinstance(one, Known) for one in known) and all(is_whole(c) for c in [*columns.values(), labels])
    if not whole or any(store._rows is not None for store in stores):
        raise InputError(
            "Only whole stores of shards join: their moments are kept beside the shards. Extract with shard=…, close "
            "the folder with merge_shards, and pass what Features.open gives."
        )
    found = first._derive({key: chained(parts) for key, parts in columns.items()}, chained(labels))
    total: Any = known[0]
    for more in known[1:]:
        total = total + more
    return found.standing_for(total)


def same_head(one: Features, other: Features) -> bool:
    if one.head is None or other.head is None:
        return one.head is other.head
    pairs = list(zip(one.head, other.head, strict=True))
    return all((a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in pairs)


def is_whole(columns: Sequence[Any]) -> bool:
    """Whether each is a column with all its rows, or there is none of them."""
    whole = [isinstance(c, Pieces) and c.chosen is None and c.rows == range(int(c.starts[-1])) for c in columns]
    return all(whole) or all(c is None for c in columns)


def chained(columns: Sequence[Any]) -> Any:
    """Columns one behind the other; None of none."""
    if columns[0] is None:
        return None
    ends = np.cumsum([0, *(column.starts[-1] for column in columns)])
    starts = [column.starts[:-1] + end for column, end in zip(columns, ends, strict=False)]
    return Pieces(Chain(columns), np.concatenate([*starts, ends[-1:]]), columns[0].width, columns[0].dtype)
