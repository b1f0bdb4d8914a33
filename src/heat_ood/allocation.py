"""How the C library treats memory that is freed: a network that runs batch after batch needs the same again at once."""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep_memory"]


def keep_memory() -> bool:
    """Let this process keep up to 1 GiB that it has freed; whether that could be arranged.

    glibc gives large pieces back to the system as they are freed, and the system clears each page before it comes
    again: for the convolutions of a small network on a CPU that was a third of the time. The command line and the
    workers of a cluster call this; a program of your own may, once, at its start. Elsewhere than on Linux with glibc,
    and where the environment says how memory is to be kept (``MALLOC_TRIM_THRESHOLD_`` and its like), nothing changes.

    Example:
        >>> keep_memory() in (True, False)
        True
    """
    trim_threshold, mmap_threshold, kept = -1, -3, 1 << 30  # the first two as malloc.h numbers them for mallopt
    settled = ("TRIM_THRESHOLD", "MMAP_THRESHOLD", "MMAP_MAX", "TOP_PAD")
    if "GLIBC_TUNABLES" in os.environ or any(f"MALLOC_{name}_" in os.environ for name in settled):
        return False
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError, ValueError):  # another system, or another C library
        return False
    return bool(set_option(mmap_threshold, kept) and set_option(trim_threshold, kept))
