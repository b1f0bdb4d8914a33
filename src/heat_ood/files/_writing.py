"""Files written whole or not at all, by one writer at a time."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import LockedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["is_part", "locked", "part_of", "replacing", "sweep", "sweep_all", "write"]

_PART = re.compile(r"\.(.+)\.[0-9a-f]{12}\.part")
"""The name of a file while it is written: hidden, and like no other writer's."""
_FORMER = (".part", ".tmp")
"""How such names ended in earlier versions."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A place beside to write to, which becomes ``path`` in one step when the block ends.

    A reader, or a kill, sees the old file or the new one; a block that fails leaves the old one and nothing else. Of
    two writers the last one wins. What a killed writer left is removed.

    Args:
        path: the file to make or to replace; its folder is made.
        durable: wait until the new file is on the disk before the old one goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    part, descriptor = _part(path)
    try:
        yield part
        if durable:
            os.fsync(descriptor)
        if fcntl is None:
            os.close(descriptor)
            descriptor = -1
        os.replace(part, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(part)):
            error.filename, error.filename2 = str(path), None  # a full disk names no file, or one that nobody knows
        with suppress(OSError):
            part.unlink()
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def write(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file, or replace it, in one step; text is UTF-8.

    What is no text in a file's name (``\\udcff``) is written as its escape, which JSON reads back as it was.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(Path(folder) / "new" / "it.txt", "text")
        ...     [file.name for file in (Path(folder) / "new").iterdir()]
        ['it.txt']
    """
    with replacing(path, durable=durable) as part:
        part.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def _part(path: Path) -> tuple[Path, int]:
    """A new file beside ``path``, open and locked as long as its writer lives."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
        try:
            descriptor = os.open(part, flags, 0o666)
        except OSError as error:
            error.filename = str(path)
            raise
        _lock(descriptor)
        if _same(descriptor, part):  # and not swept before it was locked
            return part, descriptor
        os.close(descriptor)


def is_part(name: str, of: str | None = None) -> bool:
    """Whether a file is one that a writer has not finished, by its name; ``of`` asks for those of one file.

    Example:
        >>> is_part(".it.txt.0123456789ab.part"), is_part("it.txt.part", of="it.txt"), is_part("it.txt")
        (True, True, False)
    """
    found = _PART.fullmatch(name)
    if found is not None:
        return of is None or found[1] == of
    return name.endswith(_FORMER[0]) if of is None else name in [of + end for end in _FORMER]


def part_of(name: str) -> str | None:
    """Of which file a file is an unfinished part, by its name; None where it is none.

    Example:
        >>> part_of(".it.txt.0123456789ab.part"), part_of("it.txt.part"), part_of("it.txt")
        ('it.txt', 'it.txt', None)
    """
    found = _PART.fullmatch(name)
    former = (name.removesuffix(end) for end in _FORMER if name.endswith(end))
    return next(former, None) if found is None else found[1]


def sweep(path: Path) -> None:
    """Remove what killed writers left of a file; what a living one writes, and anything else, stays.

    Where there are no locks to tell them apart, all stays.
    """
    sweep_all(path.parent, lambda name: is_part(name, path.name))


def sweep_all(folder: Path, chosen: Callable[[str], bool]) -> None:
    """As :func:`sweep`, in one folder, of all parts whose own name is ``chosen``."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if chosen(entry.name) and is_part(entry.name, part_of(entry.name)):
                with suppress(OSError):  # gone meanwhile
                    if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                        _remove_dead(Path(entry.path))


def _remove_dead(part: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            if _lock(descriptor, wait=False, otherwise=False) and _same(descriptor, part):
                part.unlink()
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Be the only one who writes into a folder; others who ask for it wait, or are refused, until the block ends.

    The folder itself is locked, so nothing is left behind, whatever happens. File systems that have no locks lock
    nothing.

    Args:
        folder: it is made.
        wait: False raises a :class:`LockedError` where another writer has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not _lock(descriptor, wait):
            raise LockedError(f"Another process is writing to {folder}. Wait until it is done, or name another folder.")
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait: bool = True, otherwise: bool = True) -> bool:
    """Whether this writer now has the lock; ``otherwise`` where there are no locks."""
    if fcntl is None:
        return otherwise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return otherwise
    return True


def _same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except OSError:
        return False
