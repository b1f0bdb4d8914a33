"""The demo's digits, letters, pairs of digits and photo patches as images."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ...errors import InputError
from ...images import ImageSet, spread
from .. import digits
from .spec import SetSpec

__all__ = ["open_digits"]

STEP = 15
"""Grey levels a step of the digits' 0 to 16; with a std of 16/17 the network sees what the demo's does."""


class DigitImages(ImageSet):
    """Grey images (n, 8, 8), held in memory."""

    def __init__(self, part: str, images: np.ndarray[Any, Any], targets: Any, limit: int | None) -> None:
        rows = spread(len(images), limit)
        known = None if targets is None else targets[list(rows)]
        super().__init__(Path(part), rows, known, None if known is None else [str(i) for i in range(digits.KNOWN)])
        self.images = images

    def read(self, row: int) -> Image.Image:
        return Image.fromarray(self.images[row])

    @property
    def uniform(self) -> bool:
        return True

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "checksums": {str(self.root): zlib.crc32(self.images.tobytes())}}


def open_digits(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    """A part of the demo's data: ``train``, ``calibration``, ``test``, or the name of one of its OOD sets."""
    data = digits.load_data()
    parts: dict[str, tuple[Tensor, Tensor | None]] = {
        "train": data.train,
        "calibration": data.calibration,
        "test": data.test,
    }
    parts |= {name: (images, None) for name, images in data.ood.items()}
    if spec.path not in parts:
        raise InputError(f"The demo has no part {spec.path!r} for {spec.name}. It has {', '.join(parts)}.")
    images, targets = parts[spec.path]
    pixels = (images * 16 * STEP).round().byte().squeeze(1).numpy()
    return DigitImages(spec.path, pixels, None if targets is None or not labels else targets.numpy(), limit)
