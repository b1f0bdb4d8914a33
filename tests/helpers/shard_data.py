"""Features cut into shards, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heat_ood.features import Features, merge_shards, shard_name


def cut(features: Features, folder: Path, sizes: Sequence[int]) -> Path:
    """Save features as shards of these sizes, not closed."""
    start = 0
    for number, size in enumerate(sizes):
        features[start : start + size].save(folder / shard_name(number))
        start += size
    assert start == len(features)
    return folder


def sharded(features: Features, folder: Path, sizes: Sequence[int]) -> Features:
    """The same, closed and opened."""
    return merge_shards(cut(features, folder, sizes))
