"""Encoded images, one after the other in an ``.npz`` file: each is decoded when it is asked for."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...errors import InputError
from ...images import ImageSet, UnreadableImageError, decode_stream, read_encoded, spread
from ...models import called
from .spec import SetSpec

__all__ = ["EncodedImages", "open_encoded"]


class EncodedImages(ImageSet):
    """Images of an ``.npz`` file with ``bytes`` and ``offsets``; the bytes are held in memory, the pixels are not."""

    def __init__(
        self, root: Path, data: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], rows: Sequence[int], targets: Any
    ) -> None:
        super().__init__(root, rows, None if targets is None else targets[list(rows)], None)
        self.data, self.offsets = data, offsets

    def read(self, row: int) -> Image.Image:
        start, end = self.offsets[row : row + 2]
        try:
            return decode_stream(io.BytesIO(self.data[start:end].tobytes()))
        except Exception as error:  # Pillow raises almost anything on damaged images
            cause = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
            raise UnreadableImageError(
                f"Image {row} of {self.root} cannot be read ({cause}). Get the file again, or write it without it."
            ) from error

    @property
    def identity(self) -> dict[str, Any]:
        with zipfile.ZipFile(self.root) as archive:
            sums = {entry.filename: entry.CRC for entry in archive.infolist()}
        return {**super().identity, "checksums": sums, "rows": [int(row) for row in self.rows]}


def open_encoded(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    """All images of a file in its order, or those that the function of the description names, in its."""
    file = spec.at(root)
    if not file.is_file():
        raise spec.missing(file)
    data, offsets, targets = read_encoded(file, labels)
    rows = np.arange(len(offsets) - 1) if spec.rows is None else chosen(spec, spec.rows, file, len(offsets) - 1)
    return EncodedImages(file, data, offsets, [int(rows[i]) for i in spread(len(rows), limit)], targets)


def chosen(spec: SetSpec, function: str, file: Path, count: int) -> np.ndarray[Any, Any]:
    """The numbers that a function returns, if each is of an image and none is named twice."""
    module, _, name = function.partition(":")
    found = np.asarray(called(module, name, spec.folder, {"file": file}))
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        raise InputError(f"{function} returned {found.dtype} of shape {found.shape}. Return whole numbers, (n,).")
    if found.min() < 0 or found.max() >= count or len(np.unique(found)) < len(found):
        raise InputError(
            f"{function} names images from {found.min()} to {found.max()}, or one twice; {file} has {count:,}, from 0. "
            "Name each at most once."
        )
    return found
