"""Image files: which they are, and decoding them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from PIL import Image

from ..errors import Argument, InputError
from ._depth import eight_bits

__all__ = [
    "SUFFIXES",
    "UnreadableImageError",
    "decode",
    "defect_of",
    "folders_in",
    "images_below",
    "images_in",
    "is_image",
]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
SKIP = Argument("skip_unreadable", True)
FAILURES = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)


class UnreadableImageError(InputError):
    """A file that is no image, or a damaged one."""

    def __init__(self, *parts: str | Argument) -> None:
        # A loader's worker process sends its whole traceback as one text; the last line is ours.
        line = "".join(map(str, parts)).strip().splitlines()[-1]
        before, skip, after = line.removeprefix(f"{__name__}.{type(self).__name__}: ").partition(str(SKIP))
        super().__init__(*((before, SKIP, after) if skip else (before,)))


def images_in(folder: Path) -> list[str]:
    """The images that lie in the folder itself, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if is_image(entry.name) and is_regular(entry))


def images_below(folder: Path) -> list[str]:
    """Images at any depth, by their path within the folder, sorted; links to folders are not followed."""
    found, waiting = list[str](), [""]
    while waiting:
        inner = waiting.pop()
        with os.scandir(folder / inner) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting += [f"{inner}{entry.name}/"] if is_data(entry.name) else []
                elif is_image(entry.name) and is_regular(entry):
                    found.append(inner + entry.name)
    return sorted(found)


def folders_in(folder: Path) -> list[Path]:
    """The folders that lie in a folder, sorted, without what programs leave there and links that lead back to it."""
    here = folder.resolve()
    return sorted(
        f
        for f in folder.iterdir()
        if is_data(f.name) and f.is_dir() and not (f.is_symlink() and here.is_relative_to(f.resolve()))
    )


def is_data(name: str) -> bool:
    """Whether a folder may hold images of the user's, by its name."""
    return not name.startswith(".") and name != "__MACOSX"


def is_image(name: str) -> bool:
    """Whether a file is one, by its name."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def is_regular(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file and no pipe, device or loop; a link to a file that is gone counts, and will be said
    to be unreadable."""
    if not entry.is_symlink():
        return entry.is_file(follow_symlinks=False)
    try:
        return stat.S_ISREG(os.stat(entry.path).st_mode)
    except OSError as error:
        return error.errno != errno.ELOOP


def decode(file: Path) -> Image.Image:
    """The picture in a file, in eight bits a channel."""
    try:
        return decoded(file)
    except FAILURES as error:
        raise UnreadableImageError(
            f"The image {file} cannot be read ({cause_of(error)}). Replace or remove it, or leave out such files with "
            f"{SKIP}."
        ) from error


def defect_of(file: Path) -> str | None:
    """Why an image cannot be read; None where it can."""
    try:
        decoded(file)
    except FAILURES as error:
        return cause_of(error)
    return None


def decoded(file: Path) -> Image.Image:
    with Image.open(file) as image:
        image.load()
        return eight_bits(image)


def cause_of(error: BaseException) -> str:
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__
