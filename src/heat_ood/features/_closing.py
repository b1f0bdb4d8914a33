"""The manifest that closes a store of shards: all that is needed to open it without a look at the shards."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FormatError
from ..files import Format, write
from ._manifest import FEATURES_FILE, Checksum, Column, digest_of, file_name, parse_column, read, size, typed
from ._regular import open_regular
from ._seen import Seen
from ._shard import MOST, shard_name

__all__ = ["SHARDS", "Closing", "Member", "is_sharded", "read_closing", "write_closing"]

SHARDS = Format("heat-ood shards", 1)
FOREIGN = "Pass a folder that heat-ood merge, or heat_ood.features.merge_shards, closed."
AGAIN = "Close the store again with heat-ood merge."


class Member(NamedTuple):
    """One shard: how many samples, and of each column the name of its file with its checksum."""

    samples: int
    files: tuple[tuple[str, Checksum], ...]


@dataclass(frozen=True)
class Closing:
    """What is in a store of shards; equal shards have equal manifests.

    Args:
        fingerprint: of the model.
        columns: of every shard; the files have other names in each.
        head: its files in the first shard.
        head_checksums: theirs.
        classes: rows of the head.
        largest: the largest label; -1 where there are none.
        origin: what the samples are, where they are not the loader's own.
        seen: see :class:`Seen`.
        members: the shards, in order.
    """

    fingerprint: str | None
    columns: tuple[Column, ...]
    head: tuple[Column, ...]
    head_checksums: tuple[Checksum, ...]
    classes: int
    largest: int
    origin: str
    seen: dict[str, Any]
    members: tuple[Member, ...]

    @property
    def count(self) -> int:
        """The samples of all shards."""
        return sum(member.samples for member in self.members)

    def column_of(self, number: int, column: int) -> tuple[Column, Checksum]:
        """A column as it lies in a shard."""
        file, checksum = self.members[number].files[column]
        return replace(self.columns[column], file=file), checksum


def write_closing(closing: Closing, folder: Path) -> None:
    """Replace the manifest in one step."""
    content = SHARDS.stamp(
        {
            "fingerprint": closing.fingerprint,
            "count": closing.count,
            "columns": [asdict(column) for column in closing.columns],
            "head": [asdict(column) for column in closing.head],
            "head_checksums": [list(asdict(one).values()) for one in closing.head_checksums],
            "classes": closing.classes,
            "largest": closing.largest,
            "origin": closing.origin,
            "seen": closing.seen,
            "shards": [
                [member.samples, *([file, one.sha256, one.ends] for file, one in member.files)]
                for member in closing.members
            ],
        }
    )
    write(folder / FEATURES_FILE, json.dumps({**content, "sha256": digest_of(content)}) + "\n", durable=True)


def is_sharded(folder: Path) -> bool:
    """Whether the manifest of a folder, if it has one, is that of a store of shards; a pipe is never waited for."""
    try:
        with open(open_regular(folder / FEATURES_FILE), "rb") as file:
            return f'"{SHARDS.name}"'.encode() in file.read(64)
    except (OSError, FormatError):
        return False


def read_closing(folder: Path) -> tuple[Closing, str]:
    """The manifest of a store of shards, checked, and the digest of its bytes."""
    path = folder / FEATURES_FILE
    text, _ = read(path)
    data = SHARDS.parse(text, path, FOREIGN, AGAIN)
    try:
        if data.get("sha256") != digest_of(data):
            raise ValueError("its checksum does not match")
        return parsed(data), hashlib.sha256(text).hexdigest()
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path} is damaged ({error}). {AGAIN}") from None


def parsed(data: dict[str, Any]) -> Closing:
    columns = tuple(parse_column(item) for item in typed(data["columns"], list, "columns"))
    head = tuple(parse_column(item) for item in typed(data["head"], list, "head"))
    shards = typed(data["shards"], list, "shards")
    largest = data["largest"]
    if not 0 < len(shards) <= MOST:
        raise ValueError(f"it has {len(shards)} shards")
    if largest != -1:
        size(largest, "largest")
    names = [(c.layer, c.pooling) for c in columns]
    if len(set(names)) != len(names) or not any(c.pooling != "labels" for c in columns):
        raise ValueError("columns")
    if [c.pooling for c in head] not in ([], ["weight", "bias"]):
        raise ValueError("the head needs a weight and a bias")
    closing = Closing(
        fingerprint=None if data["fingerprint"] is None else typed(data["fingerprint"], str, "fingerprint"),
        columns=columns,
        head=head,
        head_checksums=tuple(checksum(item) for item in typed(data["head_checksums"], list, "checksums")),
        classes=size(data["classes"], "classes"),
        largest=largest,
        origin=typed(data["origin"], str, "origin"),
        seen=Seen.read(typed(data["seen"], dict, "seen")).to_dict(),
        members=tuple(member(item, len(columns), number) for number, item in enumerate(shards)),
    )
    if closing.count != data["count"] or len(closing.head_checksums) != len(head):
        raise ValueError("the shards do not add up to the count")
    return closing


def member(item: Any, columns: int, number: int) -> Member:
    count, *files = typed(item, list, shard_name(number))
    if len(files) != columns:
        raise ValueError(f"{shard_name(number)} has {len(files)} files for {columns} columns")
    return Member(size(count, "count"), tuple((file_name(name), checksum(rest)) for name, *rest in files))


def checksum(item: Any) -> Checksum:
    sha256, ends = item
    return Checksum(typed(sha256, str, "checksum"), size(ends, "checksum"))
