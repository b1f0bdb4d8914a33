"""The files of features that are being made: appended to, counted in a journal, and digested as they grow."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import FormatError
from ._journal import JOURNAL, Journal, records
from ._manifest import Checksum, Column, Manifest
from ._mapped import HEADER, Numpy, chunks, ends_of, header, open_column, sha256_of
from ._regular import AGAIN, open_regular, remove

__all__ = ["Appender", "write_whole"]


class Appender:
    """The open files of the columns; a batch is written to them first and enters the journal after.

    Opened again after a kill, they are cut back to what the journal counts. What is left is read once, since a digest
    cannot be kept in a file half-way: it must be what the journal saw, and then the digests go on.

    Args:
        folder: of the store.
        columns: whose files are written.
    """

    def __init__(self, folder: Path, columns: Sequence[Column]) -> None:
        self.folder, self.columns = folder, list(columns)
        self.count, self.checksum = 0, 0
        self.journal: Journal | None = None
        self._stack = ExitStack()
        self._files: list[IO[bytes]] = []
        self._digests = [hashlib.sha256() for _ in columns]

    @classmethod
    def begin(cls, folder: Path, columns: Sequence[Column], key: str | None) -> Appender:
        """New files; without a ``key`` there is no journal, and who is killed begins anew."""
        appender = cls(folder, columns)
        try:
            for column in appender.columns:
                descriptor = open_regular(folder / column.file, os.O_RDWR | os.O_CREAT)
                file = appender._keep(open(descriptor, "r+b"))  # noqa: SIM115 - the stack closes it
                file.write(header(column, 0))
            if key is not None:
                appender._keep_journal(Journal(folder, key))
        except BaseException:
            appender.close()
            raise
        return appender

    @classmethod
    def resume(cls, folder: Path, manifest: Manifest, key: str) -> Appender:
        """The files of an interrupted run, as far as they are counted."""
        appender = cls(folder, manifest.columns)
        try:
            appender._reopen(manifest)
            counted, end = sum(record.size for record in records(folder, key)), 0
            appender._read(manifest.count - counted)  # those of an earlier version, which had no journal
            appender.checksum = 0
            for record in records(folder, key):
                appender.checksum = zlib.crc32(str(record.size).encode(), appender.checksum)
                appender._read(record.size)
                if appender.checksum != record.checksum:
                    raise FormatError(f"The unfinished features in {folder} are damaged. ", *AGAIN)
                end = record.end
            if not end:
                remove(folder / JOURNAL)
            appender._keep_journal(Journal(folder, key, end))
        except BaseException:
            appender.close()
            raise
        return appender

    def _reopen(self, manifest: Manifest) -> None:
        for column in manifest.head:
            check_head(self.folder, column, manifest)
        for column in self.columns:
            path, end = self.folder / column.file, HEADER + manifest.count * column.row
            file = self._keep(open_column(self.folder, column, os.O_RDWR))
            if os.fstat(file.fileno()).st_size < end:
                raise FormatError(f"{path} is shorter than its manifest says. ", *AGAIN)
            if file.read(HEADER) not in (header(column, 0), header(column, manifest.count)):
                raise FormatError(f"{path} has not the header that it was begun with. ", *AGAIN)
        for column, file in zip(self.columns, self._files, strict=True):  # nothing is cut before all are sound
            file.truncate(HEADER + manifest.count * column.row)

    def _read(self, size: int) -> None:
        """Go on over samples that are written."""
        for column, file, digest in zip(self.columns, self._files, self._digests, strict=True):
            for data in chunks(file, size * column.row):
                digest.update(data)
                self.checksum = zlib.crc32(data, self.checksum)
        self.count += size

    def append(self, arrays: Sequence[Numpy], size: int, stamps: int | None = None) -> None:
        """Write one batch; ``stamps`` is the checksum of the stamps of all samples with it."""
        checksum = zlib.crc32(str(size).encode(), self.checksum)
        for array, file, digest in zip(arrays, self._files, self._digests, strict=True):
            data = array.reshape(-1).view(np.uint8).data if array.size else b""
            file.write(data)
            file.flush()
            digest.update(data)
            checksum = zlib.crc32(data, checksum)
        if self.journal is not None:
            self.journal.add(size, checksum, stamps)
        self.checksum = checksum
        self.count += size

    def labels(self) -> Numpy | None:
        """The labels written so far."""
        for column, file in zip(self.columns, self._files, strict=True):
            if column.pooling == "labels" and self.count:
                file.seek(HEADER)
                data = file.read(self.count * column.row)
                return np.frombuffer(data, dtype=column.dtype)
        return None

    def finish(self) -> dict[str, Checksum]:
        """Give the files their final header, wait until they are on the disk, and say their checksums."""
        found = {}
        for column, file, digest in zip(self.columns, self._files, self._digests, strict=True):
            file.seek(0)
            file.write(header(column, self.count))
            file.flush()
            os.fsync(file.fileno())
            found[column.file] = Checksum(digest.hexdigest(), ends_of(file, HEADER + self.count * column.row))
        return found

    def _keep(self, file: IO[bytes]) -> IO[bytes]:
        self._files.append(self._stack.enter_context(file))
        return file

    def _keep_journal(self, journal: Journal) -> None:
        self.journal = journal
        self._stack.callback(journal.close)

    def close(self) -> None:
        self._stack.close()
        self._files.clear()


def write_whole(folder: Path, column: Column, array: Numpy) -> None:
    """Write a file of the head."""
    with open(open_regular(folder / column.file, os.O_RDWR | os.O_CREAT), "r+b") as file:
        file.write(header(column, len(array)) + array.tobytes())
        file.flush()
        os.fsync(file.fileno())


def check_head(folder: Path, column: Column, manifest: Manifest) -> None:
    """The head of an unfinished store must be as it was written; an earlier version's gets its checksum here."""
    size = HEADER + manifest.classes * column.row
    with open_column(folder, column) as file:
        if file.read(HEADER) != header(column, manifest.classes) or os.fstat(file.fileno()).st_size != size:
            raise FormatError(f"{folder / column.file} has not the size that it was begun with. ", *AGAIN)
        found = Checksum(sha256_of(file, size), ends_of(file, size))
    if manifest.checksums.setdefault(column.file, found) != found:
        raise FormatError(f"{folder / column.file} is damaged: its checksum does not match. ", *AGAIN)
