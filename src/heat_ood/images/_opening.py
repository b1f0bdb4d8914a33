"""Images by the path of a folder or an ``.npz`` file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from ..errors import InputError
from ._archives import read_arrays
from ._decoding import defect_of
from ._files import SUFFIXES, folders_in, images_below, images_in, say_odd
from ._sets import ArrayImages, FolderImages, ImageSet

__all__ = ["open_images", "spread"]


def open_images(
    path: str | PathLike[str], *, labels: bool = True, limit: int | None = None, skip_unreadable: bool = False
) -> ImageSet:
    """The images of a folder, or of an ``.npz`` file with ``images`` and perhaps ``labels``.

    A folder of folders has a class a subfolder, numbered in the order of their names; a flat folder has no labels.
    Folders without images, hidden ones and those that programs leave behind (``__MACOSX``, ``.ipynb_checkpoints``) are
    no classes. Pictures of 16 bits are scaled to eight. Pipes, devices and circles of links are skipped, with a notice.

    Args:
        path: the folder or file.
        labels: False leaves them out.
        limit: take only so many, spread evenly over the set.
        skip_unreadable: decode every image beforehand and leave out those that fail; ``skipped`` of the set names them.
    """
    root = Path(path)
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, not {limit}.")
    if not os.path.lexists(root):
        raise InputError(f"There is no {root}. Pass a folder of images, or an .npz file that holds images.")
    if root.is_file():
        return open_npz(root, labels, limit)
    if not root.is_dir():
        raise InputError(
            f"{root} is neither a folder nor a file, but a pipe, a device or a link to nothing. Pass a "
            "folder of images, or an .npz file."
        )
    return open_folder(root, labels, limit, skip_unreadable)


def open_folder(root: Path, labels: bool, limit: int | None, skip_unreadable: bool) -> ImageSet:
    odd: list[str] = []
    flat, nested = images_in(root, odd), dict[str, list[str]]()
    for folder in folders_in(root, odd):
        strange: list[str] = []
        if found := images_below(folder, strange):
            nested[folder.name] = found
        odd += [f"{folder.name}/{name}" for name in strange]
    say_odd(root, odd)
    if flat and nested:
        raise InputError(
            f"{root} holds images beside folders of images ({flat[0]} beside {next(iter(nested))}/), so the classes "
            "are not clear. Put every image in the folder of its class, or all in one flat folder."
        )
    names = flat or [f"{folder}/{name}" for folder, group in nested.items() for name in group]
    if not names:
        raise InputError(f"There are no images in {root}. Images are files that end in {', '.join(SUFFIXES)}.")
    classes = None if flat or not labels else list(nested)
    targets = None if classes is None else np.repeat(np.arange(len(nested)), [len(g) for g in nested.values()])

    rows, skipped = spread(len(names), limit), dict[str, str]()
    if skip_unreadable:
        skipped = {names[row]: defect for row in rows if (defect := defect_of(root / names[row])) is not None}
        rows = [row for row in rows if names[row] not in skipped]
        if not rows:
            name, why = next(iter(skipped.items()))
            raise InputError(f"No image in {root} can be read ({name}: {why}). Check a file in an image viewer.")
    images = FolderImages(root, names, rows, None if targets is None else targets[list(rows)], classes)
    images.skipped = skipped
    return images


def open_npz(file: Path, labels: bool, limit: int | None) -> ImageSet:
    images, targets = read_arrays(file, labels)
    rows = spread(len(images), limit)
    return ArrayImages(file, images, rows, None if targets is None else targets[list(rows)].astype(np.int64))


def spread(n: int, limit: int | None) -> Sequence[int]:
    """So many of n rows, spread evenly; all of them where there is no limit."""
    return range(n) if limit is None or limit >= n else [i * n // limit for i in range(limit)]
