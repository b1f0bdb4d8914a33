"""Images that a command's arguments name: folders, .npz files, and single image files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._output import note

if TYPE_CHECKING:
    from ..images import Cut, FolderImages, ImageSet

__all__ = ["images_at", "images_named", "is_single", "pixels_of"]

MANY = (".npz", ".txt", ".lst", ".parquet", ".tar")
"""How files end that hold or list many images."""
SHOWN = 20
"""So many skipped images are named on the terminal."""


def images_at(
    path: Path, *, labels: bool, limit: int | None = None, skip_unreadable: bool = False, part: Cut | None = None
) -> ImageSet:
    """The images of a folder, an .npz file, a list or tar files, or a single one; what is skipped is said."""
    from ..images import FolderImages, open_images

    if is_single(path):
        return FolderImages(path.parent, [path.name], [0], None, None)
    images = open_images(path, labels=labels, limit=limit, skip_unreadable=skip_unreadable, part=part)
    if images.skipped:
        note(f"note: {len(images.skipped):,} of {len(images) + len(images.skipped):,} images were skipped:")
        for name, why in list(images.skipped.items())[:SHOWN]:
            note(f"  {name}: {why}")
        if len(images.skipped) > SHOWN:
            note(f"  and {len(images.skipped) - SHOWN:,} more")
    return images


def pixels_of(images: ImageSet, size: int) -> Iterator[Any]:
    """The images resized and cropped as they are prepared, (n, h, w, c), uint8, a batch at a time."""
    import numpy as np

    for start in range(0, len(images), size):
        yield np.stack([images.pixels(i) for i in range(start, min(start + size, len(images)))])


def is_single(path: Path) -> bool:
    """Whether it is one image, and no archive or list of them."""
    return path.is_file() and path.suffix.lower() not in MANY


def images_named(paths: Sequence[Path]) -> FolderImages:
    """Image files, and those below folders, by their full paths."""
    from ..errors import InputError
    from ..images import FolderImages, images_below

    names: list[str] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"There is no {path}. Pass image files, or folders of them.")
        below = [str(path.absolute() / name) for name in images_below(path)] if path.is_dir() else None
        if below == []:
            raise InputError(f"There are no images in {path}.")
        names += [str(path.absolute())] if below is None else below
    return FolderImages(Path(), names, range(len(names)), None, None)
