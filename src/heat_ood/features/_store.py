"""Features on disk: a folder of plain ``.npy`` files and a manifest, replaced in one step and opened memory-mapped."""

from __future__ import annotations

import tempfile
import time
import warnings
from os import PathLike
from pathlib import Path

from ..errors import FormatError, InputError, Notice
from ..files import Mirror, url_of
from ._closing import is_sharded
from ._columns import Head, Layer
from ._features import Features
from ._manifest import FEATURES_FILE, Found, find, read_manifest
from ._mapped import load
from ._merging import refuse_open
from ._regular import AGAIN
from ._remote import copy_of, send_store
from ._seen import Seen
from ._shard import shards_in
from ._sharded import open_shards
from ._writer import Writer

__all__ = ["Writer", "open_store", "save"]

TRIES = 100
"""So often a store is looked at again that a writer has replaced in the meantime."""


def save(features: Features, path: str | PathLike[str], rows: int = 8192) -> None:
    """Write features to a folder, ``rows`` at a time; a store that is there already is replaced once all is written."""
    if (url := url_of(path)) is not None:
        save_remote(features, url, rows)
        return
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} exists and holds no features. Choose another path, so that nothing is lost.")
    if (target / FEATURES_FILE).exists():
        read_manifest(target)
    with Writer(target, features.fingerprint, overwrite=True, seen=features.seen, resumable=False) as writer:
        try:
            for start in range(0, max(len(features), 1), rows):
                writer.append(features[start : start + rows])
            writer.finish()
        except BaseException:
            writer.discard()
            raise


def save_remote(features: Features, url: str, rows: int) -> None:
    """Write features here first, then copy them; the manifest last."""
    with tempfile.TemporaryDirectory(prefix="heat-ood-") as folder:
        mirror = Mirror(url)
        mirror.local = Path(folder) / "store"
        save(features, mirror.local, rows)
        send_store(mirror)


def open_store(path: str | PathLike[str], verify: bool = False) -> Features:
    """Open a finished store, memory-mapped; nothing is read until it is used, and changes stay in memory.

    Sizes, headers and the ends of all files are checked; ``verify`` reads them whole and compares their checksums. A
    writer may replace the store meanwhile: what is opened is then the old one or the new one.
    """
    if (url := url_of(path)) is not None:
        return open_remote(url, verify)
    folder = Path(path)
    if is_sharded(folder):
        return open_shards(folder, verify)
    if not (folder / FEATURES_FILE).exists() and shards_in(folder):
        refuse_open(folder)
    found = find(folder)
    for _ in range(TRIES):
        try:
            features: Features | FormatError = opened(folder, found, verify)
        except FormatError as error:
            features = error
        before, found = found, find(folder)
        if found.state == before.state:
            if isinstance(features, FormatError):
                raise features
            return features
        time.sleep(0.001)
    raise FormatError(f"The features in {folder} are replaced again and again. Wait until their writer is done.")


def open_remote(url: str, verify: bool) -> Features:
    """A store elsewhere: one that is whole is copied; of shards each file is, where it is first touched."""
    mirror = copy_of(url)
    if is_sharded(mirror.local):
        return open_shards(mirror.local, verify, mirror)
    for name in read_manifest(mirror.local).files:
        mirror.fetch(name)
    return open_store(mirror.local, verify)


def opened(folder: Path, found: Found, verify: bool) -> Features:
    """What a manifest says, from files that agree with it."""
    manifest = found.manifest
    if not manifest.finished:
        raise FormatError(
            f"The features in {folder} are not finished ({manifest.count} samples so far). Run extract again with "
            "the same loader; it will continue."
        )
    if verify and not manifest.checksums:
        warnings.warn(
            Notice(f"The features in {folder} have no checksums: an earlier version made them. They are not verified."),
            stacklevel=4,
        )
    elif verify and not found.exact:
        raise FormatError(f"{folder / FEATURES_FILE} is not as it was written. ", *AGAIN)
    columns = {
        (c.layer, c.pooling): load(folder, c, manifest.count, manifest.checksums.get(c.file), verify)
        for c in manifest.columns
    }
    head = [load(folder, c, manifest.classes, manifest.checksums.get(c.file), verify) for c in manifest.head]
    layers = {
        layer: Layer(columns.get((layer, "avg")), columns.get((layer, "std")))
        for layer, _ in columns
        if layer is not None
    }
    first = {pooling: column for (layer, pooling), column in columns.items() if layer is None}
    try:
        known = Seen.read(manifest.seen) if manifest.seen else None
        return Features(
            **first,
            layers=layers,
            head=Head(*head) if head else None,
            fingerprint=manifest.fingerprint,
            seen=known,
        )
    except InputError as error:
        raise FormatError(f"The files in {folder} do not fit together: {error}") from None
