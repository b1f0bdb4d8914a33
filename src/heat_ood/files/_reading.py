"""Files read whole: regular ones alone, and none that is larger than it can honestly be."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..errors import FormatError

__all__ = ["read"]


def read(path: Path, limit: int | None = None, *, follow: bool = True) -> bytes:
    """The content of a regular file; what else may stand under its name is refused, and never waited for.

    Whoever calls it adds the remedy to the errors, which end with a full stop. A file that is not there is a
    ``FileNotFoundError``.

    Args:
        path: the file.
        limit: the most bytes that it may have.
        follow: whether it may be a link.

    Example:
        >>> read(Path("/dev/zero"))
        Traceback (most recent call last):
        heat_ood.errors.FormatError: /dev/zero is not a regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe has no writer to wait for
    try:
        descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # ENXIO: a socket, or a device that is not there
            what = "not a regular file" if error.errno == errno.ENXIO else "a link that is not followed"
            raise FormatError(f"{path} is {what}.") from error
        raise
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or (not follow and path.is_symlink()):
            raise FormatError(f"{path} is not a regular file.")
        if limit is not None and about.st_size > limit:
            raise FormatError(f"{path} has {about.st_size:,} bytes, and at most {limit:,} can be meant.")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    except MemoryError as error:
        raise FormatError(f"{path} has {about.st_size:,} bytes, more than there is memory for.") from error
    finally:
        os.close(descriptor)
