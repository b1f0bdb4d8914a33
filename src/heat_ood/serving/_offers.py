"""Files that the service hands out, read once when it starts: its page, and images to try."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..images import images_below
from ._settings import Settings

__all__ = ["INDEX", "Offer", "offers_in", "page_files"]

INDEX = "index.html"
MOST = 24
"""Images that are offered."""
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
IMAGE_TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
}
"""What a browser can show."""


class Offer(NamedTuple):
    name: str
    type: str
    content: bytes


def page_files() -> dict[str, Offer]:
    """The page, by the names of its files."""
    found = [file for file in (files(__package__) / "page").iterdir() if Path(file.name).suffix in PAGE_TYPES]
    return {file.name: Offer(file.name, PAGE_TYPES[Path(file.name).suffix], file.read_bytes()) for file in found}


def offers_in(settings: Settings) -> list[Offer]:
    """The first images of a folder, by name, of those that could be sent."""
    if settings.samples is None:
        return []
    if not settings.samples.is_dir():
        raise InputError(f"{settings.samples} is no folder. Name a folder of images.")
    found: list[Offer] = []
    for file in images_below(settings.samples):
        path = settings.samples / file
        suffix = path.suffix.lower()
        if len(found) < MOST and suffix in IMAGE_TYPES and path.stat().st_size <= settings.body_bytes:
            found.append(Offer(path.name, IMAGE_TYPES[suffix], path.read_bytes()))
    return found
