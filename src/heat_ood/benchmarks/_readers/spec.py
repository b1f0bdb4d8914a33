"""Which images are meant, and what is said where they are not there."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError

__all__ = ["READERS", "MissingData", "SetSpec", "checksum"]

READERS = ("cifar10-bin", "cifar100-bin", "svhn-mat", "folder", "lsun", "imglist", "npz", "encoded-npz", "digits")
SPLIT = ("cifar10-bin", "cifar100-bin", "svhn-mat")
SPLITS = ("train", "test")


class MissingData(InputError):  # noqa: N818
    """Files that are not on this machine: nothing is downloaded.

    Args:
        name: what is missing.
        put: where it was looked for.
        get: where to download it.
        cause: what stands there instead.
    """

    def __init__(self, name: str, put: Path, get: str, cause: str | None = None) -> None:
        self.name, self.put, self.get = name, put, get
        super().__init__(
            f"{name} is not there: {cause or f'there is no {put}'}. {f'Get it: {get}. ' if get else ''}Put it at {put}."
        )


@dataclass(frozen=True)
class SetSpec:
    """A set of images on disk.

    Args:
        name: unlike that of any other set of a suite; part of file names.
        reader: how it is stored, one of ``READERS``.
        path: of the folder or file, within the data root; one that begins with ``/`` or ``~`` stands alone.
        split: ``train`` or ``test``, for the CIFAR and SVHN files.
        images: of an image list: the folder that its paths start from, within the data root.
        get: where to download it.
        limit: so many images, spread evenly over the set; None takes all.
        rows: of encoded images: which, and in which order, as ``module:function``; it is given the ``file``, and
            returns their numbers from 0.
        folder: where the module of ``rows`` is looked for first: beside the suite's file.

    Example:
        >>> SetSpec("svhn", "svhn-mat", "svhn", split="test").at("data").as_posix()
        'data/svhn'
    """

    name: str
    reader: str
    path: str
    split: str | None = None
    images: str | None = None
    get: str = ""
    limit: int | None = None
    rows: str | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.reader not in READERS:
            raise InputError(f"There is no reader {self.reader!r} for {self.name}. There are {', '.join(READERS)}.")
        if (self.reader in SPLIT) != (self.split in SPLITS):
            wanted = f"split = {' or '.join(map(repr, SPLITS))}" if self.reader in SPLIT else "no split"
            raise InputError(f"{self.name} is read by {self.reader}, which takes {wanted}, not {self.split!r}.")
        if self.images is not None and self.reader != "imglist":
            raise InputError(f"{self.name} is read by {self.reader}; images is of imglist alone. Leave it out.")
        if self.rows is not None and (self.reader != "encoded-npz" or not all(self.rows.partition(":"))):
            raise InputError(
                f"{self.name} is read by {self.reader}, with rows = {self.rows!r}. Leave it out, or with encoded-npz "
                "name a function as module:function."
            )
        if self.limit is not None and self.limit < 1:
            raise InputError(f"The limit of {self.name} is {self.limit}. Leave it out, or take at least 1 image.")

    def at(self, root: str | Path, path: str | None = None) -> Path:
        """Where it lies, given the data root."""
        return Path(root).expanduser() / Path(self.path if path is None else path).expanduser()

    def missing(self, put: Path, get: str = "", cause: str | None = None) -> MissingData:
        """The error to raise where it is not there."""
        return MissingData(self.name, put, self.get or get, cause)


def checksum(file: Path) -> int:
    """The CRC-32 of a file, read a piece at a time."""
    total = 0
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            total = zlib.crc32(piece, total)
    return total
