"""A column whose rows lie in many files: it has the size of a tensor, and is read where it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

__all__ = ["Part", "Parts", "Pieces", "whole"]

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bytes: TypeAlias = "np.ndarray[Any, Any]"
KEPT = 2**26
"""Bytes of a slice that stay in memory once it was read, as long as the slice does."""
VECTOR = 2**30
"""Bytes of a vector, the labels, that stay in memory once one of them was read."""
GATHERED = 2**26
"""Bytes that are gathered at a time."""


class Part(NamedTuple):
    """The rows of one file, and their bytes."""

    rows: Tensor
    bytes: memoryview

    @classmethod
    def of(cls, rows: Tensor) -> Part:
        return cls(rows, rows.numpy().reshape(-1).view(np.uint8).data)


class Parts(Protocol):
    """The files of a column by their numbers: the bytes of those that are held now, else None, and any by a call."""

    @property
    def views(self) -> Sequence[memoryview | None]: ...

    def __call__(self, number: int, /) -> Part: ...

    def at(self, numbers: Numbers, places: Numbers, row: int, /) -> Bytes | None:
        """The bytes of rows by their files and places in them, read at once; None where not all files are held."""


class Pieces:
    """A column over many files. Slices are views; rows by their numbers, and all that is asked for whole, are read.

    Args:
        parts: the rows of a file by its number, mapped.
        starts: the number of each file's first row, and at the end that of all rows.
        width: of a row; 0 of a vector.
        dtype: of the numbers.
        rows: those that a slice has of it; None is all.
        chosen: those of its columns that a view has; None is all.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        parts: Parts,
        starts: Numbers,
        width: int,
        dtype: torch.dtype,
        rows: range | None = None,
        chosen: Tensor | None = None,
    ) -> None:
        self.parts, self.starts, self.width, self.dtype, self.chosen = parts, starts, width, dtype, chosen
        self.rows = range(int(starts[-1])) if rows is None else rows
        self._kept: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of a tensor."""
        width = self.width if self.chosen is None else len(self.chosen)
        return (len(self), width) if self.width else (len(self),)

    def __getitem__(self, index: Any) -> Tensor | Pieces:
        """A slice as a view, a tensor where it lies in one file; rows by their numbers; ``[:, classes]`` as a view."""
        if isinstance(index, tuple):
            rows, chosen = index
            if rows != slice(None) or self.chosen is not None:
                raise IndexError(f"{index} of a column of many files")
            return Pieces(self.parts, self.starts, self.width, self.dtype, self.rows, chosen)
        if not isinstance(index, slice):
            return self.gather(index)
        if self._kept is not None:
            return self._kept[index]
        rows = self.rows[index]
        if len(rows) and rows.step == 1:
            number = self.file_of(rows[0])
            if rows[-1] < self.starts[number + 1]:
                return self.cut(number, rows)
        return Pieces(self.parts, self.starts, self.width, self.dtype, rows, self.chosen)

    def file_of(self, row: int) -> int:
        return int(np.searchsorted(self.starts, row, "right")) - 1

    def cut(self, number: int, rows: range) -> Tensor:
        """Rows that follow each other, as far as they lie in one file."""
        start, end = int(self.starts[number]), int(self.starts[number + 1])
        found = self.parts(number).rows[max(rows[0], start) - start : min(rows[-1] + 1, end) - start]
        return found if self.chosen is None else found[:, self.chosen]

    def whole(self) -> Tensor:
        """All rows; those of a vector, and of a small slice, stay in memory as long as it does."""
        if self._kept is not None:
            return self._kept
        if not len(self):
            return torch.empty(self.shape, dtype=self.dtype)
        if self.rows.step == 1:
            files = range(self.file_of(self.rows[0]), self.file_of(self.rows[-1]) + 1)
            sizes = np.diff(self.starts)
            parts = [self.cut(number, self.rows) for number in files if sizes[number]]
            found = parts[0] if len(parts) == 1 else torch.cat(parts)
        else:
            found = self.read(np.arange(len(self)))
        if found.nbytes <= (KEPT if self.width else VECTOR):
            self._kept = found
        return found

    def gather(self, index: Tensor) -> Tensor:
        """Rows by their numbers, those below zero from the end, in memory."""
        if not self.width and len(self) * self.dtype.itemsize <= VECTOR:
            return self.whole()[index]
        if self._kept is not None:
            return self._kept[index]
        where = index.cpu().numpy()
        where = np.where(where < 0, where + len(self), where)
        if len(where) and not (where.min() >= 0 and where.max() < len(self)):
            raise IndexError(f"a sample beyond the {len(self)} that there are")
        return self.read(where)

    def read(self, where: Numbers) -> Tensor:
        """Rows by their numbers, none of them below zero or too large."""
        where = self.rows.start + self.rows.step * where
        shape = (len(where), self.width) if self.width else (len(where),)
        row = self.dtype.itemsize * max(self.width, 1)
        most = max(1, GATHERED // row)
        if 0 < len(where) <= most:
            found = torch.frombuffer(self.joined(where, row), dtype=self.dtype).view(shape)
        else:
            found = torch.empty(shape, dtype=self.dtype)
            for start in range(0, len(where), most):
                some = torch.frombuffer(self.joined(where[start : start + most], row), dtype=self.dtype)
                found[start : start + most] = some.view(-1, *shape[1:])
        return found if self.chosen is None else found[:, self.chosen]

    def joined(self, where: Numbers, row: int) -> bytearray | Bytes:
        """The bytes of rows; a slice of bytes for each is quicker than a tensor for each file."""
        numbers = files_of(self.starts, where)
        offsets = (where - self.starts[numbers]) * row
        if (found := self.parts.at(numbers, offsets, row)) is not None:
            return found
        places, each = offsets.tolist(), numbers.tolist()
        try:
            return bytearray().join(slices(self.parts.views, each, places, row))
        except TypeError:  # some are to be opened, or were closed meanwhile
            return bytearray().join(slices({n: self.parts(n).bytes for n in set(each)}, each, places, row))


def files_of(starts: Numbers, rows: Numbers) -> Numbers:
    """The numbers of the files that rows lie in: by a guess, which is right where files are of about one size.

    Example:
        >>> files_of(np.array([0, 4, 4, 9]), np.array([0, 3, 4, 8])).tolist()
        [0, 0, 2, 2]
    """
    files = len(starts) - 1
    guess = (rows * (files / max(int(starts[-1]), 1))).astype(np.int64).clip(0, files - 1)
    guess -= rows < starts[guess]
    guess = guess.clip(0)
    guess += rows >= starts[guess + 1]
    guess = guess.clip(max=files - 1)
    if ((starts[guess] <= rows) & (rows < starts[guess + 1])).all():
        return guess
    return np.searchsorted(starts, rows, "right") - 1


def slices(views: Any, numbers: list[int], places: list[int], row: int) -> list[memoryview]:
    return [views[number][place : place + row] for number, place in zip(numbers, places, strict=True)]


def whole(column: Tensor | Pieces) -> Tensor:
    """A column as a tensor: itself, or read."""
    return column if isinstance(column, Tensor) else column.whole()
