"""Which part of a set of samples a shard is: a number, of how many, and the block of samples that follows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import url_of

__all__ = ["NAME", "Shard", "folder_of", "shard_name", "shards_in"]

NAME = re.compile(r"shard-([0-9]{5,9})")
MOST = 1_000_000
"""Shards of one store."""
LARGEST_STEP, STEPS = 1024, 16
"""Blocks begin at multiples of a power of two, at most the first, of which each block has at least so many."""


@dataclass(frozen=True)
class Shard:
    """Part ``number`` of ``of`` parts, counted from 0: ``Shard(3, 64)``, on the command line ``--shard 3/64``.

    A part is a block of samples that follow each other, so that all parts in the order of their numbers are all
    samples in order. Blocks begin at multiples of a power of two (up to 1,024, as far as parts stay even): with a batch
    size that is one too, the batches of a part are batches of the whole.

    Args:
        number: of the part, from 0 to ``of - 1``.
        of: how many parts there are.
        first: the number of its first sample (batch, tar file) among all; None where nothing is cut yet.
        total: how many of them all parts have together; None as before.

    Example:
        >>> [Shard(i, 3).block(100) for i in range(3)]
        [range(0, 32), range(32, 66), range(66, 100)]
        >>> Shard.of_text("3/64").name
        'shard-00003'
    """

    number: int
    of: int
    first: int | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.of <= MOST:
            raise InputError(f"There can be 1 to {MOST:,} shards, not {self.of:,}.")
        if not 0 <= self.number < self.of:
            raise InputError(
                f"There is no shard {self.number}/{self.of}: shards are counted from 0, the first is 0/{self.of} and "
                f"the last {self.of - 1}/{self.of}."
            )

    @classmethod
    def of_text(cls, text: str) -> Shard:
        """What ``3/64`` says."""
        found = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*", text)
        if found is None:
            raise InputError(f"{text!r} is no shard. Write its number and how many there are, 0/64 to 63/64.")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of_any(cls, shard: Shard | str | Sequence[int]) -> Shard:
        """A shard as a user may write it: itself, ``"3/64"``, or ``(3, 64)``."""
        if isinstance(shard, Shard):
            return shard
        if isinstance(shard, str):
            return cls.of_text(shard)
        number, of = shard
        return cls(int(number), int(of))

    @property
    def name(self) -> str:
        """Of its folder."""
        return shard_name(self.number)

    def block(self, total: int, what: str = "samples") -> range:
        """The numbers of its samples among so many; ``what`` they are, for the error."""
        if total < self.of:
            raise InputError(
                f"There are {total:,} {what} for {self.of:,} shards, so some would be empty. Take at most {total:,} "
                "shards."
            )
        step = 1
        while step < LARGEST_STEP and 2 * step * STEPS * self.of <= total:
            step *= 2
        first, end = (i * total // self.of // step * step for i in (self.number, self.number + 1))
        return range(first, total if self.number + 1 == self.of else end)

    def at(self, first: int, total: int) -> Shard:
        """The same part of samples that are counted."""
        return replace(self, first=first, total=total)

    def described(self) -> str:
        """In words, for errors."""
        return f"shard {self}" if self.total is None else f"shard {self} of {self.total:,}"

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def to_list(self) -> list[int | None]:
        """As a manifest holds it."""
        return [self.number, self.of, self.first, self.total]

    @classmethod
    def read(cls, data: Any) -> Shard:
        """What :meth:`to_list` gave."""
        if not isinstance(data, list) or len(data) != 4:
            raise TypeError("shard is no list of four")
        for value, needed in zip(data, (True, True, False, False), strict=True):
            fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
            if not fits and (needed or value is not None):
                raise ValueError("shard is damaged")
        return cls(*data)


def shard_name(number: int) -> str:
    """Of the folder of a shard.

    Example:
        >>> shard_name(3)
        'shard-00003'
    """
    return f"shard-{number:05d}"


def folder_of(path: str | PathLike[str], shard: Shard) -> str | Path:
    """The folder of a shard in that of its store, which must not be a store by itself; a URL where that is one."""
    if (url := url_of(path)) is not None:
        return f"{url}/{shard.name}"
    root = Path(path)
    if (root / "manifest.json").exists() and not shards_in(root):
        raise InputError(f"{root} holds features that are not in shards. Choose another path for shards.")
    return root / shard.name


def shards_in(folder: Path) -> dict[int, str]:
    """The folders of shards that lie in a folder, by their numbers; one look at the folder, none at the shards."""
    if not folder.is_dir():
        return {}
    found = (NAME.fullmatch(entry.name) for entry in folder.iterdir())
    numbers = sorted(int(match[1]) for match in found if match is not None)
    return {number: shard_name(number) for number in numbers}
