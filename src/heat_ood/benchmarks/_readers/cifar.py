"""CIFAR-10 and CIFAR-100 as their authors' binary files, mapped into memory; the pickled versions are not loaded."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...errors import InputError
from ...images import ImageSet, spread
from .spec import SetSpec, checksum

__all__ = ["LAYOUTS", "BinaryImages", "Layout", "open_cifar"]

LONGEST = 1 << 16
"""Bytes of the file with the names of the classes."""
SIDE = 32
PIXELS = 3 * SIDE * SIDE
HOME = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class Layout:
    """A record is some label bytes, the last of which counts, then 1,024 bytes each of red, green and blue."""

    title: str
    classes: int
    label_bytes: int
    files: dict[str, tuple[str, ...]]
    names: str
    pickled: dict[str, tuple[str, ...]]
    get: str

    @property
    def record(self) -> int:
        return self.label_bytes + PIXELS


BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
LAYOUTS = {
    "cifar10-bin": Layout(
        title="CIFAR-10",
        classes=10,
        label_bytes=1,
        files={"train": tuple(f"{name}.bin" for name in BATCHES), "test": ("test_batch.bin",)},
        names="batches.meta.txt",
        pickled={"train": BATCHES, "test": ("test_batch",)},
        get=f"the binary version, {HOME}/cifar-10-binary.tar.gz (162 MB), unpacked",
    ),
    "cifar100-bin": Layout(
        title="CIFAR-100",
        classes=100,
        label_bytes=2,
        files={"train": ("train.bin",), "test": ("test.bin",)},
        names="fine_label_names.txt",
        pickled={"train": ("train",), "test": ("test",)},
        get=f"the binary version, {HOME}/cifar-100-binary.tar.gz (161 MB), unpacked",
    ),
}


class BinaryImages(ImageSet):
    """Images of CIFAR's binary files, one file after the other; see :func:`open_cifar`."""

    def __init__(self, root: Path, parts: tuple[Path, ...], layout: Layout, labels: bool, limit: int | None) -> None:
        self.parts, self.layout = parts, layout
        self.ends = list(accumulate(len(part) for part in self.mapped))
        found = np.concatenate([part[:, layout.label_bytes - 1] for part in self.mapped])
        if found.max() >= layout.classes:
            raise InputError(
                f"{root} is not {layout.title}: a label is {found.max()}, and there are {layout.classes} classes. "
                f"Get {layout.get}."
            )
        rows = spread(len(found), limit)
        targets = found[list(rows)].astype(np.int64) if labels else None
        super().__init__(root, rows, targets, self.read_names(root) if labels else None)

    @cached_property
    def mapped(self) -> list[np.ndarray[Any, Any]]:
        return [np.memmap(file, np.uint8, "r").reshape(-1, self.layout.record) for file in self.parts]

    def read_names(self, root: Path) -> list[str] | None:
        file = root / self.layout.names
        names = []
        if file.is_file() and file.stat().st_size <= LONGEST:
            names = file.read_text(encoding="utf-8", errors="replace").split()
        return names if len(names) == self.layout.classes else None

    def read(self, row: int) -> Image.Image:
        part = bisect_right(self.ends, row)
        record = self.mapped[part][row - (self.ends[part - 1] if part else 0)]
        return Image.fromarray(record[-PIXELS:].reshape(3, SIDE, SIDE).transpose(1, 2, 0))

    @property
    def uniform(self) -> bool:
        return True

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "checksums": {file.name: checksum(file) for file in self.parts}}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "mapped"}


def open_cifar(spec: SetSpec, root: Path, labels: bool, limit: int | None) -> ImageSet:
    """The images of one split, in the order of the files; CIFAR-100 has its fine labels."""
    layout, folder = LAYOUTS[spec.reader], spec.at(root)
    assert spec.split is not None
    parts = tuple(folder / name for name in layout.files[spec.split])
    absent = [file for file in parts if not file.is_file()]
    if absent:
        pickled = find_pickled(folder, layout.pickled[spec.split])
        cause = (
            None
            if pickled is None
            else (f"{pickled} holds the pickled Python version, which is not loaded, because a pickle can run any code")
        )
        raise spec.missing(absent[0], layout.get, cause)
    for file in parts:
        size = file.stat().st_size
        if not size or size % layout.record:
            raise InputError(
                f"{file} has {size:,} bytes, no whole number of {layout.title}'s records of {layout.record:,}: it is "
                f"cut short or of another kind. Get it again: {layout.get}."
            )
    return BinaryImages(folder, parts, layout, labels, limit)


def find_pickled(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Where the pickled version lies: in the folder itself, or beside it under its own name."""
    beside = folder.with_name(folder.name.replace("-batches-bin", "-batches-py").replace("-binary", "-python"))
    return next((f for f in (folder, beside) if all((f / name).is_file() for name in names)), None)
