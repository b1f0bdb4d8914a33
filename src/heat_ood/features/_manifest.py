"""The manifest of stored features: what the files of a folder hold, checked before any of them is read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FormatError
from ..files import Format, write
from ._journal import sizes_in
from ._regular import AGAIN, open_regular
from ._seen import Seen
from ._shard import Shard

__all__ = [
    *("FEATURES_FILE", "FILE_NAME", "NEXT_FILE", "Checksum", "Column", "Found", "Manifest"),
    *("digest_of", "file_name", "find", "parse_column", "read", "read_manifest", "size", "typed", "write_manifest"),
]

FORMAT = Format("heat-ood features", 2)
CHECKED = 2
"""The version from which on a manifest and its files have checksums."""
FEATURES_FILE = "manifest.json"
NEXT_FILE = "manifest-next.json"
"""The manifest of features that are being made, while those that they are to replace still stand."""
FOREIGN = "Pass a folder that Extractor.extract or Features.save wrote."
FLOATS = ("<f2", "<f4", "<f8")
FILE_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.npy")
POOLINGS = ("avg", "std", "logits", "labels", "weight", "bias")
LARGEST = 2**27
"""Bytes of a manifest; what is larger is none of ours."""


@dataclass(frozen=True)
class Column:
    """One file: a matrix (or a vector, of width 0) with a row for each sample, or the head's weight or bias."""

    pooling: str
    layer: str | None
    file: str
    dtype: str
    width: int

    @property
    def row(self) -> int:
        """Bytes of one row."""
        return int(self.dtype[-1]) * max(self.width, 1)

    @property
    def kind(self) -> tuple[str, str | None, str, int]:
        """What it holds, whatever its file is called."""
        return self.pooling, self.layer, self.dtype, self.width


@dataclass(frozen=True)
class Checksum:
    """Of the numbers in a file, without its header: SHA-256 of all, and CRC-32 of its first and last bytes."""

    sha256: str
    ends: int


@dataclass
class Manifest:
    """What is in a store. It holds no time and no process number: equal features have equal manifests."""

    fingerprint: str | None = None
    finished: bool = False
    count: int = 0
    batches: list[list[int]] = field(default_factory=list)  # [size, how many in a row], …
    columns: list[Column] = field(default_factory=list)
    head: list[Column] = field(default_factory=list)
    classes: int = 0  # rows of the head
    origin: str = ""  # what the samples are, where they are not the loader's own
    seen: dict[str, Any] = field(default_factory=dict)  # see Seen
    checksums: dict[str, Checksum] = field(default_factory=dict)  # by file
    replaces: list[str] = field(default_factory=list)  # the files of the store whose place this one is to take
    shard: Shard | None = None  # which part of the samples these are, where they are one

    def add_batch(self, size: int) -> None:
        self.count += size
        if self.batches and self.batches[-1][0] == size:
            self.batches[-1][1] += 1
        else:
            self.batches.append([size, 1])

    @property
    def files(self) -> list[str]:
        """The names of all files but the manifest."""
        return [column.file for column in self.columns + self.head]

    @property
    def number_of_batches(self) -> int:
        return sum(times for _, times in self.batches)


class Found(NamedTuple):
    """A manifest as it was found.

    Args:
        manifest: what it says, with the batches of its journal where it is not finished.
        key: the digest of its bytes, which its journal bears.
        state: tells whether the file has been replaced since.
        exact: whether it is to the byte what :func:`write_manifest` writes.
    """

    manifest: Manifest
    key: str
    state: tuple[int, ...]
    exact: bool


def write_manifest(manifest: Manifest, folder: Path, file: str = FEATURES_FILE) -> str:
    """Replace the manifest in one step: a reader, or a kill, sees the old one or the new one.

    Returns:
        The key that its journal will bear.
    """
    content = FORMAT.stamp(asdict(manifest))
    del content["shard"]
    if manifest.shard is not None:
        content["shard"] = manifest.shard.to_list()
    data = rendered({**content, "sha256": digest_of(content)})
    write(folder / file, data, durable=manifest.finished)
    return hashlib.sha256(data).hexdigest()


