"""Images in tar files as WebDataset writes them: ``0001.jpg`` with its class number in ``0001.cls`` beside it."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ..errors import InputError
from ._cutting import Cut, spread
from ._decoding import LARGEST_FILE, SKIP, UnreadableImageError, cause_of, decode_stream
from ._files import SUFFIXES
from ._regular import opened
from ._sets import ImageSet, stamp_of

__all__ = ["TarImages", "expanded", "open_tars"]

BRACES = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}|\{([^{}]*,[^{}]*)\}")
MOST = 1_000_000
"""Files that one name with braces may stand for."""
LABEL, LONGEST = ".cls", 32


def expanded(pattern: str) -> list[str]:
    """The names that braces stand for, as a shell writes them.

    Example:
        >>> expanded("train-{008..010}.tar"), expanded("{a,b}.tar")
        (['train-008.tar', 'train-009.tar', 'train-010.tar'], ['a.tar', 'b.tar'])
    """
    texts, choices, end = list[str](), list[list[str]](), 0
    for found in BRACES.finditer(pattern):
        texts.append(pattern[end : found.start()])
        end = found.end()
        first, last, names = found.groups()
        if first is None:
            choices.append(names.split(","))
            continue
        if not 0 <= int(last) - int(first) < MOST:
            raise InputError(f"{found[0]} in {pattern!r} stands for no files, or for too many.")
        choices.append([f"{i:0{len(first)}d}" for i in range(int(first), int(last) + 1)])
    if np.prod([len(choice) for choice in choices], dtype=float) > MOST:
        raise InputError(f"{pattern!r} stands for too many files.")
    texts.append(pattern[end:])
    return ["".join(a + b for a, b in zip(texts, (*chosen, ""), strict=True)) for chosen in product(*choices)]


class Entry(NamedTuple):
    """Where an image lies in a tar file, and its label."""

    tar: int
    name: str
    start: int
    size: int
    label: int | None


class TarImages(ImageSet):
    """The images of tar files, read where they lie."""

    def __init__(
        self, root: Path, tars: Sequence[Path], entries: list[Entry], rows: Sequence[int], labels: bool
    ) -> None:
        given = [entries[row].label for row in rows]
        known = [label for label in given if label is not None]
        if labels and known and len(known) < len(given):
            missing = entries[rows[given.index(None)]].name
            raise InputError(
                f"Some images of {root} have a {LABEL} file and others have none, {missing} among them. Give all of "
                "them one, or leave the labels out."
            )
        super().__init__(root, rows, np.array(known, dtype=np.int64) if labels and known else None, None)
        self.tars, self.entries = list(tars), entries

    def read(self, row: int) -> Image.Image:
        entry = self.entries[row]
        tar = self.tars[entry.tar]
        try:
            with opened(tar) as stream:
                stream.seek(entry.start)
                return decode_stream(io.BytesIO(stream.read(entry.size)))
        except Exception as error:  # Pillow raises almost anything on damaged files
            raise UnreadableImageError(
                f"The image {entry.name} in {tar} cannot be read ({cause_of(error)}). Replace or remove it, or leave "
                f"out such files with {SKIP}."
            ) from error

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(f"{self.tars[e.tar].name}/{e.name}" for e in map(self.entries.__getitem__, self.rows))

    @property
    def identity(self) -> dict[str, Any]:
        return {**super().identity, "files": list(self.files)}

    @property
    def stamps(self) -> list[tuple[int, int]]:
        times = [stamp_of(tar)[1] for tar in self.tars]
        return [(e.size, times[e.tar]) for e in map(self.entries.__getitem__, self.rows)]


def open_tars(
    root: Path, tars: Sequence[Path], labels: bool, limit: int | None, skip_unreadable: bool, part: Cut | None
) -> TarImages:
    """The images of tar files in order; a part of them is a block of whole files."""
    place = None
    if part is not None:
        block = part(len(tars))
        tars, place = tars[block.start : block.stop], (block.start, len(tars))
    entries = [entry for number, tar in enumerate(tars) for entry in entries_of(tar, number)]
    if not entries:
        raise InputError(f"There are no images in {tars[0]}{' and the others' * bool(tars[1:])}.")
    images = TarImages(root, tars, entries, spread(len(entries), limit), labels)
    if skip_unreadable:
        images = readable(images, labels)
    images.place = place
    return images


def readable(images: TarImages, labels: bool) -> TarImages:
    """The set without the images that cannot be read, which ``skipped`` names."""
    skipped, rows = dict[str, str](), list[int]()
    for row, name in zip(images.rows, images.files, strict=True):
        try:
            images.read(row)
            rows.append(row)
        except UnreadableImageError as error:
            skipped[name] = cause_of(error.__cause__ or error)
    if not rows:
        name, why = next(iter(skipped.items()))
        raise InputError(f"No image of {images.root} can be read ({name}: {why}).")
    found = TarImages(images.root, images.tars, images.entries, rows, labels)
    found.skipped = skipped
    return found


def entries_of(tar: Path, number: int) -> Iterator[Entry]:
    """The images of a tar file, in its order; what belongs together has one name up to its first dot."""
    try:
        with opened(tar) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            found: dict[str, tuple[str, int, int]] = {}
            labels: dict[str, int] = {}
            for member in archive:
                folder, slash, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                key, suffix = folder + slash + stem, "." + suffix.lower()
                if not member.isreg() or name.startswith(".") or member.size > LARGEST_FILE:
                    continue
                if suffix.endswith(SUFFIXES):
                    found.setdefault(key, (member.name, member.offset_data, member.size))
                elif suffix == LABEL:
                    stream.seek(member.offset_data)
                    labels[key] = class_number(stream.read(min(member.size, LONGEST)), member.name)
    except InputError as error:
        raise InputError(f"{tar} cannot be read. ", *error.parts) from error
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{tar} cannot be read ({cause_of(error)}). Pass tar files that are not compressed, as WebDataset writes "
            "them."
        ) from error
    for key, (name, start, size) in found.items():
        yield Entry(number, name, start, size, labels.get(key))


def class_number(text: bytes, name: str) -> int:
    if not text.strip().isdigit() or len(text) >= LONGEST:
        raise InputError(f"{name} holds {text[:20]!r}, which is no class number.")
    return int(text)
