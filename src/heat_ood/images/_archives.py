"""Arrays of an ``.npz`` file: what it claims is compared with what it brings before anything is unpacked."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ..errors import InputError
from ._regular import opened

__all__ = ["read_arrays", "read_encoded"]

PACKED = 200
"""How many times its size an array may unpack to; images of real things do not come near."""
SMALL = 256 << 20
"""Bytes that any array may have, however well it is packed."""
Numpy = np.ndarray[Any, Any]


class Kind(NamedTuple):
    """What an archive is to hold, and how to write one."""

    holds: str
    remedy: str


PLAIN = Kind("an array 'images'", "Write one with numpy.savez(file, images=…, labels=…), or pass a folder of images")
ENCODED = Kind(
    "arrays 'bytes' and 'offsets' of encoded images", "Write one with numpy.savez(file, bytes=…, offsets=…, labels=…)"
)


class Claim(NamedTuple):
    """What an array in an archive says it is."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_arrays(file: Path, labels: bool) -> tuple[Numpy, Numpy | None]:
    """The array ``images``, and ``labels`` where they are there and wanted.

    Args:
        file: the archive.
        labels: False leaves them out.
    """
    with archive_of(file, PLAIN) as archive:
        claim = claimed(archive, "images.npy")
        check_images(file, claim)
        images = unpacked(archive, "images.npy", claim)
        return images, targets_of(archive, file, len(images)) if labels else None


def read_encoded(file: Path, labels: bool) -> tuple[Numpy, Numpy, Numpy | None]:
    """The arrays ``bytes`` (image files, one after the other) and ``offsets`` (where each begins, and the end), labels.

    Args:
        file: the archive.
        labels: False leaves them out.
    """
    with archive_of(file, ENCODED) as archive:
        claim = claimed(archive, "bytes.npy")
        check_bytes(file, claim)
        data = unpacked(archive, "bytes.npy", claim)
        claim = claimed(archive, "offsets.npy")
        check_places(file, claim)
        offsets = unpacked(archive, "offsets.npy", claim)
        check_offsets(file, offsets, len(data))
        return data, offsets, targets_of(archive, file, len(offsets) - 1) if labels else None


@contextmanager
def archive_of(file: Path, kind: Kind) -> Iterator[zipfile.ZipFile]:
    """An open archive; what is wrong with it is said with its name, and how to write a right one."""
    try:
        with opened(file) as stream, zipfile.ZipFile(stream) as archive:
            yield archive
    except InputError as error:
        if str(file) in str(error):
            raise
        raise refused(file, error, kind) from error
    except Exception as error:  # numpy parses headers as Python, which can fail in any way
        raise refused(file, error, kind) from error


def targets_of(archive: zipfile.ZipFile, file: Path, count: int) -> Numpy | None:
    """The labels, where there are some."""
    if "labels.npy" not in archive.namelist():
        return None
    claim = claimed(archive, "labels.npy")
    check_labels(file, claim, count)
    targets = unpacked(archive, "labels.npy", claim)
    check_numbers(file, targets)
    return targets


def claimed(archive: zipfile.ZipFile, name: str) -> Claim:
    """What the header of an array says, if the archive holds that many bytes and they were not blown up."""
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise InputError(f"it has no array {name.removesuffix('.npy')!r}") from None
    with archive.open(entry) as member:
        version = npy.read_magic(member)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise InputError(f"{name} is of version {version}, and 1.0 and 2.0 are read")
        shape, _, dtype = read(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size != entry.file_size - member.tell():
            raise InputError(f"{name} claims {size:,} bytes of {dtype}, and is not that")
    if size > SMALL and size > PACKED * entry.compress_size:
        raise InputError(f"{name} unpacks to {size:,} bytes, more than {PACKED} times what it is")
    if size > memory():
        raise InputError(f"{name} has {size:,} bytes, more than there is memory for")
    return Claim(shape, dtype)


def unpacked(archive: zipfile.ZipFile, name: str, claim: Claim) -> Numpy:
    with archive.open(name) as member:
        found: Numpy = npy.read_array(member, allow_pickle=False)
    assert (found.shape, found.dtype) == claim
    return found


def check_images(file: Path, claim: Claim) -> None:
    """Refuse what is no set of images: other numbers than uint8 have no scale of their own."""
    shape = claim.shape
    if (
        claim.dtype != np.uint8
        or len(shape) not in (3, 4)
        or (len(shape) == 4 and shape[3] != 3)
        or not math.prod(shape)
    ):
        raise InputError(
            f"The images in {file} are {claim.dtype} of shape {shape}. Save them as uint8, (n, height, width, 3), or "
            "(n, height, width) if they are grey."
        )


def check_bytes(file: Path, claim: Claim) -> None:
    if claim.dtype != np.uint8 or len(claim.shape) != 1:
        raise InputError(
            f"The bytes in {file} are {claim.dtype} of shape {claim.shape}. Save them as uint8, (n,), all image files "
            "one after the other."
        )


def check_places(file: Path, claim: Claim) -> None:
    if claim.dtype.kind not in "iu" or len(claim.shape) != 1 or claim.shape[0] < 2:
        raise InputError(
            f"The offsets in {file} are {claim.dtype} of shape {claim.shape}. Save them as integers, one more than "
            "there are images."
        )


def check_offsets(file: Path, offsets: Numpy, size: int) -> None:
    """Refuse places that are not in order, or not within the bytes."""
    rising = (offsets[1:] > offsets[:-1]).all()
    if not rising or int(offsets[0]) != 0 or int(offsets[-1]) != size:
        raise InputError(
            f"The offsets in {file} do not share out its {size:,} bytes. Save where each image begins, rising from 0, "
            "and the number of bytes at the end."
        )


def check_labels(file: Path, claim: Claim, count: int) -> None:
    if claim.shape != (count,) or claim.dtype.kind not in "iu":
        raise InputError(f"The labels in {file} are {claim.dtype} of shape {claim.shape}. Save {count} integers.")


def check_numbers(file: Path, targets: Numpy) -> None:
    """Refuse numbers that are no classes."""
    wrong = (targets < 0) | (targets > np.iinfo(np.int32).max)
    if wrong.any():
        first = int(wrong.argmax())
        raise InputError(
            f"{int(wrong.sum()):,} labels in {file} are no class numbers: image {first} has {targets[first]}. Number "
            "the classes from 0, or leave out the labels."
        )


def memory() -> int:
    """Bytes of the machine's memory; what it is where that cannot be known is for the allocation to say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def refused(file: Path, error: BaseException, kind: Kind) -> InputError:
    cause = " ".join(str(error).split()).removesuffix(".")[:200] or type(error).__name__
    return InputError(f"{file} is not an .npz file with {kind.holds} ({cause}). {kind.remedy}.")
