"""A TOML file, read key by key: what is missing, of another type or left over is an error that names it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InputError
from ..files import read

__all__ = ["Table", "read_toml"]

T = TypeVar("T")
KINDS: dict[type, str] = {str: "text", int: "a whole number", bool: "true or false", dict: "a table", float: "a number"}
REQUIRED: Any = object()
LARGEST = 1 << 24
"""Bytes of a file."""


class Table:
    """One table of a file.

    Args:
        data: its keys and values.
        file: the file, for errors.
        where: the table's own name in the file, empty for the file's top.
    """

    def __init__(self, data: dict[str, Any], file: Path, where: str = "") -> None:
        self.data, self.file, self.where = data, file, where
        self.known: list[str] = []

    def error(self, key: str, cause: str, remedy: str) -> InputError:
        """An error that names the file and the key."""
        return InputError(f"{self.file}: {self.path(key)} {cause}. {remedy}")

    def missing(self, key: str, remedy: str) -> InputError:
        """An error that names a key that is not there, and the one that may be it, misspelt."""
        close = difflib.get_close_matches(key, [name for name in self.data if name not in self.known], n=1)
        meant = f"Is {self.path(close[0])} meant to be it? " if close else ""
        return self.error(key, "is missing", f"{meant}{remedy}")

    def path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def take(self, key: str, kind: type[T], default: Any = REQUIRED) -> Any:
        """The value of a key, which is of a type."""
        self.known.append(key)
        if key not in self.data:
            if default is REQUIRED:
                raise self.missing(key, f"Add it: {KINDS[kind]}.")
            return default
        return self.checked(key, self.data[key], kind)

    def checked(self, key: str, value: Any, kind: type) -> Any:
        kinds = (int, float) if kind is float else kind
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"is {value!r}", f"Give {KINDS[kind]}.")
        return value

    def text(self, key: str, default: Any = REQUIRED) -> Any:
        """Text that says something."""
        value = self.take(key, str, default)
        if value == "" and default is REQUIRED:
            raise self.error(key, "is empty", "Give text.")
        return value

    def many(self, key: str, kind: type[T], default: Any = REQUIRED) -> tuple[T, ...]:
        """A list of values of one type."""
        self.known.append(key)
        if key not in self.data and default is not REQUIRED:
            return default  # type: ignore[no-any-return]
        if key not in self.data:
            raise self.missing(key, f"Give [ ] with {KINDS[kind]}, ….")
        value = self.data[key]
        if not isinstance(value, list):
            raise self.error(key, f"is {value!r}", f"Give [ ] with {KINDS[kind]}, ….")
        return tuple(self.checked(f"{key}[{i}]", item, kind) for i, item in enumerate(value))

    def table(self, key: str, default: Any = REQUIRED) -> Any:
        """A table within; where there is none, the default."""
        value = self.take(key, dict, default)
        return Table(value, self.file, self.path(key)) if isinstance(value, dict) else value

    def tables(self, key: str, default: Any = REQUIRED) -> tuple[Table, ...]:
        """The tables of an array of them."""
        found = self.many(key, dict, default)
        return tuple(Table(item, self.file, f"{self.path(key)}[{i}]") for i, item in enumerate(found))

    def end(self) -> None:
        """Nothing may be left over."""
        for key in self.data:
            if key not in self.known:
                close = difflib.get_close_matches(key, self.known, n=1)
                meant = f"Did you mean {close[0]}? " if close else ""
                raise self.error(key, "is not a key", f"{meant}There are {', '.join(self.known)}.")

    def made(self, make: Callable[..., T], **values: Any) -> T:
        """What a class makes of the values; its own errors get the file's name."""
        self.end()
        try:
            return make(**values)
        except InputError as error:
            raise InputError(f"{self.file}: {self.where or 'the file'}: {error}") from error


def read_toml(file: Path) -> Table:
    """The top table of a file."""
    try:
        data = tomllib.loads(read(file, LARGEST).decode("utf-8"))
        check_numbers(data)
    except (ValueError, RecursionError, MemoryError) as error:
        cause = "it is nested too deep" if isinstance(error, RecursionError) else str(error).removesuffix(".")
        raise InputError(f"{file} is no TOML file ({cause}). See docs/benchmarks.md for an example.") from error
    return Table(data, file)


def check_numbers(value: Any) -> None:
    """Refuse whole numbers of more than 64 bits, which TOML does not have and nothing here can mean."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        check_numbers(item)
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError("a whole number has more than 64 bits")
