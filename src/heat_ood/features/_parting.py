"""The part of a loader that a shard is: a block of its data set's samples, or of a list's batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, Subset

from ..errors import InputError
from ._batches import check_order, similar
from ._shard import Shard, shard_name

__all__ = ["part_of"]


def part_of(loader: Iterable[Any], shard: Shard) -> tuple[Iterable[Any], Shard]:
    """A loader of the samples of a shard alone, and the shard with its place; one that is cut already stays."""
    check_order(loader)
    if shard.first is not None:
        return loader, shard
    if isinstance(loader, list | tuple):
        block = shard.block(len(loader), "batches")
        return loader[block.start : block.stop], shard.at(block.start, len(loader))
    dataset: Any = getattr(loader, "dataset", None)
    plain = type(loader) is DataLoader and type(loader.batch_sampler) is BatchSampler
    if not plain or type(loader.sampler) is not SequentialSampler or not hasattr(dataset, "__len__"):  # type: ignore[attr-defined]
        raise InputError(
            f"A loader of this kind ({type(loader).__name__}) cannot be cut into shards. Pass DataLoader(dataset, "
            "batch_size=…, shuffle=False), or a list of batches; or extract each part with a loader of your own into "
            f"a folder of its own, {shard_name(0)} and on, and close them with merge_shards."
        )
    assert isinstance(loader, DataLoader)
    if loader.drop_last:
        raise InputError("A loader with drop_last would drop samples of every shard. Pass drop_last=False.")
    block = shard.block(len(dataset))
    return similar(loader, Subset(dataset, block)), shard.at(block.start, len(dataset))
