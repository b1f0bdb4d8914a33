"""Files of a store that are surely files: a link, a pipe, a device or a folder is refused without being opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import Argument, FormatError

__all__ = ["AGAIN", "open_regular", "remove"]

AGAIN = ("Extract the features again, with ", Argument("overwrite", True), ".")
"""What to do about features that are damaged."""
SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file; ``flags`` may ask for a new one, which then must not be there yet.

    Raises:
        FileNotFoundError: there is none.
        FormatError: there is something else, or it cannot be opened.
    """
    try:
        if not flags & os.O_CREAT:
            check_mode(path, os.lstat(path).st_mode)
        descriptor = os.open(path, flags | SAFELY | (os.O_EXCL if flags & os.O_CREAT else 0), 0o666)
    except FileNotFoundError:
        raise
    except OSError as error:
        if flags & os.O_CREAT:
            raise
        raise FormatError(f"{path} cannot be opened ({error.strerror}). ", *AGAIN) from None
    try:
        check_mode(path, os.fstat(descriptor).st_mode)
    except FormatError:
        os.close(descriptor)
        raise
    return descriptor


def check_mode(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise FormatError(
            f"{path} is a link, which leads out of its folder. The files of a store must lie in the folder itself; "
            "copy them there, or extract the features again."
        )
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise FormatError(f"{path} is {kind}, not a file. Remove it and extract the features again.")


def remove(path: Path) -> bool:
    """Whether a file of ours is gone now; of a link the link goes, and a folder stays."""
    try:
        path.unlink(missing_ok=True)
    except OSError:  # a folder, a read-only disk, or a file that Windows still maps
        return False
    return True
