"""Image lists as OpenOOD's: a line an image, its path and its label."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import numpy as np

from ...errors import FormatError, InputError
from ...files import read
from ...images import FolderImages, ImageSet, is_image, spread
from .spec import SetSpec

__all__ = ["open_imglist", "parse"]

NUMBER = re.compile(r"-?[0-9]{1,9}")
NONE = -1
LONGEST = 1 << 30
"""Bytes of a list."""
MOST = 1_000_000
"""No label is larger."""


def open_imglist(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    """The images of a list in its order; labels of -1 throughout are none."""
    file = spec.at(root)
    folder = file.parent if spec.images is None else spec.at(root, spec.images)
    if not file.is_file():
        raise spec.missing(file)
    names, found = parse(file)
    if not (folder / names[0]).is_file():
        raise spec.missing(folder / names[0])
    targets = np.array(found, dtype=np.int64)
    if labels and (targets == NONE).any() and (targets != NONE).any():
        line = int((targets == NONE).argmax()) + 1
        raise InputError(
            f"Some images of {file} have labels and others have none (image {line}). Give every image a label, or "
            "none at all (-1)."
        )
    rows = spread(len(names), limit)
    known = labels and targets[0] != NONE
    return FolderImages(folder, names, rows, targets[list(rows)] if known else None, None)


def parse(file: Path) -> tuple[list[str], list[int]]:
    """Paths and labels; a line without a label has -1.

    Paths stay within the folder: one that leaves it is refused.
    """
    names, labels = [], []
    try:
        lines = read(file, LONGEST).decode("utf-8").splitlines()
    except (UnicodeDecodeError, FormatError) as error:
        raise InputError(f"{file} is no image list: it is not text. Give a file with a path and a label a line.") from (
            error
        )
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, _, last = line.strip().rpartition(" ")
        label = int(last) if NUMBER.fullmatch(last) else None
        if name and label is not None and NONE <= label <= MOST:
            labels.append(label)
        elif is_image(PurePosixPath(line.strip()).name):
            name = line.strip()
            labels.append(NONE)
        else:
            raise InputError(
                f"Line {number} of {file} is {line.strip()[:80]!r}. Write a path and a label (or -1), as "
                "cats/one.jpg 3."
            )
        path = PurePosixPath(name.strip())
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise InputError(f"Line {number} of {file} leaves the folder of the images ({name}). Use paths within it.")
        names.append(path.as_posix())
    if not names:
        raise InputError(f"{file} lists no images. Write a path and a label a line, as cats/one.jpg 3.")
    return names, labels
