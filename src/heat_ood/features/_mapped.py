"""One file of a store: a header that is known to the byte, and numbers that are mapped into memory."""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import FormatError
from ._manifest import Checksum, Column
from ._regular import AGAIN, open_regular

__all__ = [
    *("DESCRIPTORS", "HEADER", "Numpy", "checksum_of", "chunks", "ends_of", "header", "load", "open_column"),
    "sha256_of",
]

Numpy = np.ndarray[Any, Any]
HEADER = 128
END = 4096
"""So many bytes at each end of a file are checked whenever it is opened."""
CHUNK = 2**20
NORESERVE = 0x4000 if sys.platform == "linux" else 0
"""Mapped pages that nobody changes take no memory: let Linux not set any aside, or a store must not exceed the RAM."""
OWN = Path("/proc/self/fd")
"""Where Linux lists what a process has open; a name there is the very file that was checked."""
SUSPICIOUS, SHARE = 2**30, 64
"""A file of more bytes than the first, of which not one in the second is on the disk, is nothing but a claim."""


def most_open() -> int:
    """So many files may be mapped at a time that are not to be held open; half of what a process may have open, where
    a map keeps its file open."""
    if OWN.is_dir():
        return sys.maxsize
    try:
        import resource
    except ImportError:  # Windows
        return 256
    return max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


DESCRIPTORS = most_open()


def header(column: Column, count: int) -> bytes:
    """A ``.npy`` header of fixed length, so that the count can be put in at the end."""
    shape = (count, column.width) if column.width else (count,)
    text = repr({"descr": column.dtype, "fortran_order": False, "shape": shape})
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.encode().ljust(HEADER - 11) + b"\n"


def open_column(folder: Path, column: Column, flags: int = os.O_RDONLY) -> IO[bytes]:
    """The file of a column, which must be there."""
    path = folder / column.file
    try:
        descriptor = open_regular(path, flags)
    except FileNotFoundError:
        raise FormatError(f"{path} is missing. Copy the whole folder, or extract the features again.") from None
    return open(descriptor, "rb", buffering=0) if flags == os.O_RDONLY else open(descriptor, "r+b")


def load(
    folder: Path, column: Column, count: int, checksum: Checksum | None, verify: bool, held: bool = True
) -> Tensor:
    """Map a file, once its size, its header and its two ends are as they should be; ``verify`` reads all of it.

    Python's own map keeps its file open, and a process may have some hundreds open; ``held=False`` closes it, where
    that can be done.
    """
    path, size = folder / column.file, HEADER + count * column.row
    with open_column(folder, column) as file:
        about = os.fstat(file.fileno())
        if about.st_size != size:
            raise FormatError(f"{path} has {about.st_size:,} bytes but its manifest says {size:,}. ", *AGAIN)
        if file.read(HEADER) != header(column, count):
            shape = f"{count} × {column.width or 1}"
            raise FormatError(f"{path} has not the header of {shape} numbers of {column.dtype}. ", *AGAIN)
        if size > SUSPICIOUS and getattr(about, "st_blocks", size) * 512 < size // SHARE and has_holes(file, size):
            raise FormatError(
                f"{path} says that it has {size:,} bytes, but hardly any are on the disk: it is a sparse file. ",
                *AGAIN,
            )
        if checksum is not None and ends_of(file, size) != checksum.ends:
            raise FormatError(
                f"{path} is damaged, or belongs to other features: the checksum of its first and last numbers does not "
                "match. ",
                *AGAIN,
            )
        if checksum is not None and verify and sha256_of(file, size) != checksum.sha256:
            raise FormatError(f"{path} is damaged: its checksum does not match. ", *AGAIN)
        try:
            if held or not OWN.is_dir():
                return torch.from_numpy(mapped(file, column, count, size))
            return released(file, column, count, size)
        except (OSError, MemoryError, ValueError, OverflowError, RuntimeError) as error:
            raise FormatError(
                f"{path} cannot be mapped into memory ({error}). It has {size:,} bytes; allow the process as much "
                "address space, or extract fewer samples."
            ) from None


def mapped(file: IO[bytes], column: Column, count: int, size: int) -> Numpy:
    """The numbers of a file; changes stay in memory. numpy would parse the header, which is known already."""
    if sys.platform == "win32":
        pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    else:
        both = mmap.PROT_READ | mmap.PROT_WRITE
        pages = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE | NORESERVE, prot=both)
    shape = (count, column.width) if column.width else (count,)
    return np.ndarray(shape, column.dtype, buffer=pages, offset=HEADER)


def released(file: IO[bytes], column: Column, count: int, size: int) -> Tensor:
    """The numbers of a file, mapped as :func:`mapped` does, without keeping the file open."""
    kind = np.dtype(column.dtype)
    dtype = torch.from_numpy(np.empty(0, kind)).dtype
    numbers = torch.from_file(str(OWN / str(file.fileno())), shared=False, size=size // kind.itemsize, dtype=dtype)
    rows = numbers[HEADER // kind.itemsize :]
    return rows.view(count, column.width) if column.width else rows


def has_holes(file: IO[bytes], size: int) -> bool:
    """Whether the file system itself says so; one that keeps no account of blocks says no."""
    try:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE) < size
    except (OSError, AttributeError):
        return False


def checksum_of(data: bytes) -> Checksum:
    """The checksum of the numbers of a file that is to be written."""
    return Checksum(hashlib.sha256(data).hexdigest(), zlib.crc32(data[-END:], zlib.crc32(data[:END])))


def ends_of(file: IO[bytes], size: int) -> int:
    """The checksum of the first and the last numbers."""
    file.seek(HEADER)
    checksum = zlib.crc32(file.read(END))
    file.seek(max(HEADER, size - END))
    return zlib.crc32(file.read(END), checksum)


def sha256_of(file: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    file.seek(HEADER)
    for data in chunks(file, size - HEADER):
        digest.update(data)
    return digest.hexdigest()


def chunks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """The next bytes of a file, some at a time; fewer where it ends."""
    while size and (data := file.read(min(size, CHUNK))):
        size -= len(data)
        yield data
