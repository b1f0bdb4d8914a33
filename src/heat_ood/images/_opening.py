"""Images by the path of a folder, an ``.npz`` file, a list of paths, or tar files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import Mirror, url_of
from ._archives import read_arrays
from ._cutting import Cut, chosen_rows
from ._decoding import defect_of
from ._files import SUFFIXES, entries_of, folders_in, images_below, images_in, say_odd
from ._listed import LISTS, read_list
from ._sets import ArrayImages, FolderImages, ImageSet, file_at
from ._tars import expanded, open_tars

__all__ = ["open_images"]


def open_images(
    path: str | PathLike[str],
    *,
    labels: bool = True,
    limit: int | None = None,
    skip_unreadable: bool = False,
    part: Cut | None = None,
) -> ImageSet:
    """The images of a folder, of an ``.npz`` file with ``images`` and perhaps ``labels``, of a list, or of tar files.

    A folder of folders has a class a subfolder, numbered in the order of their names; a flat folder has no labels.
    Folders without images, hidden ones and those that programs leave behind (``__MACOSX``, ``.ipynb_checkpoints``) are
    no classes. Pictures of 16 bits are scaled to eight. Pipes, devices and circles of links are skipped, with a notice.

    A list is a text file (``.txt``, ``.lst``) with a path a line and perhaps, after a tab, a class number; or a Parquet
    file with a column ``path`` and perhaps ``label`` or ``class``. Paths are seen from the list's folder, and may be
    URLs. Tar files are those of WebDataset, ``0001.jpg`` beside ``0001.cls``: one, a folder of them, or
    ``train-{000..099}.tar``.

    Args:
        path: the folder or file.
        labels: False leaves them out.
        limit: take only so many, spread evenly over the set.
        skip_unreadable: decode every image beforehand and leave out those that fail; ``skipped`` of the set names them.
        part: take a block of them alone, as ``Shard(3, 64).block`` says; of tar files it counts the files.
    """
    root = Path(path)
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, not {limit}.")
    if (url := url_of(path)) is not None:
        return open_remote(url, labels, limit, skip_unreadable, part)
    if tars := tars_at(root):
        return open_tars(root, tars, labels, limit, skip_unreadable, part)
    if not os.path.lexists(root):
        raise InputError(f"There is no {root}. Pass a folder of images, or an .npz file that holds images.")
    if root.is_file() and root.suffix.lower() in LISTS:
        return open_listed(root, labels, limit, skip_unreadable, part)
    if root.is_file():
        return open_npz(root, labels, limit, part)
    if not root.is_dir():
        raise InputError(
            f"{root} is neither a folder nor a file, but a pipe, a device or a link to nothing. Pass a "
            "folder of images, or an .npz file."
        )
    return open_folder(root, labels, limit, skip_unreadable, part)


def open_remote(url: str, labels: bool, limit: int | None, skip_unreadable: bool, part: Cut | None) -> ImageSet:
    """Images by a URL: of a list, tar files or an ``.npz`` file, of which a copy is made; a folder is not listed."""
    suffix = Path(url).suffix.lower()
    if suffix == ".tar":
        tars = expanded(url)
        block = range(len(tars)) if part is None else part(len(tars))
        files = [Mirror.of_file(tar).fetch() for tar in tars[block.start : block.stop]]
        images = open_tars(Path(url), files, labels, limit, skip_unreadable, None)
        images.place = None if part is None else (block.start, len(tars))
        return images
    if suffix not in (*LISTS, ".npz"):
        raise InputError(
            f"{url} is not listed as a folder of images: that would be slow, and another order another time. Pass a "
            f"list of paths ({', '.join(LISTS)}), tar files (.tar), or an .npz file."
        )
    file = Mirror.of_file(url).fetch()
    if suffix == ".npz":
        return open_npz(file, labels, limit, part)
    return open_listed(file, labels, limit, skip_unreadable, part, url.rpartition("/")[0])


def tars_at(path: Path) -> list[Path]:
    """The tar files that a path names: itself, those that braces stand for, or those of a folder without images."""
    if path.suffix.lower() == ".tar":
        if path.is_file() or "{" not in path.name:
            return [path] if path.is_file() else []
        found = [Path(name) for name in expanded(str(path))]
        if missing := [file for file in found if not file.is_file()]:
            raise InputError(f"There is no {missing[0]}, one of {len(found):,} tar files that {path} stands for.")
        return found
    if not path.is_dir():
        return []
    names = [entry.name for entry in entries_of(path) if not entry.name.startswith(".")]
    return [path / name for name in sorted(names)] if names and all(name.endswith(".tar") for name in names) else []


def open_listed(
    file: Path, labels: bool, limit: int | None, skip_unreadable: bool, part: Cut | None, base: str | None = None
) -> ImageSet:
    names, targets, classes, place = read_list(file, labels, limit, part)
    if base is not None:
        names = [name if url_of(name) or name.startswith("/") else f"{base}/{name}" for name in names]
    if not names:
        raise InputError(f"The list {file} is empty. Write one path a line.")
    return made(file.parent, names, range(len(names)), targets, classes, skip_unreadable, place)


def open_folder(root: Path, labels: bool, limit: int | None, skip_unreadable: bool, part: Cut | None) -> ImageSet:
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

    rows, place = chosen_rows(len(names), limit, part)
    return made(root, names, rows, targets, classes, skip_unreadable, place)


def made(
    root: Path,
    names: list[str],
    rows: Sequence[int],
    targets: np.ndarray[Any, Any] | None,
    classes: list[str] | None,
    skip_unreadable: bool,
    place: tuple[int, int] | None,
) -> FolderImages:
    """Image files by their names, without those that cannot be read where they are to be skipped."""
    skipped = dict[str, str]()
    if skip_unreadable:
        skipped = {names[row]: defect for row in rows if (defect := defect_of(file_at(root, names[row]))) is not None}
        rows = [row for row in rows if names[row] not in skipped]
        if not rows:
            name, why = next(iter(skipped.items()))
            raise InputError(f"No image in {root} can be read ({name}: {why}). Check a file in an image viewer.")
    images = FolderImages(root, names, rows, None if targets is None else targets[list(rows)], classes)
    images.skipped, images.place = skipped, place
    return images


def open_npz(file: Path, labels: bool, limit: int | None, part: Cut | None) -> ImageSet:
    images, targets = read_arrays(file, labels)
    rows, place = chosen_rows(len(images), limit, part)
    found = ArrayImages(file, images, rows, None if targets is None else targets[list(rows)].astype(np.int64))
    found.place = place
    return found
