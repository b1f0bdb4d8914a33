"""A kind of file of ours: what it says it is, and how new it may be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..errors import Argument, FormatError
from ._reading import read

__all__ = ["Format"]

_Remedy: TypeAlias = "str | tuple[str | Argument, ...]"
"""What the reader can do: text, or parts of an error's message."""
LARGEST = 128 * 2**20
"""Bytes of the largest JSON file that is read: the names of some million samples."""
MOST = 5_000_000
"""So many values at most may stand in it: each takes much more memory than its two bytes."""


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

    def unstamp(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content without its header."""
        return {key: value for key, value in content.items() if key not in self.stamp({})}

    def check(self, content: Any, what: object, foreign: _Remedy, damaged: _Remedy) -> dict[str, Any]:
        """The content of a file, if it is of this format and not too new.

        Args:
            content: what the file holds.
            what: the file, for the error.
            foreign: the remedy where it is something else.
            damaged: the remedy where it is broken.
        """
        if not isinstance(content, dict) or content.get("format") != self.name:
            raise FormatError(f"{what} is not of the format {self.name!r}. ", *_parts(foreign))
        version = content.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise FormatError(f"{what} is damaged: its version is {version!r}. ", *_parts(damaged))
        if version > self.version:
            raise FormatError(
                f"{what} has format version {version}; this heat-ood reads up to {self.version}. Upgrade with: "
                "pip install -U heat-ood"
            )
        return content

    def parse(self, text: str | bytes, what: object, foreign: _Remedy, damaged: _Remedy) -> dict[str, Any]:
        """The content of a JSON text of this format; see :meth:`check`."""
        try:
            content = _parsed(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{what} is damaged: it is not JSON ({error}). ", *_parts(damaged)) from error
        return self.check(content, what, foreign, damaged)

    def read(self, path: Path, foreign: _Remedy, damaged: _Remedy, *, follow: bool = True) -> dict[str, Any]:
        """The content of a JSON file of this format; see :meth:`check` and, for ``follow``, :func:`files.read`."""
        try:
            text = read(path, LARGEST, follow=follow)
        except FormatError as error:
            raise FormatError(f"{error} ", *_parts(foreign)) from error
        return self.parse(text, path, foreign, damaged)


def _parsed(text: str | bytes) -> Any:
    """JSON as we write it: no key twice, no number that JSON does not have."""
    marks = ("[", "{", ",") if isinstance(text, str) else (b"[", b"{", b",")
    if sum(map(text.count, marks)) > MOST:  # type: ignore[arg-type]
        raise ValueError("it has too many values")
    return json.loads(text, object_pairs_hook=_once, parse_constant=_refused)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it has the key {next(key for key in keys if keys.count(key) > 1)!r:.60} twice")
    return found


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _parts(remedy: _Remedy) -> tuple[str | Argument, ...]:
    return (remedy,) if isinstance(remedy, str) else remedy
