"""Damage that knows no format: to the bytes of a file, and to the files of a folder."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["BYTES", "damage_bytes", "damage_folder", "files_of"]

Bytes = Callable[[random.Random, bytes, bytes], bytes]
"""From a file's content, and that of another valid file, to a damaged one."""


def span(rng: random.Random, content: bytes, most: int = 256) -> tuple[int, int]:
    """A place in the content and how many bytes from there, at least one where there is one."""
    start = rng.randrange(len(content))
    return start, min(rng.choice([1, 2, 4, 8, rng.randrange(1, most)]), len(content) - start)


def flip(rng: random.Random, content: bytes, _: bytes) -> bytes:
    out = bytearray(content)
    for _i in range(rng.choice([1, 1, 1, 4, 32])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def truncate(rng: random.Random, content: bytes, _: bytes) -> bytes:
    return content[: rng.choice([0, 1, 7, 8, len(content) - 1, rng.randrange(len(content))])]


def insert(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start, size = span(rng, content)
    return content[:start] + rng.randbytes(size) + content[start:]


def append(rng: random.Random, content: bytes, _: bytes) -> bytes:
    return content + rng.choice([b"\0", b"\n", b" ", rng.randbytes(64), content])


def overwrite(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start, size = span(rng, content)
    return content[:start] + rng.randbytes(size) + content[start + size :]


def fill(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start, size = span(rng, content, 4096)
    return content[:start] + rng.choice([b"\0", b"\xff", b"0", b"9", b"["]) * size + content[start + size :]


def drop(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start, size = span(rng, content)
    return content[:start] + content[start + size :]


def repeat(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start, size = span(rng, content)
    return content[: start + size] + content[start:]


def exchange(rng: random.Random, content: bytes, _: bytes) -> bytes:
    """Two blocks of one length change places."""
    size = rng.choice([1, 4, 16, 64])
    if len(content) < 2 * size:
        return flip(rng, content, _)
    first = rng.randrange(len(content) - 2 * size + 1)
    second = rng.randrange(first + size, len(content) - size + 1)
    a, b = content[first : first + size], content[second : second + size]
    return content[:first] + b + content[first + size : second] + a + content[second + size :]


def splice(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """The beginning of one valid file and the end of another."""
    cut = rng.randrange(len(content))
    return content[:cut] + other[min(cut, len(other)) :]


def transplant(rng: random.Random, content: bytes, other: bytes) -> bytes:
    start, size = span(rng, content, 1024)
    return content[:start] + other[start : start + size] + content[start + size :]


BYTES: tuple[Bytes, ...] = (
    flip, flip, truncate, insert, append, overwrite, fill, drop, repeat, exchange, splice, transplant,
)  # fmt: skip


def damage_bytes(rng: random.Random, content: bytes, other: bytes) -> tuple[bytes, str]:
    """Damaged bytes, and what was done to them."""
    if not content:
        return rng.randbytes(20), "bytes in an empty file"
    change = rng.choice(BYTES)
    return change(rng, content, other), change.__name__


# Files of a folder


def files_of(folder: Path) -> list[Path]:
    """All regular files that can be read, sorted: not those that an earlier change made endless."""
    found = (file for file in folder.rglob("*") if not file.is_symlink() and file.is_file())
    return sorted(file for file in found if file.stat().st_size < 2**26)


def remove(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    file.unlink()


def swap(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    """Two files of the folder change names."""
    second = rng.choice(files_of(folder))
    one, two = file.read_bytes(), second.read_bytes()
    file.write_bytes(two)
    second.write_bytes(one)


def replace(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    """The file of the same place in another valid folder."""
    there = other / file.relative_to(folder)
    file.write_bytes((there if there.is_file() else rng.choice(files_of(other))).read_bytes())


def empty(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    file.write_bytes(b"")


def sparse(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    """Terabytes that take no space."""
    with open(file, "r+b") as out:
        out.truncate(rng.choice([2**32, 2**40, 2**42]))


def link(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    """A link to the same content elsewhere, to itself, or to what never ends."""
    there = other / file.relative_to(folder)
    file.unlink()
    file.symlink_to(rng.choice([there, file.name, "/dev/zero", "/nowhere"]))


def pipe(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    """Whoever opens it waits for a writer that never comes."""
    file.unlink()
    os.mkfifo(file)


def directory(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    file.unlink()
    file.mkdir()


def stranger(rng: random.Random, folder: Path, file: Path, other: Path) -> None:
    """One more file, under a name that looks as if it belonged."""
    name = rng.choice(
        [f"copy of {file.name}", f".{file.name}.0123456789ab.part", f"{file.name}.part", "z\x1b[31m\udcff"]
    )
    with open(os.fsencode(str(file.parent)) + b"/" + os.fsencode(name), "wb") as out:
        out.write(file.read_bytes())


FOLDER = (remove, swap, replace, empty, sparse, link, pipe, directory, stranger)


def damage_folder(rng: random.Random, folder: Path, other: Path) -> str:
    """Do something to the files of a folder as a whole; says what. ``other`` is a valid folder of the same kind."""
    file, change = rng.choice(files_of(folder)), rng.choice(FOLDER)
    change(rng, folder, file, other)
    return f"{change.__name__} {file.relative_to(folder)}"


def copied(source: Path, folder: Path) -> Path:
    """A fresh copy of a valid folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    return folder
