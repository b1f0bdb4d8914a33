"""Files of the user's that are opened to be read: regular ones alone, and none is waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError

__all__ = ["opened"]


def opened(file: Path, largest: int | None = None) -> BinaryIO:
    """A file that is open; a pipe, a socket, a device or a folder is an error and not waited for.

    Args:
        file: to be read; a link is followed.
        largest: so many bytes it may have.
    """
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InputError("It is a folder, a pipe or a device, and no file.")
        if largest is not None and found.st_size > largest:
            raise InputError(f"It has {found.st_size:,} bytes, and more than {largest:,} are not read.")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
