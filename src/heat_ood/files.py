"""Files: written whole or not at all, with a header that says what they are."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .errors import FormatError

__all__ = ["PART", "Format", "plain", "read_json", "replacing", "write"]

PART = ".part"
"""What the name of a file ends in while it is written."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A place beside to write to, which becomes ``path`` in one step when the block ends.

    A reader, or a kill, sees the old file or the new one; a block that fails leaves the old one and nothing else.

    Args:
        path: the file to make or to replace; its folder is made.
        durable: wait until the new file is on the disk before the old one goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + PART)
    try:
        yield part
        if durable:
            with open(part, "rb") as file:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file, or replace it, in one step; text is UTF-8.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(Path(folder) / "new" / "it.txt", "text")
        ...     [file.name for file in (Path(folder) / "new").iterdir()]
        ['it.txt']
    """
    with replacing(path, durable=durable) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


class Format(NamedTuple):
    """A kind of file of ours: what it says it is, and the newest version that is read.

    Example:
        >>> pages = Format("heat-ood pages", 2)
        >>> pages.stamp({"text": "…"})
        {'format': 'heat-ood pages', 'version': 2, 'text': '…'}
        >>> pages.check({"format": "heat-ood pages", "version": 3}, "a.json", "Pass a page.", "Print it again.")
        Traceback (most recent call last):
        heat_ood.errors.FormatError: a.json has format version 3; this heat-ood reads up to 2. Upgrade with: pip ...
    """

    name: str
    version: int

    def stamp(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content with its header."""
        return {"format": self.name, "version": self.version, **content}

    def check(self, content: Any, what: object, foreign: str, damaged: str) -> dict[str, Any]:
        """The content of a file, if it is of this format and not too new.

        Args:
            content: what the file holds.
            what: the file, for the error.
            foreign: the remedy where it is something else.
            damaged: the remedy where it is broken.
        """
        if not isinstance(content, dict) or content.get("format") != self.name:
            raise FormatError(f"{what} is not of the format {self.name!r}. {foreign}")
        version = content.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise FormatError(f"{what} is damaged: its version is {version!r}. {damaged}")
        if version > self.version:
            raise FormatError(
                f"{what} has format version {version}; this heat-ood reads up to {self.version}. Upgrade with: "
                "pip install -U heat-ood"
            )
        return content


def read_json(path: Path, damaged: str) -> Any:
    """What a JSON file holds; one that is not JSON is a FormatError with the remedy ``damaged``."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is damaged: it is not JSON ({error}). {damaged}") from error


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses and mappings as objects, tuples as lists, infinities and NaN as text.

    Anything that has a ``to_dict`` stands as what it gives, a number of numpy as a number, and all else as its text.

    Example:
        >>> plain({"a": (1, math.inf), 2: None})
        {'a': [1, 'inf'], '2': None}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return plain(value.item()) if hasattr(value, "item") and hasattr(value, "dtype") else str(value)
