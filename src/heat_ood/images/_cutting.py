"""Which images of a set are taken: some of them, spread evenly, and of these one part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

__all__ = ["Cut", "chosen_rows", "spread"]

Cut: TypeAlias = Callable[[int], range]
"""From how many there are to the block of them that is a part, as ``Shard(3, 64).block`` says."""


def spread(n: int, limit: int | None) -> Sequence[int]:
    """So many of n rows, spread evenly; all of them where there is no limit."""
    return range(n) if limit is None or limit >= n else [i * n // limit for i in range(limit)]


def chosen_rows(n: int, limit: int | None, part: Cut | None) -> tuple[Sequence[int], tuple[int, int] | None]:
    """The rows that are taken of n and, of a part, the number of its first and how many all parts have."""
    rows = spread(n, limit)
    if part is None:
        return rows, None
    block = part(len(rows))
    return rows[block.start : block.stop], (block.start, len(rows))