def rendered(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def digest_of(content: Mapping[str, Any]) -> str:
    """The checksum that a manifest bears of all else in it."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path, file: str = FEATURES_FILE) -> Manifest:
    """Read and check a manifest; anything that is not as :func:`write_manifest` left it is a FormatError."""
    return find(folder, file).manifest


def find(folder: Path, file: str = FEATURES_FILE) -> Found:
    """A manifest as it is on the disk, and the batches that its journal counts."""
    path = folder / file
    try:
        text, state = read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{folder} holds no features: it has no {file}. {FOREIGN}") from None
    data = FORMAT.parse(text, path, FOREIGN, AGAIN)
    key = hashlib.sha256(text).hexdigest()
    try:
        if data["version"] >= CHECKED and data.get("sha256") != digest_of(data):
            raise ValueError("its checksum does not match")
        manifest = parse(data)
        try:
            for size in () if manifest.finished else sizes_in(folder, key):
                manifest.add_batch(size)
        except FormatError:
            if state_of(path) == state:
                raise
            return find(folder, file)  # a writer has replaced it, and its journal
        return Found(manifest, key, state, text == rendered(data))
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path} is damaged ({error}). ", *AGAIN) from None


def read(path: Path) -> tuple[bytes, tuple[int, ...]]:
    descriptor = open_regular(path)
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > LARGEST:
            raise FormatError(f"{path} has {size:,} bytes, too many for a manifest. {FOREIGN}")
        try:
            return file.read(LARGEST), state_of(descriptor)
        except OSError as error:
            raise FormatError(f"{path} cannot be read ({error}). ", *AGAIN) from None


def state_of(file: Path | int) -> tuple[int, ...]:
    about = os.stat(file)
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def parse(data: dict[str, Any]) -> Manifest:
    manifest = Manifest(
        fingerprint=None if data["fingerprint"] is None else typed(data["fingerprint"], str, "fingerprint"),
        finished=typed(data["finished"], bool, "finished"),
        count=size(data["count"], "count"),
        batches=[
            [size(b, "batch") for b in typed(pair, list, "batch")] for pair in typed(data["batches"], list, "batches")
        ],
        columns=[parse_column(item) for item in typed(data["columns"], list, "columns")],
        head=[parse_column(item) for item in typed(data["head"], list, "head")],
        classes=size(data["classes"], "classes"),
        origin=typed(data.get("origin", ""), str, "origin"),
        seen=Seen.read(typed(data.get("seen", {}), dict, "seen")).to_dict(),
        checksums={
            file: parse_checksum(item) for file, item in typed(data.get("checksums", {}), dict, "checksums").items()
        },
        replaces=[file_name(item) for item in typed(data.get("replaces", []), list, "replaces")],
        shard=Shard.read(data["shard"]) if "shard" in data else None,
    )
    if any(len(pair) != 2 for pair in manifest.batches) or sum(a * b for a, b in manifest.batches) != manifest.count:
        raise ValueError("the batches do not add up to the count")
    files = manifest.files
    names = [(c.layer, c.pooling) for c in manifest.columns + manifest.head]
    if len(set(files)) != len(files) or len(set(names)) != len(names):
        raise ValueError("two columns share a name or a file")
    if manifest.head and [c.pooling for c in manifest.head] != ["weight", "bias"]:
        raise ValueError("the head needs a weight and a bias")
    if manifest.finished and not any(c.pooling != "labels" for c in manifest.columns):
        raise ValueError("no columns")
    if manifest.finished and data["version"] >= CHECKED and set(manifest.checksums) != set(files):
        raise ValueError("the checksums are not those of its files")
    return manifest


def parse_column(item: Any) -> Column:
    item = typed(item, dict, "column")
    column = Column(
        pooling=typed(item["pooling"], str, "pooling"),
        layer=None if item["layer"] is None else typed(item["layer"], str, "layer"),
        file=file_name(item["file"]),
        dtype=typed(item["dtype"], str, "dtype"),
        width=size(item["width"], "width"),
    )
    if column.pooling not in POOLINGS or (column.layer is not None and column.pooling not in ("avg", "std")):
        raise ValueError(f"column {shown(column.pooling)}")
    if column.dtype not in (("<i8",) if column.pooling == "labels" else FLOATS):
        raise ValueError(f"dtype {shown(column.dtype)} of {column.file}")
    if (column.width == 0) != (column.pooling in ("labels", "bias")):
        raise ValueError(f"width {column.width} of {column.file}")
    return column


def parse_checksum(item: Any) -> Checksum:
    item = typed(item, dict, "checksum")
    return Checksum(typed(item["sha256"], str, "checksum"), size(item["ends"], "checksum"))


def file_name(value: Any) -> str:
    name: str = typed(value, str, "file")
    if not FILE_NAME.fullmatch(name) or len(name) > 200:
        raise ValueError(f"file name {shown(name)}; files must lie in the folder itself")
    return name


def typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {shown(value)}")
    return value


def size(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(f"{name} is {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value of a file for an error, which may be long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
