"""Stores elsewhere: a copy of what is read, and what is made here sent, its manifest last."""

from __future__ import annotations

import hashlib

from ..errors import FormatError
from ..files import Mirror
from ._closing import is_sharded
from ._manifest import FEATURES_FILE, read_manifest
from ._shard import NAME

__all__ = ["begun_at", "copy_of", "mirrored_shards", "send_store"]


def copy_of(url: str) -> Mirror:
    """A copy that has the manifest of the store as it is now; made for this manifest, so its files are this store's."""
    latest = Mirror(url, "manifest")
    try:
        data = latest.fetch(FEATURES_FILE, again=True).read_bytes()
    except FileNotFoundError:
        shards = [name for name in latest.names() if NAME.fullmatch(name)]
        why = f"holds {len(shards):,} shards that are not closed: run heat-ood merge {url}"
        why = why if shards else f"holds no features: it has no {FEATURES_FILE}"
        raise FormatError(f"{url} {why}.") from None
    mirror = Mirror(url, hashlib.sha256(data).hexdigest())
    mirror.fetch(FEATURES_FILE)
    if not is_sharded(mirror.local) and not read_manifest(mirror.local).finished:
        raise FormatError(f"The features in {url} are not finished.")
    return mirror


def begun_at(url: str, overwrite: bool) -> tuple[Mirror, bool]:
    """The folder here in which a store for elsewhere is made, and whether it is there already, finished.

    A run that was interrupted goes on in it, on the same machine; of a finished store the manifest is fetched, by which
    it is compared with what is asked for.
    """
    mirror = Mirror(url)
    if overwrite or not mirror.exists(FEATURES_FILE):
        return mirror, False
    mirror.fetch(FEATURES_FILE, again=True)
    return mirror, True


def send_store(mirror: Mirror) -> None:
    """Send a finished store, the manifest last: who sees it finds all files."""
    mirror.send([*read_manifest(mirror.local).files, FEATURES_FILE])


def mirrored_shards(url: str) -> Mirror:
    """A copy of the manifests and the labels of all shards below a URL, which is all that closing them takes."""
    mirror = Mirror(url, "merge")
    names = mirror.names()
    for name in (name for name in names if NAME.fullmatch(name)):
        folder = mirror.local / name
        folder.mkdir(parents=True, exist_ok=True)
        if not mirror.exists(f"{name}/{FEATURES_FILE}"):
            (folder / FEATURES_FILE).unlink(missing_ok=True)
            continue
        manifest = read_manifest(mirror.fetch(f"{name}/{FEATURES_FILE}", again=True).parent)
        for column in manifest.columns if manifest.finished else ():
            if column.pooling == "labels":
                mirror.fetch(f"{name}/{column.file}", again=True)
    for folder in mirror.local.glob("shard-*") if mirror.local.is_dir() else ():
        if folder.name not in names:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    if FEATURES_FILE in names:
        mirror.fetch(FEATURES_FILE, again=True)
    else:
        (mirror.local / FEATURES_FILE).unlink(missing_ok=True)
    return mirror
