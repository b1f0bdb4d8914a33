"""LSUN: a folder of images, or the lmdb database of encoded images that its authors distribute."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from PIL import Image

from ...errors import InputError
from ...images import ImageSet, UnreadableImageError, decode_stream, open_images, spread
from .spec import SetSpec

__all__ = ["DatabaseImages", "open_lsun"]

GET = "https://github.com/fyu/lsun (python3 download.py -c test), unpacked"
FILE, TEST = "data.mdb", "test_lmdb"
OPENED: dict[Path, tuple[int, Any]] = {}
"""By whom and how each database was opened: once in a process, and not shared with the process that it came from."""


class DatabaseImages(ImageSet):
    """Encoded images of an lmdb database, in the order of their keys."""

    def __init__(self, root: Path, limit: int | None) -> None:
        super().__init__(root.resolve(), (), None, None)
        try:
            with self.environment.begin() as transaction:
                self.keys = [bytes(key) for key in transaction.cursor().iternext(keys=True, values=False)]
        except import_lmdb().Error as error:
            raise InputError(f"{root} is no lmdb database, or damaged ({error}). Get it again: {GET}.") from error
        if not self.keys:
            raise InputError(f"The database {root} holds no images. Get it again: {GET}.")
        self.rows = spread(len(self.keys), limit)

    @property
    def environment(self) -> Any:
        process, opened = OPENED.get(self.root, (None, None))
        if process != os.getpid():
            if opened is not None:
                opened.close()
            options = {"readonly": True, "lock": False, "readahead": False, "subdir": self.root.is_dir()}
            OPENED[self.root] = os.getpid(), import_lmdb().open(str(self.root), **options)
        return OPENED[self.root][1]

    def read(self, row: int) -> Image.Image:
        with self.environment.begin() as transaction:
            value = transaction.get(self.keys[row])
        try:
            return decode_stream(io.BytesIO(value))
        except Exception as error:  # Pillow raises almost anything on damaged images
            cause = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
            raise UnreadableImageError(
                f"The entry {self.name(row)} of {self.root} cannot be read as an image ({cause}). Get it again: {GET}."
            ) from error

    def name(self, row: int) -> str:
        return self.keys[row].decode("utf-8", "backslashreplace")

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.name(row) for row in self.rows)

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "files": list(self.files)}


def open_lsun(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    """The database in the folder, in its ``test_lmdb``, or in a file; else the folder's images."""
    path = spec.at(root)
    found = next((p for p in (path, path / TEST) if (p / FILE).is_file()), path if path.suffix == ".mdb" else None)
    if found is not None and (found.is_file() or (found / FILE).is_file()):
        return DatabaseImages(found, limit)
    if not path.is_dir() or not any(path.iterdir()):
        raise spec.missing(path, GET)
    return open_images(path, labels=labels, limit=limit)


def import_lmdb() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise InputError(
            "LSUN's database is read by the package lmdb, which is not installed. Install it with: pip install "
            "'heat-ood[lmdb]', or export the images to a folder."
        ) from error
    return lmdb
