"""The journal of features that are being made: a line a batch, so that no batch costs more than those before it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import FormatError
from ._regular import AGAIN, open_regular

__all__ = ["JOURNAL", "Journal", "Record", "records", "sizes_in"]

JOURNAL = "manifest.journal"
LINE = re.compile(rb"([0-9]{1,15}) ([0-9a-f]{8})(?: ([0-9a-f]{8}))?\n")


class Record(NamedTuple):
    """A batch that is written whole.

    Args:
        size: its samples.
        checksum: CRC-32 of all batches so far, each as the text of its size and the bytes of its columns.
        stamps: CRC-32 of the stamps of all samples so far, where they are known.
        end: where its line ends.
    """

    size: int
    checksum: int
    stamps: int | None
    end: int


def records(folder: Path, key: str) -> Iterator[Record]:
    """The batches that the journal of a manifest counts; half a line at its end is what a kill left.

    Args:
        folder: of the store.
        key: the digest of the manifest, which the journal bears, so that it is not taken for another one's.
    """
    try:
        descriptor = open_regular(folder / JOURNAL)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as file:
        first = file.readline(len(key) + 1)
        if first != key.encode() + b"\n":
            if not first.endswith(b"\n") and key.encode().startswith(first):
                return
            raise FormatError(f"{folder / JOURNAL} belongs to another manifest. ", *AGAIN)
        end = len(first)
        while line := file.readline(32):
            found = LINE.fullmatch(line)
            if found is None:
                if len(line) < 32 and not line.endswith(b"\n"):
                    return
                raise FormatError(f"{folder / JOURNAL} is damaged at byte {end}. ", *AGAIN)
            end += len(line)
            yield Record(int(found[1]), int(found[2], 16), int(found[3], 16) if found[3] else None, end)


def sizes_in(folder: Path, key: str) -> Iterator[int]:
    """The sizes of the batches alone."""
    return (record.size for record in records(folder, key))


class Journal:
    """The journal, open to be added to.

    Args:
        folder: of the store.
        key: the digest of the manifest that it goes with.
        end: where the last whole line ends; 0 begins a new one.
    """

    def __init__(self, folder: Path, key: str, end: int = 0) -> None:
        self.path = str(folder / JOURNAL)
        descriptor = open_regular(folder / JOURNAL, os.O_RDWR if end else os.O_RDWR | os.O_CREAT)
        self.file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115 - close() closes it
        if end:
            self.file.truncate(end)
            self.file.seek(end)
        else:
            self._write(key)

    def add(self, size: int, checksum: int, stamps: int | None = None) -> None:
        """Count a batch whose bytes are written."""
        self._write(f"{size} {checksum:08x}" + ("" if stamps is None else f" {stamps:08x}"))

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        if self.file.write(data) != len(data):  # half a line is cut off by whoever goes on
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def close(self) -> None:
        self.file.close()
