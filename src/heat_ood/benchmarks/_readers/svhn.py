"""SVHN's cropped digits as MATLAB files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...errors import InputError
from ...images import ImageSet, spread
from .spec import SetSpec, checksum

__all__ = ["MatImages", "open_svhn"]

GET = "http://ufldl.stanford.edu/housenumbers/{}_32x32.mat"
PACKED, LARGEST = 50, 1 << 28
"""How many times its bytes the numbers of a file may be, and how many any may have."""
NUMERIC = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "single", "double")


class MatImages(ImageSet):
    """Images (h, w, 3, n) of a MATLAB file."""

    def __init__(self, file: Path, images: np.ndarray[Any, Any], targets: Any, limit: int | None) -> None:
        rows = spread(images.shape[3], limit)
        known = None if targets is None else targets[list(rows)]
        super().__init__(file, rows, known, None if known is None else [str(i) for i in range(10)])
        self.images = images

    def read(self, row: int) -> Image.Image:
        return Image.fromarray(np.ascontiguousarray(self.images[..., row]))

    @property
    def uniform(self) -> bool:
        return True

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "checksums": {self.root.name: checksum(self.root)}}


def open_svhn(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    """``X`` (32, 32, 3, n) and ``y``, 1 to 10, of which 10 is the digit 0."""
    file = spec.at(root) / f"{spec.split}_32x32.mat"
    if not file.is_file():
        raise spec.missing(file, GET.format(spec.split))
    images, y = read_mat(file)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[2] != 3 or not images.shape[3]:
        raise refused(file, f"X is {images.dtype} of shape {images.shape}, not uint8 (32, 32, 3, n)")
    digits = np.asarray(y).reshape(-1)
    if len(digits) != images.shape[3] or not np.isin(digits, np.arange(1, 11)).all():
        raise refused(file, f"y is {np.shape(y)} numbers for {images.shape[3]} images, or not all are 1 to 10")
    return MatImages(file, images, digits.astype(np.int64) % 10 if labels else None, limit)


def read_mat(file: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Plain numbers alone: the kinds of the variables are read first, and objects are not loaded."""
    from scipy.io import loadmat, whosmat

    try:
        listed = whosmat(file)
        kinds = {name: kind for name, _, kind in listed}
        size = sum(math.prod(shape) for name, shape, _ in listed if name in ("X", "y"))
        if size > LARGEST and size > PACKED * file.stat().st_size:
            raise refused(file, f"it unpacks to {size:,} numbers, more than {PACKED} times its bytes")
        if odd := [name for name in ("X", "y") if kinds.get(name) not in NUMERIC]:
            raise refused(file, f"{odd[0]} is {kinds.get(odd[0], 'not in it')}, not numbers")
        found = loadmat(file, variable_names=("X", "y"))
        return found["X"], found["y"]
    except InputError:
        raise
    except Exception as error:  # scipy raises almost anything on damaged files
        raise refused(file, " ".join(str(error).split()) or type(error).__name__) from error


def refused(file: Path, cause: str) -> InputError:
    return InputError(
        f"{file} is not SVHN's file of cropped digits ({cause}). Get it again: {GET.format(file.name.split('_')[0])}."
    )
