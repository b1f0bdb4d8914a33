"""Arrays of an ``.npz`` file: what it claims is compared with what it brings before anything is unpacked."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from ..errors import InputError
from ._regular import opened

__all__ = ["read_arrays"]

PACKED = 200
"""How many times its size an array may unpack to; images of real things do not come near."""
SMALL = 256 << 20
"""Bytes that any array may have, however well it is packed."""
Numpy = np.ndarray[Any, Any]


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
    try:
        with opened(file) as stream, zipfile.ZipFile(stream) as archive:
            known = archive.namelist()
            claim = claimed(archive, "images.npy")
            check_images(file, claim)
            images = unpacked(archive, "images.npy", claim)
            targets = None
            if labels and "labels.npy" in known:
                claim = claimed(archive, "labels.npy")
                check_labels(file, claim, len(images))
                targets = unpacked(archive, "labels.npy", claim)
                check_numbers(file, targets)
            return images, targets
    except InputError as error:
        if str(file) in str(error):
            raise
        raise refused(file, error) from error
    except Exception as error:  # numpy parses headers as Python, which can fail in any way
        raise refused(file, error) from error


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


def refused(file: Path, error: BaseException) -> InputError:
    cause = " ".join(str(error).split()).removesuffix(".")[:200] or type(error).__name__
    return InputError(
        f"{file} is not an .npz file with an array 'images' ({cause}). Write one with "
        "numpy.savez(file, images=…, labels=…), or pass a folder of images."
    )
