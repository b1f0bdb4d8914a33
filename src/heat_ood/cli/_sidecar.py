"""The file beside a feature store, ``NAME.json``: which images, classes and preprocessing it was made with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..files import Format, write

__all__ = ["check_sidecar", "read_sidecar", "write_sidecar"]

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


def with_size(known: Any, now: Any) -> Any:
    """The preprocessing with today's size, where an earlier version wrote down none for images as they are."""
    if isinstance(known, dict) and isinstance(now, dict) and known.get("size", ...) is None:
        return {**known, "size": now.get("size")}
    return known
