"""Pictures of more than eight bits a pixel, scaled to eight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from ..errors import InputError

__all__ = ["eight_bits"]

Rows: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
LARGEST = 65_535
SIXTEEN = ("PNG", "PPM")
"""Kinds of files whose deep pictures are of 16 bits, whatever Pillow keeps them in."""
CONVERTED = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "RGBa")
"""Modes that Pillow turns into RGB and into grey."""
BLOCK = 1 << 20


def eight_bits(image: Image.Image) -> Image.Image:
    """The same picture in eight bits: 16-bit grey values are divided by 257, floating-point ones in [0, 1] multiplied
    by 255. Pillow itself cuts off at 255 in most of these modes, which turns such pictures white.

    Whole numbers count as 16 bit in pictures of 32 bits too (mode ``I``), where Pillow also puts 16-bit PNGs. Values
    beyond 65,535 or below 0, floating-point values outside [0, 1], and 32-bit numbers that may be of eight bits have no
    scale of their own: they are refused.

    Example:
        >>> wide = Image.fromarray(np.array([[0, 257, 65535]], dtype=np.uint16))
        >>> np.asarray(eight_bits(wide)).tolist()
        [[0, 1, 255]]
    """
    if image.mode == "F":
        low, high = ends(image)
        if not 0 <= low <= high <= 1:
            raise InputError(
                f"Its pixels are floating-point numbers from {low:.6g} to {high:.6g}. Save it with values in [0, 1]."
            )
        return scaled(image, lambda rows: np.rint(rows * np.float32(255)))
    if image.mode == "I" or image.mode.startswith("I;"):
        low, high = ends(image)
        vague = image.mode == "I" and image.format not in SIXTEEN and 0 < high <= 255
        if not 0 <= low <= high <= LARGEST or vague:
            raise InputError(
                f"Its pixels are whole numbers from {low:.6g} to {high:.6g}. Save it as 8 bit, or as 16 bit."
            )
        return scaled(image, lambda rows: (rows.astype(np.uint32) * 255 + LARGEST // 2) // LARGEST)
    if image.mode not in CONVERTED:
        try:
            return image.convert("RGB")
        except ValueError as error:
            raise InputError(f"Its pixels are of the mode {image.mode!r}. Save it in colours (RGB), or in grey.") from (
                error
            )
    return image


def ends(image: Image.Image) -> tuple[float, float]:
    """The smallest and the largest value; NaN where there is one."""
    values = np.asarray(image)
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)


def scaled(image: Image.Image, scale: Callable[[Rows], Rows]) -> Image.Image:
    """A grey picture of eight bits, made some rows at a time: a large one is not to be held several times."""
    values = np.asarray(image)
    result = np.empty(values.shape, np.uint8)
    step = max(1, BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        result[start : start + step] = scale(values[start : start + step])
    return Image.fromarray(result)
