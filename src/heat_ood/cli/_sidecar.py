"""The file beside a feature store, ``NAME.json``: which images, classes and preprocessing it was made with."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

from ..errors import FormatError, InputError
from ..files import Format, Mirror, write

__all__ = ["check_sidecar", "merge_sidecars", "merge_sidecars_at", "names_of", "read_sidecar", "write_sidecar"]

FORMAT = Format("heat-ood images", 1)
KINDS: dict[str, type] = {"model": str, "images": str, "files": list, "sources": list, "classes": list}
KINDS |= {"kinds": list, "preprocessing": dict, "skipped": dict}
"""What each entry is, where it is there."""
COMPARED = ("count", "classes", "files", "sources", "checksums", "preprocessing")


def path_of(store: Path) -> Path:
    return store.with_name(store.name + ".json")


def read_sidecar(store: Path) -> dict[str, Any] | None:
    """What is beside the store; None where there is nothing of this format, or nothing that can be meant."""
    try:
        found = FORMAT.read(path_of(store), "", "")
    except (OSError, FormatError):
        return None
    return found if all(fits(found.get(name), kind) for name, kind in KINDS.items()) else None


def fits(value: Any, kind: type) -> bool:
    """Whether a value is of a type, or there is none; lists are of text."""
    if isinstance(value, list):
        return kind is list and all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, kind)


def write_sidecar(store: Path, record: dict[str, Any]) -> None:
    """Replace the file in one step; one of another format is left alone."""
    file = path_of(store)
    if file.exists() and read_sidecar(store) is None:
        raise FormatError(f"{file} is in the way: it is not of this format. Move it, or choose another --out.")
    write(file, json.dumps(FORMAT.stamp(record), indent=1, ensure_ascii=False) + "\n")


def check_sidecar(store: Path, record: dict[str, Any]) -> bool:
    """Whether a store that was begun has its file; an error if other images or preprocessing are used now."""
    known = read_sidecar(store)
    if known is None:
        return False
    before = {**known, "preprocessing": with_size(known.get("preprocessing"), record.get("preprocessing"))}
    different = [key for key in COMPARED if before.get(key) != record.get(key)]
    if different:
        raise InputError(
            f"The features in {store} were begun with other images or preprocessing ({', '.join(different)} differ). "
            "Choose another --out, or pass --overwrite to start anew."
        )
    return True


def merge_sidecars(store: Path, shards: int) -> None:
    """What all shards of a store were made of, beside it; the names of the images stay beside the shards."""
    from ..features import shard_name

    first = read_sidecar(store / shard_name(0))
    if first is None:
        return
    common: dict[str, Any] = {
        key: first[key] for key in ("model", "images", "classes", "preprocessing") if key in first
    }
    skipped: dict[str, str] = {}
    for number in range(shards):
        skipped |= (read_sidecar(store / shard_name(number)) or {}).get("skipped") or {}
    write_sidecar(store, {**common, "files": None, **({"skipped": skipped} if skipped else {})})


def merge_sidecars_at(url: str) -> int:
    """The same for a store elsewhere: those of its shards are fetched, and the one of all is sent; how many shards."""
    from ..features import copy_of, read_closing, shard_name

    mirror = copy_of(url)
    count = len(read_closing(mirror.local)[0].members)
    for number in range(count):
        with suppress(FileNotFoundError):
            mirror.fetch(f"{shard_name(number)}.json", again=True)
    merge_sidecars(mirror.local, count)
    if path_of(mirror.local).exists():
        mirror.send_beside(".json")
    return count


def names_of(store: Path, size: int) -> Sequence[str] | None:
    """The name of each sample of a store, if it is known; of a store of shards it is read where it is asked for."""
    from ..features import copy_of, is_sharded, read_closing
    from ..files import url_of

    url, mirror = url_of(store), None
    if url is not None:
        mirror = copy_of(url)
        mirror.fetch_beside(".json")
        store = mirror.local
    if is_sharded(store):
        counts = [member.samples for member in read_closing(store)[0].members]
        names = ShardNames(store, counts, mirror=mirror)
        return names if names.known(0) is not None else None
    files = (read_sidecar(store) or {}).get("files")
    return files if files is not None and len(files) == size else None


class ShardNames(Sequence[str]):
    """The names of the samples of a store of shards; those of one shard are in memory at a time."""

    def __init__(
        self, store: Path, counts: Sequence[int], rows: range | None = None, mirror: Mirror | None = None
    ) -> None:
        self.store, self.counts, self.mirror = store, list(counts), mirror
        self.starts = [0, *accumulate(counts)]
        self.rows = range(self.starts[-1]) if rows is None else rows
        self.held: tuple[int, list[str]] = -1, []

    def known(self, number: int) -> list[str] | None:
        """The names of a shard's samples."""
        from ..features import shard_name

        if self.mirror is not None:
            with suppress(FileNotFoundError):
                self.mirror.fetch(f"{shard_name(number)}.json")
        files = (read_sidecar(self.store / shard_name(number)) or {}).get("files")
        return files if files is not None and len(files) == self.counts[number] else None

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> ShardNames: ...
    def __getitem__(self, index: int | slice) -> str | ShardNames:
        if isinstance(index, slice):
            return ShardNames(self.store, self.counts, self.rows[index], self.mirror)
        row = self.rows[index]
        number = bisect_right(self.starts, row) - 1
        if self.held[0] != number:
            self.held = number, self.known(number) or [""] * self.counts[number]
        return self.held[1][row - self.starts[number]]


def with_size(known: Any, now: Any) -> Any:
    """The preprocessing with today's size, where an earlier version wrote down none for images as they are."""
    if isinstance(known, dict) and isinstance(now, dict) and known.get("size", ...) is None:
        return {**known, "size": now.get("size")}
    return known
