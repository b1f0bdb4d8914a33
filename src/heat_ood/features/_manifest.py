"""The manifest of stored features: what the files of a folder hold, checked before any of them is read."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Argument, FormatError
from ..files import Format, write
from ._seen import Seen

__all__ = ["AGAIN", "FEATURES_FILE", "Column", "Manifest", "read_manifest", "write_manifest"]

FORMAT = Format("heat-ood features", 1)
FEATURES_FILE = "manifest.json"
FOREIGN = "Pass a folder that Extractor.extract or Features.save wrote."
AGAIN = ("Extract the features again, with ", Argument("overwrite", True), ".")
"""What to do about features that are damaged."""
FLOATS = ("<f2", "<f4", "<f8")
FILE_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.npy")
POOLINGS = ("avg", "std", "logits", "labels", "weight", "bias")


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

    def add_batch(self, size: int) -> None:
        self.count += size
        if self.batches and self.batches[-1][0] == size:
            self.batches[-1][1] += 1
        else:
            self.batches.append([size, 1])


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Replace the manifest in one step: a reader, or a kill, sees the old one or the new one."""
    text = json.dumps(FORMAT.stamp(asdict(manifest)), indent=1)
    write(folder / FEATURES_FILE, text + "\n", durable=manifest.finished)


def read_manifest(folder: Path) -> Manifest:
    """Read and check a manifest; anything that is not as :func:`write_manifest` left it is a FormatError."""
    path = folder / FEATURES_FILE
    try:
        data = FORMAT.read(path, FOREIGN, AGAIN)
    except FileNotFoundError:
        raise FormatError(f"{folder} holds no features: it has no {FEATURES_FILE}. {FOREIGN}") from None
    except OSError as error:
        raise FormatError(f"{path} cannot be read ({error}). ", *AGAIN) from None
    try:
        return parse(data)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise FormatError(f"{path} is damaged ({error}). ", *AGAIN) from None


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
    )
    if any(len(pair) != 2 for pair in manifest.batches) or sum(a * b for a, b in manifest.batches) != manifest.count:
        raise ValueError("the batches do not add up to the count")
    files = [c.file for c in manifest.columns + manifest.head]
    names = [(c.layer, c.pooling) for c in manifest.columns + manifest.head]
    if len(set(files)) != len(files) or len(set(names)) != len(names):
        raise ValueError("two columns share a name or a file")
    if manifest.head and [c.pooling for c in manifest.head] != ["weight", "bias"]:
        raise ValueError("the head needs a weight and a bias")
    if manifest.finished and not any(c.pooling != "labels" for c in manifest.columns):
        raise ValueError("no columns")
    return manifest


def parse_column(item: Any) -> Column:
    item = typed(item, dict, "column")
    column = Column(
        pooling=typed(item["pooling"], str, "pooling"),
        layer=None if item["layer"] is None else typed(item["layer"], str, "layer"),
        file=typed(item["file"], str, "file"),
        dtype=typed(item["dtype"], str, "dtype"),
        width=size(item["width"], "width"),
    )
    if column.pooling not in POOLINGS or (column.layer is not None and column.pooling not in ("avg", "std")):
        raise ValueError(f"column {column.pooling!r}")
    if not FILE_NAME.fullmatch(column.file):
        raise ValueError(f"file name {column.file!r}; files must lie in the folder itself")
    if column.dtype not in (("<i8",) if column.pooling == "labels" else FLOATS):
        raise ValueError(f"dtype {column.dtype!r} of {column.file}")
    if (column.width == 0) != (column.pooling in ("labels", "bias")):
        raise ValueError(f"width {column.width} of {column.file}")
    return column


def typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}")
    return value


def size(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(f"{name} is {value!r}")
    return value
