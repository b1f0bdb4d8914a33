"""What lies in the folder of a store: the features that stand, those that are to take their place, and what is left."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import FormatError, InputError
from ..files import is_part
from ._journal import JOURNAL
from ._manifest import FEATURES_FILE, FILE_NAME, NEXT_FILE, Manifest, read_manifest
from ._regular import remove

__all__ = ["akin", "check_empty", "check_foreign", "finished_at", "manifest_or_none", "settle", "unnamed"]

OWN = (FEATURES_FILE, NEXT_FILE, JOURNAL)


def check_empty(folder: Path) -> None:
    """A folder without a manifest must hold nothing of anyone else's."""
    if not (folder / FEATURES_FILE).exists() and any(not is_own(file.name) for file in folder.iterdir()):
        raise InputError(f"{folder} exists and holds no features. Choose another path, so that nothing is lost.")


def is_own(name: str) -> bool:
    return name in OWN or any(is_part(name, own) for own in OWN)


def finished_at(folder: Path, asked: Manifest) -> Manifest | None:
    """A finished store that nobody means to replace by what is asked for, and that leaves nothing to tidy up."""
    if not os.path.lexists(folder / FEATURES_FILE):
        return None
    manifest = read_manifest(folder)
    if not manifest.finished:
        return None
    if os.path.lexists(folder / NEXT_FILE):
        coming = manifest_or_none(folder, NEXT_FILE)
        return manifest if coming is not None and not akin(coming, asked) else None
    return None if os.path.lexists(folder / JOURNAL) else manifest


def akin(coming: Manifest, asked: Manifest) -> bool:
    return (coming.fingerprint, coming.origin) == (asked.fingerprint, asked.origin)


def manifest_or_none(folder: Path, file: str) -> Manifest | None:
    """A manifest, if there is a sound one."""
    try:
        return read_manifest(folder, file)
    except FormatError:
        return None


def settle(folder: Path) -> None:
    """Remove what is left of a run that has finished: its journal, and the files of the store that it replaced."""
    manifest, coming = (manifest_or_none(folder, file) for file in (FEATURES_FILE, NEXT_FILE))
    if manifest is None or not manifest.finished:
        return
    if coming is None and not os.path.lexists(folder / NEXT_FILE):
        remove(folder / JOURNAL)
    elif coming is not None and coming.columns == manifest.columns:
        remove(folder / JOURNAL)
        gone = [remove(folder / name) for name in coming.replaces if name not in manifest.files]
        if all(gone):
            remove(folder / NEXT_FILE)


def check_foreign(folder: Path) -> None:
    """Whoever overwrites a folder should know that it holds features alone."""
    foreign = sorted(
        name
        for name in os.listdir(folder)
        if not is_own(name) and not FILE_NAME.fullmatch(name) and not name.startswith(".")
    )
    if foreign:
        raise InputError(
            f"{folder} also holds files that are no features, {foreign[0]} among them. Choose another path, so that "
            "nothing is lost."
        )


def unnamed(folder: Path, manifest: Manifest) -> list[str]:
    """Files that look like those of a store but that it does not name; they are not surely ours, and stay."""
    known = {*manifest.files, *manifest.replaces}
    return sorted(name for name in os.listdir(folder) if FILE_NAME.fullmatch(name) and name not in known)
