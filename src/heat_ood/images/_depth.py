"""Pictures of more than eight bits a pixel, scaled to eight."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ..errors import InputError

__all__ = ["eight_bits"]

LARGEST = 65_535


def eight_bits(image: Image.Image) -> Image.Image:
    """The same picture in eight bits: 16-bit grey values are divided by 257, floating-point ones in [0, 1] multiplied
    by 255. Pillow itself cuts off at 255 in most of these modes, which turns such pictures white.

    Whole numbers count as 16 bit in pictures of 32 bits too (mode ``I``), where Pillow also puts 16-bit PNGs. Values
    beyond 65,535 or below 0, and floating-point values outside [0, 1], have no scale of their own: they are refused.

    Example:
        >>> wide = Image.fromarray(np.array([[0, 257, 65535]], dtype=np.uint16))
        >>> np.asarray(eight_bits(wide)).tolist()
        [[0, 1, 255]]
    """
    if image.mode == "F":
        values = np.asarray(image)
        if not (np.isfinite(values).all() and (not values.size or 0 <= values.min() <= values.max() <= 1)):
            raise InputError(f"Its pixels are floating-point numbers {span(values)}. Save it with values in [0, 1].")
        return Image.fromarray(np.rint(values * 255).astype(np.uint8))
    if image.mode == "I" or image.mode.startswith("I;"):
        values = np.asarray(image).astype(np.int64)
        if values.size and not 0 <= values.min() <= values.max() <= LARGEST:
            raise InputError(f"Its pixels are whole numbers {span(values)}. Save it as 8 bit, or as 16 bit.")
        return Image.fromarray(((values * 255 + LARGEST // 2) // LARGEST).astype(np.uint8))
    return image


def span(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
    return f"from {values.min():.6g} to {values.max():.6g}"
