"""Image files: which they are, and decoding them."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from ..errors import Argument, InputError

__all__ = ["SUFFIXES", "UnreadableImageError", "decode", "images_below", "images_in", "is_image", "readable"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
SKIP = Argument("skip_unreadable", True)


class UnreadableImageError(InputError):
    """A file that is no image, or a damaged one."""

    def __init__(self, *parts: str | Argument) -> None:
        # A loader's worker process sends its whole traceback as one text; the last line is ours.
        line = "".join(map(str, parts)).strip().splitlines()[-1]
        before, skip, after = line.removeprefix(f"{__name__}.{type(self).__name__}: ").partition(str(SKIP))
        super().__init__(*((before, SKIP, after) if skip else (before,)))


def images_in(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir() if is_image(f.name) and f.is_file())


def images_below(folder: Path) -> list[str]:
    """Images at any depth, by their path within the folder, sorted."""
    found = []
    for base, _, files in os.walk(folder):
        found += [(Path(base) / name).relative_to(folder).as_posix() for name in files if is_image(name)]
    return sorted(found)


def is_image(name: str) -> bool:
    """Whether a file is one, by its name."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def decode(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            image.load()
            return image
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        cause = " ".join(str(error).split())
        raise UnreadableImageError(
            f"The image {file} cannot be read ({cause}). Replace or remove it, or leave out such files with {SKIP}."
        ) from error


def readable(file: Path) -> bool:
    try:
        decode(file)
    except UnreadableImageError:
        return False
    return True
