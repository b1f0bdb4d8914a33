"""From a file to pixels: by the decoders that are meant alone, and within limits."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from ..errors import Argument, InputError
from ..files import Mirror
from ._depth import eight_bits
from ._regular import opened

__all__ = ["LARGEST_FILE", "SKIP", "UnreadableImageError", "cause_of", "decode", "decode_stream", "defect_of"]

FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
"""Pillow's decoders of the kinds of files that count as images. Others may start programs, as PostScript's does."""
LARGEST_FILE = 1 << 30
"""Bytes of a file that is opened."""
SCANS = 100
"""A progressive JPEG is drawn anew by each of its scans: real ones have some ten, a bomb has thousands."""
SKIP = Argument("skip_unreadable", True)


class UnreadableImageError(InputError):
    """A file that is no image, or a damaged one."""

    def __init__(self, *parts: str | Argument) -> None:
        # A loader's worker process sends its whole traceback as one text; the last line is ours.
        line = "".join(map(str, parts)).strip().splitlines()[-1]
        before, skip, after = line.removeprefix(f"{__name__}.{type(self).__name__}: ").partition(str(SKIP))
        super().__init__(*((before, SKIP, after) if skip else (before,)))


def decode(file: str | Path) -> Image.Image:
    """The picture in a file, in eight bits a channel."""
    defect, image = attempt(file)
    if image is None:
        raise UnreadableImageError(
            f"The image {printable(file)} cannot be read ({defect}). Replace or remove it, or leave out such files "
            f"with {SKIP}."
        )
    return image


def defect_of(file: str | Path) -> str | None:
    """Why an image cannot be read; None where it can."""
    return attempt(file)[0]


def attempt(file: str | Path) -> tuple[str | None, Image.Image | None]:
    """Why an image cannot be read, or the image."""
    try:
        if isinstance(file, str):
            return None, decode_stream(io.BytesIO(Mirror(file).read()))
        with opened(file, LARGEST_FILE) as stream:
            return None, decode_stream(stream)
    except Exception as error:  # Pillow raises almost anything on damaged files
        return cause_of(error), None


def decode_stream(stream: BinaryIO, most: int | None = None) -> Image.Image:
    """The picture in an open file, the first where there are several; the caller says which file, where it fails.

    Args:
        stream: of the file, at its start.
        most: pixels that are decoded; None is Pillow's own limit.
    """
    with Image.open(stream, formats=FORMATS) as image:
        most = Image.MAX_IMAGE_PIXELS if most is None else most
        if most is not None and image.width * image.height > most:
            raise InputError(
                f"It has {image.width:,} × {image.height:,} pixels, and more than {most:,} are not decoded."
            )
        if image.format in ("JPEG", "MPO") and image.info.get("progressive"):
            check_scans(stream)
        image.load()
        return eight_bits(image)


def check_scans(stream: BinaryIO) -> None:
    """Refuse a progressive JPEG of more scans than a picture has; the marker stands nowhere in its data."""
    place, scans, last = stream.tell(), 0, b""
    stream.seek(0)
    while piece := stream.read(1 << 20):
        scans += (last + piece).count(b"\xff\xda")
        if scans > SCANS:
            raise InputError(f"It is drawn in more than {SCANS} passes. Save it again.")
        last = piece[-1:]
    stream.seek(place)


def cause_of(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnidentifiedImageError):
        return f"cannot identify it as an image of the kinds {', '.join(FORMATS)}"
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__


def printable(file: str | Path) -> str:
    """A name on one line: a loader's worker sends its error as text, of which the last line is read."""
    return " ".join(str(file).splitlines())
