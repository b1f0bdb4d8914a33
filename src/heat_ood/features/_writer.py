"""Features written batch by batch: a kill at any moment loses a batch at most, and nothing of what was there before."""

from __future__ import annotations

import itertools
import os
import time
import warnings
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ..errors import Argument, InputError, Notice
from ..files import locked, sweep
from ._appending import Appender, write_whole
from ._arrays import arrays_of, as_numpy, column_of, head_columns, numbered, summary
from ._columns import Head
from ._features import Features
from ._folder import akin, check_empty, check_foreign, finished_at, manifest_or_none, settle, unnamed
from ._identity import same_samples
from ._journal import JOURNAL, records
from ._manifest import FEATURES_FILE, NEXT_FILE, Column, Manifest, find, read_manifest, write_manifest
from ._mapped import Numpy, checksum_of
from ._regular import remove
from ._seen import Seen
from ._shard import Shard
from ._stamps import Stamps

__all__ = ["Writer"]

OVERWRITE = Argument("overwrite", True)
ELSEWHERE = ("Choose another path, or pass ", OVERWRITE, ".")
PATIENCE = 8.0
"""Seconds to wait for another writer: the workers of one that was killed keep its lock for up to five."""


class Writer:
    """Append batches of features to a folder; what is there survives a kill at any moment.

    Every batch is appended to the files first and enters the journal after. Opened again, the writer cuts the files
    back to what the journal counts and goes on; ``manifest.count`` samples are done. Where a finished store is to be
    overwritten, the new one is made beside it, and takes its place in one step when it is finished. Meanwhile no one
    else can write there; a finished store that is only looked at is not locked.

    Args:
        path: a folder.
        fingerprint: of the model.
        overwrite: begin anew, whatever is there.
        origin: what the samples are, where they are not the loader's own.
        seen: what else is known of them.
        resumable: keep account of each batch; else a run that is killed begins anew.
        shard: which part of all samples these are, where they are one.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Writer(folder) as writer:
        ...         writer.append(Features(avg=np.ones((3, 2))))
        ...         writer.append(Features(avg=np.ones((1, 2))))
        ...         writer.finish()
        ...     Features.open(folder)
        Features(n=4, avg=2)
    """

    def __init__(
        self,
        path: str | PathLike[str],
        fingerprint: str | None = None,
        *,
        overwrite: bool = False,
        origin: str = "",
        seen: Seen | None = None,
        resumable: bool = True,
        shard: Shard | None = None,
    ) -> None:
        self.folder, self.resumable = Path(path), resumable
        self._file = FEATURES_FILE
        self._appender: Appender | None = None
        self._stamps: Stamps | None = None
        self._stamped = 0, 0
        self._stack = ExitStack()
        asked = Manifest(fingerprint, origin=origin, seen={} if seen is None else seen.to_dict(), shard=shard)
        try:
            done = None if overwrite else finished_at(self.folder, asked)
            if done is None:
                self._lock()
                self.manifest = self._overwritten(asked) if overwrite else self._continued(asked)
            else:
                self.manifest = done
            self._check(asked)
        except BaseException:
            self._stack.close()
            raise

    # What is there already

    def _lock(self) -> None:
        """Be the only writer, and remove what killed ones left."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._stack.enter_context(locked(self.folder, wait=False))
                break
            except InputError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        for file in (FEATURES_FILE, NEXT_FILE):
            sweep(self.folder / file)
        check_empty(self.folder)
        settle(self.folder)

    def _continued(self, asked: Manifest) -> Manifest:
        if not (self.folder / FEATURES_FILE).exists():
            write_manifest(asked, self.folder)
            return asked
        manifest, coming = read_manifest(self.folder), manifest_or_none(self.folder, NEXT_FILE)
        if manifest.finished and coming is not None and akin(coming, asked):
            self._file, manifest = NEXT_FILE, coming
        return manifest

    def _overwritten(self, asked: Manifest) -> Manifest:
        check_foreign(self.folder)
        now, coming = (manifest_or_none(self.folder, file) for file in (FEATURES_FILE, NEXT_FILE))
        remove(self.folder / JOURNAL)  # first: a journal without its manifest counts nothing
        if coming is not None:
            for name in set(coming.files) - set([] if now is None else now.files):
                remove(self.folder / name)
        if now is not None and now.finished:
            self._file = NEXT_FILE
            asked = replace(asked, replaces=now.files)
        elif now is not None:  # its files stay on the list of what is ours until they are gone
            asked = replace(asked, columns=now.columns, head=now.head, classes=now.classes)
        write_manifest(asked, self.folder, self._file)
        if self._file != NEXT_FILE:
            remove(self.folder / NEXT_FILE)
        if left := unnamed(self.folder, asked):
            warnings.warn(
                Notice(f"{self.folder} also holds {left[0]}, which no manifest names as one of its files. It stays."),
                stacklevel=5,
            )
        return asked

    def _check(self, asked: Manifest) -> None:
        """What goes on must be of the same model and the same samples."""
        manifest = self.manifest
        if not manifest.count and not manifest.finished:  # nothing yet that could be mixed
            manifest.fingerprint, manifest.origin, manifest.seen = asked.fingerprint, asked.origin, asked.seen
            manifest.shard = asked.shard
        if manifest.fingerprint != asked.fingerprint:
            raise InputError(
                f"The features in {self.folder} were made by another model, or with other layers "
                f"(fingerprint {str(manifest.fingerprint)[:12]}, now {str(asked.fingerprint)[:12]}). ",
                *ELSEWHERE,
            )
        if manifest.origin != asked.origin:
            there, now = (text or "as the loader gives them" for text in (manifest.origin, asked.origin))
            raise InputError(f"The features in {self.folder} are of other samples ({there}; now {now}). ", *ELSEWHERE)
        if manifest.shard != asked.shard:
            there, now = ("all samples" if one is None else one.described() for one in (manifest.shard, asked.shard))
            raise InputError(
                f"The features in {self.folder} are of another part of the samples ({there}; now {now}). Cut the same "
                "samples into the same number of shards. ",
                *ELSEWHERE,
            )
        if not manifest.finished:
            manifest.seen = Seen.read({**asked.seen, **manifest.seen}).to_dict()

    def check_seen(self, seen: Seen, stamps: Callable[[], Stamps | None] = lambda: None) -> None:
        """The samples must be those that the store was begun with, as far as it can be known, prepared alike.

        Args:
            seen: what is known of them now.
            stamps: of each sample in order. By them those that are written can be told from those that are not, so that
                an image that could not be read can be replaced, and an interrupted run goes on.
        """
        before = Seen.read(self.manifest.seen)
        before.check(seen)
        same = same_samples(before.samples, seen.samples)
        if not self.manifest.finished:
            self._stamps = stamps()
            if same == "changed" and self._written_are_unchanged():
                self.manifest.seen["samples"], same = seen.samples, "same"
        if same == "changed":
            raise InputError(
                f"The samples of {seen.source or 'the loader'} have changed since the features in {self.folder} were "
                "made: other contents, sizes or times of change. ",
                *ELSEWHERE,
                " If only the times are others, Features.open(…) opens the features as they are.",
            )
        if same == "others":
            where = f" ({before.source}; now {seen.source})" if before.source != seen.source else ""
            raise InputError(f"The features in {self.folder} are of other samples{where}. ", *ELSEWHERE)

    def _written_are_unchanged(self) -> bool:
        known = None
        for record in records(self.folder, find(self.folder, self._file).key):
            known = record.stamps
        return known is not None and known == self._stamp(self.manifest.count)

    def _stamp(self, count: int) -> int | None:
        """The checksum of the stamps of so many samples, as far as the loader knows them, from that of fewer."""
        if self._stamps is None:
            return None
        start, checksum = self._stamped if self._stamped[0] <= count else (0, 0)
        self._stamped = count, zlib.crc32(self._stamps[start:count].tobytes(), checksum)
        return self._stamped[1]

    # Batches

    def append(self, features: Features) -> None:
        """Write one batch; labels and columns must be the same in every batch."""
        if self.manifest.finished:
            raise InputError(f"The features in {self.folder} are finished. ", *ELSEWHERE)
        arrays = arrays_of(features)
        columns = [column_of(key, array, i) for i, (key, array) in enumerate(arrays.items())]
        if self.manifest.count and [c.kind for c in columns] != [c.kind for c in self.manifest.columns]:
            raise InputError(
                f"This batch has the columns {summary(columns)}, but {self.folder} holds "
                f"{summary(self.manifest.columns)}. "
                "Extract with the settings and labels that it was begun with, or pass ",
                OVERWRITE,
                ".",
            )
        try:
            appender = self._opened() if self.manifest.count else self._begin(columns, features.head)
            appender.append(list(arrays.values()), len(features), self._stamp(self.manifest.count + len(features)))
        except BaseException:
            self._let_go()  # whatever half of a batch is there is cut off when it is opened again
            raise
        self.manifest.add_batch(len(features))

    def _begin(self, columns: list[Column], head: Head | None) -> Appender:
        """Name the files first, in the manifest, so that they are known to be ours, and make them then."""
        self._let_go()
        for name in (JOURNAL, *self.manifest.files):
            remove(self.folder / name)
        weights = {} if head is None else dict(zip(head_columns(head), map(as_numpy, head), strict=True))
        there = set(os.listdir(self.folder))
        wanted = [*columns, *weights]
        number = next(n for n in itertools.count() if not there & {numbered(c, n).file for c in wanted})
        columns, named = ([numbered(c, number) for c in some] for some in (columns, weights))
        arrays = list(weights.values())
        self.manifest.columns, self.manifest.head = columns, named
        self.manifest.classes = len(arrays[0]) if arrays else 0
        self.manifest.checksums = {c.file: checksum_of(a.tobytes()) for c, a in zip(named, arrays, strict=True)}
        key = write_manifest(self.manifest, self.folder, self._file)
        for column, array in zip(named, arrays, strict=True):
            write_whole(self.folder, column, array)
        self._appender = Appender.begin(self.folder, columns, key if self.resumable else None)
        return self._appender

    def _opened(self) -> Appender:
        if self._appender is None:
            if not self.resumable:
                raise InputError(f"Writing to {self.folder} failed before. Begin anew.")
            self._appender = Appender.resume(self.folder, self.manifest, find(self.folder, self._file).key)
        return self._appender

    def labels(self) -> Numpy | None:
        """The labels written so far."""
        return self._opened().labels() if self.manifest.count else None

    def finish(self) -> None:
        """Give the files their final shape and declare the store finished; what it replaces goes."""
        if not self.manifest.columns:
            raise InputError(f"Nothing was written to {self.folder}. Append a batch before it is finished.")
        self.manifest.checksums |= self._opened().finish()
        self.manifest.finished, self.manifest.replaces = True, []
        write_manifest(self.manifest, self.folder)
        self._let_go()
        settle(self.folder)
        self.close()

    def discard(self) -> None:
        """Remove what was begun, as far as it is not finished."""
        self._let_go()
        if not self.manifest.finished:
            for name in (JOURNAL, *self.manifest.files, self._file):
                remove(self.folder / name)

    def _let_go(self) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None

    def close(self) -> None:
        self._let_go()
        self._stack.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
