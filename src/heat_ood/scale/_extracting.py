"""Shards that many machines make: what is finished is left alone, and at the end the store is closed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import FormatError
from ..features import FEATURES_FILE, Features, Shard, merge_shards, read_manifest, shard_name
from ._engine import Engine
from ._outcome import Outcome

__all__ = ["extract", "unfinished"]

Make = Callable[[], Callable[[Shard], Any]]


def extract(
    make: Make, folder: str | PathLike[str], shards: int, engine: Engine, *, progress: bool = True
) -> tuple[Features, Outcome]:
    """Extract the shards of a store on many machines, and close it.

    Args:
        make: called once by each worker: it loads the model and gives a function that extracts the shard that it is
            given into ``folder``, as ``lambda shard: extractor.extract(loader, folder, shard=shard)`` does. It must be
            importable on the workers.
        folder: of the store, which all machines see under the same path.
        shards: how many parts the samples are cut into.
        engine: where the workers are.
        progress: show a bar, on a terminal.

    Returns:
        The store, opened as one, and what the workers did. Where shards failed, the others are done, and the error
        says which; the same call goes on from there.
    """
    root = Path(folder).absolute()
    prepare = partial(prepared, make, root, shards)
    outcome = engine.run(prepare, unfinished(root, shards), title="extract", progress=progress).check()
    return merge_shards(root), outcome


def unfinished(folder: Path, shards: int) -> list[int]:
    """The numbers of the shards that are still to be made."""
    return [number for number in range(shards) if not finished(folder / shard_name(number))]


def finished(shard: Path) -> bool:
    if not (shard / FEATURES_FILE).exists():
        return False
    try:
        return read_manifest(shard).finished
    except FormatError:
        return False  # whoever makes it will say what is wrong


def prepared(make: Make, folder: Path, shards: int) -> Callable[[int], dict[str, int]]:
    """What a worker does when it starts."""
    return partial(one, make(), folder, shards)


def one(do: Callable[[Shard], Any], folder: Path, shards: int, number: int) -> dict[str, int]:
    """Make a shard, and say how many samples it has."""
    do(Shard(number, shards))
    return {"samples": read_manifest(folder / shard_name(number)).count}
