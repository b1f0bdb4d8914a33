"""Image files: which of the files in a folder they are."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError, Notice

__all__ = ["SUFFIXES", "entries_of", "folders_in", "images_below", "images_in", "is_image", "say_odd"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
FILE, FOLDER, ODD = "file", "folder", "odd"


def images_in(folder: Path, odd: list[str]) -> list[str]:
    """The images that lie in the folder itself, sorted; what is named as one and is no file joins the ``odd``."""
    kinds = {entry.name: kind_of(entry) for entry in entries_of(folder) if is_image(entry.name)}
    odd += [name for name, kind in kinds.items() if kind == ODD]
    return sorted(name for name, kind in kinds.items() if kind == FILE)


def images_below(folder: Path, odd: list[str] | None = None) -> list[str]:
    """Images at any depth, by their path within the folder, sorted; links to folders are not followed.

    What is named as an image and is no file joins the ``odd``, or is said.
    """
    found, strange, waiting = list[str](), list[str](), [""]
    while waiting:
        inner = waiting.pop()
        for entry in entries_of(folder / inner):
            if entry.is_dir(follow_symlinks=False):
                waiting += [f"{inner}{entry.name}/"] if is_data(entry.name) else []
            elif is_image(entry.name) and (kind := kind_of(entry)) != FOLDER:
                (found if kind == FILE else strange).append(inner + entry.name)
    if odd is None:
        say_odd(folder, strange)
    else:
        odd += strange
    return sorted(found)


def folders_in(folder: Path, odd: list[str]) -> list[Path]:
    """The folders that lie in a folder, sorted, without what programs leave there; links that lead back join the
    ``odd``."""
    here, found = folder.resolve(), list[Path]()
    for entry in entries_of(folder):
        path = folder / entry.name
        if not is_data(entry.name) or kind_of(entry) != FOLDER:
            continue
        if entry.is_symlink() and here.is_relative_to(path.resolve()):
            odd.append(entry.name)
        else:
            found.append(path)
    return sorted(found)


def say_odd(folder: Path, odd: Sequence[str]) -> None:
    """Say what is no file and was therefore skipped."""
    if odd:
        several = f"{len(odd):,} entries of {folder} are" if len(odd) > 1 else f"An entry of {folder} is"
        warnings.warn(
            Notice(f"{several} skipped: pipes, devices, or links that lead in a circle ({min(odd)})."), stacklevel=3
        )


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InputError(
            f"The folder {folder} cannot be read ({error.strerror or error}). Change its rights, or take it away."
        ) from error


def is_data(name: str) -> bool:
    """Whether a folder may hold images of the user's, by its name."""
    return not name.startswith(".") and name != "__MACOSX"


def is_image(name: str) -> bool:
    """Whether a file is one, by its name."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def kind_of(entry: os.DirEntry[str]) -> str:
    """What an entry is, or what it leads to; a link to a file that is gone counts as one, and will be said to be
    unreadable."""
    try:
        mode = os.stat(entry.path).st_mode
    except OSError as error:
        return ODD if error.errno == errno.ELOOP else FILE
    return FILE if stat.S_ISREG(mode) else FOLDER if stat.S_ISDIR(mode) else ODD
