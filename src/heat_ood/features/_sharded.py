"""A store of shards, opened as one: its manifest is read, and the files of a shard where they are first touched."""

from __future__ import annotations

import threading
from operator import itemgetter
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from ..errors import FormatError, InputError
from ..files import Mirror
from ._closing import Closing, read_closing
from ._columns import Head, check_head, check_labels, column_name
from ._features import Features
from ._kept import Contents, Known
from ._mapped import DESCRIPTORS, load
from ._pieces import Bytes, Numbers, Part, Pieces
from ._seen import Seen
from ._shard import shard_name, shards_in

__all__ = ["Shards", "open_shards"]

MAPS = min(32_768, DESCRIPTORS)
"""Files of all stores of shards that are mapped at a time; Linux allows a process 65,530 maps by default."""
STORED: WeakSet[Opened] = WeakSet()
LOCK = threading.Lock()


class Opened:
    """The files of one column, mapped as they are touched.

    Args:
        store: that they are of.
        column: its number.
    """

    def __init__(self, store: Shards, column: int) -> None:
        self.store, self.column = store, column
        self.held: dict[int, Part] = {}
        self.views: list[memoryview | None] = [None] * len(store.closing.members)
        self.addresses = np.zeros(len(self.views), np.int64)
        STORED.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Opened, (self.store, self.column)  # maps do not travel to another process: it opens them by itself

    def __call__(self, number: int) -> Part:
        """The rows that a shard has; the oldest maps go where there are too many."""
        found = self.held.get(number)
        if found is None:
            found = Part.of(self.store.load(self.column, number))
            with LOCK:
                while sum(len(one.held) for one in STORED) >= MAPS:
                    most = max(STORED, key=lambda one: len(one.held))
                    oldest = next(iter(most.held))
                    most.views[oldest], most.addresses[oldest] = None, 0
                    del most.held[oldest]
                self.held[number], self.views[number] = found, found.bytes
                self.addresses[number] = found.rows.data_ptr()
        return found

    def at(self, numbers: Numbers, places: Numbers, row: int) -> Bytes | None:
        """See :class:`Parts`: all maps are looked at as one long array of bytes, of which rows are taken."""
        with LOCK:
            starts = self.addresses[numbers]
            if not starts.all():
                return None
            held = itemgetter(*numbers.tolist())(self.views)  # a map that goes meanwhile is not undone before the end
        where = starts + places
        first = int(where.min())
        found: Bytes = Memory(first, int(where.max()) - first + 1, row).rows()[where - first]
        del held
        return found


class Memory:
    """Bytes of this process from an address on, as rows that begin at each of them; only some are there to be read."""

    def __init__(self, address: int, places: int, row: int) -> None:
        kind = {"typestr": f"|V{row}", "shape": (places,), "strides": (1,)}
        self.__array_interface__ = {"data": (address, True), **kind, "version": 3}

    def rows(self) -> Bytes:
        return np.asarray(self)


class Shards:
    """A store of shards by its manifest.

    Args:
        folder: of the store.
        mirror: what the folder is a copy of, where the store is elsewhere; files are fetched where they are touched.
    """

    def __init__(self, folder: Path, mirror: Mirror | None = None) -> None:
        self.folder, self.mirror = folder, mirror
        self.closing, self.key = read_closing(folder)
        self.starts = np.cumsum([0, *(member.samples for member in self.closing.members)], dtype=np.int64)
        there = shards_in(folder) if mirror is None else None
        missing = [shard_name(i) for i in range(len(self.closing.members)) if there is not None and i not in there]
        if missing:
            raise FormatError(
                f"{folder} lacks {missing[0]}{f' and {len(missing) - 1:,} more' if missing[1:] else ''} of "
                f"{len(self.closing.members):,} shards. Copy the whole folder, or extract the shard again and close "
                "the store with heat-ood merge."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards, (self.folder, self.mirror)

    def fetched(self, number: int, file: str) -> None:
        """See that a file is here, where the store is elsewhere."""
        if self.mirror is not None:
            name = f"{shard_name(number)}/{file}"
            try:
                self.mirror.fetch(name)
            except FileNotFoundError:
                raise FormatError(f"{self.mirror.url}/{name} is missing. ") from None

    def load(self, column: int, number: int, verify: bool = False) -> Tensor:
        """The file of a column in a shard, mapped and checked; ``verify`` reads all of it."""
        closing, folder = self.closing, self.folder / shard_name(number)
        described, checksum = closing.column_of(number, column)
        try:
            self.fetched(number, described.file)
            rows = load(folder, described, closing.members[number].samples, checksum, verify, held=False)
            if described.pooling == "labels" and len(rows) and int(rows.max()) > closing.largest:
                raise FormatError(f"{folder} has labels above {closing.largest:,}, the largest of the store. ")
        except FormatError as error:
            raise FormatError(
                *error.parts, f" If {folder.name} was made again since, close the store anew with heat-ood merge."
            ) from None
        return rows

    def verify(self) -> None:
        """Read all files and compare their checksums."""
        for number in range(len(self.closing.members)):
            for column in range(len(self.closing.columns)):
                self.load(column, number, verify=True)

    def features(self, verify: bool) -> Features:
        """All shards as one feature set."""
        closing: Closing = self.closing
        pieces = {
            column_name((c.layer, c.pooling)): Pieces(
                Opened(self, i), self.starts, c.width, torch.from_numpy(np.empty(0, c.dtype)).dtype
            )
            for i, c in enumerate(closing.columns)
        }
        labels = pieces.pop("labels", None)
        first = self.folder / shard_name(0)
        for column in closing.head:
            self.fetched(0, column.file)
        weights = [
            load(first, c, closing.classes, known, verify)
            for c, known in zip(closing.head, closing.head_checksums, strict=True)
        ]
        head = Head(*weights) if weights else None
        try:
            if head is not None:
                check_fit(head, pieces.get("avg"), pieces.get("logits"))
            if labels is not None:
                outputs = pieces.get("logits")
                classes = closing.classes or (None if outputs is None else outputs.width)
                check_labels(torch.tensor([closing.largest]), max(classes or 0, closing.count))
        except InputError as error:
            raise FormatError(f"The files in {self.folder} do not fit together: {error}") from None
        seen = Seen.read(closing.seen) if closing.seen else None
        features = Features.unchecked(pieces, labels, head, closing.fingerprint, seen)
        known = features.classes if head is not None or "logits" in pieces else None
        return features.standing_for(self.moments(known or closing.largest + 1))

    def moments(self, classes: int) -> Known:
        """What is known of all samples from the moments that are kept beside the shards."""
        closing, names = self.closing, [column_name((c.layer, c.pooling)) for c in self.closing.columns]
        head = tuple(one.sha256 for one in closing.head_checksums)
        contents = (
            Contents(m.samples, tuple(zip(names, (one.sha256 for _, one in m.files), strict=True)), head)
            for m in closing.members
        )
        return Known(tuple((self.folder / shard_name(i), c) for i, c in enumerate(contents)), max(1, classes))


def check_fit(head: Head, avg: Pieces | None, logits: Pieces | None) -> None:
    check_head(head)
    classes, width = head.weight.shape
    if (avg is not None and avg.width != width) or (logits is not None and logits.width != classes):
        raise InputError(f"the head is {classes} × {width}.")


def open_shards(folder: Path, verify: bool = False, mirror: Mirror | None = None) -> Features:
    """Open a store of shards; see :meth:`Features.open`."""
    shards = Shards(folder, mirror)
    if verify:
        shards.verify()
    return shards.features(verify)
