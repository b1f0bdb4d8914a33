"""Moments of a shard, kept beside it: summed once, whoever asks, and merged in the order of the shards."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from ..errors import FormatError, InputError
from ..files import metadata_of, read, write_tensors
from ._columns import column_name
from ._features import Features
from ._manifest import Manifest, read_manifest
from ._moments import Gathering, Moments
from ._packed import Merging, Packed
from ._spaces import Space

__all__ = ["MOMENTS_FOLDER", "Contents", "Known", "keep_moments", "moments_file", "shards_of", "without"]

MOMENTS_FOLDER = "moments"
"""Beside the shards: a folder for each, with a file for each space."""
FIRST, VERSION = "1", "2"
"""Those of the first version are summed anew."""
HEADER = "about"
"""One text holds all that is said of the tensors: several would stand in any order, and equal files must be equal."""
CHUNK = 4096
"""Samples summed at a time. Other chunks round in another way, so it is not to be changed."""
AHEAD = 2
"""Files of moments that are read and checked while those before are added, each by a thread."""


class Contents(NamedTuple):
    """What a shard holds, by the checksums of its numbers: how many samples, its columns and labels, the head."""

    samples: int
    columns: tuple[tuple[str, str], ...]
    head: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest) -> Contents:
        """Of a finished shard, by its own manifest."""
        if not manifest.finished or not manifest.checksums:
            raise FormatError("Moments are kept of finished shards with checksums. Extract the shard again.")
        columns = ((column_name((c.layer, c.pooling)), manifest.checksums[c.file].sha256) for c in manifest.columns)
        return cls(manifest.count, tuple(columns), tuple(manifest.checksums[c.file].sha256 for c in manifest.head))

    def identity(self, space: Space) -> str:
        """What moments in a space are of: the numbers that it reads, and the labels."""
        logits = "logits" in space.columns
        wanted = {*space.columns, "labels", *(("avg",) if logits else ())}
        files = sorted(pair for pair in self.columns if pair[0] in wanted)
        about = [self.samples, files, self.head if logits else (), space.columns, space.normalise]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()


@dataclass(frozen=True)
class Known:
    """The moments of a store of shards: those of all shards, added in their order.

    Args:
        shards: the folder of each, and what it holds; a worker must find that there, too.
        classes: how many there are.
    """

    shards: tuple[tuple[Path, Contents], ...]
    classes: int

    def __call__(self, space: Space) -> Moments:
        """The moments in a space. Of shards whose moments are kept no feature is read; the others are summed first."""
        merging = Merging(self.classes)
        for (shard, contents), part in self.read(space):
            if part is None:
                keep_moments(shard, [space])
                part = stored(shard, space, contents)
            if part is None:
                raise FormatError(
                    f"{shard} holds other features than when its store was closed. Close it anew with heat-ood merge "
                    f"{shard.parent}."
                )
            with one_thread():
                merging.add(part)
        with one_thread():
            return merging.result()

    def read(self, space: Space) -> Iterator[tuple[tuple[Path, Contents], Packed | None]]:
        """The shards that have samples, in their order, with the moments that are kept of each."""
        coming = deque[tuple[tuple[Path, Contents], Future[Packed | None]]]()
        with ThreadPoolExecutor(AHEAD) as pool:
            for shard, contents in self.shards:
                if contents.samples:
                    coming.append(((shard, contents), pool.submit(stored, shard, space, contents)))
                if len(coming) > AHEAD:
                    which, part = coming.popleft()
                    yield which, part.result()
            for which, part in coming:
                yield which, part.result()

    def __add__(self, other: Known) -> Known:
        """Those of two stores, one behind the other."""
        return Known((*self.shards, *other.shards), max(self.classes, other.classes))


def shards_of(features: Features) -> tuple[Path, ...]:
    """The folders of the shards of a whole store, those without samples left out; none of features of other kinds."""
    known = features._moments
    return tuple(shard for shard, contents in known.shards if contents.samples) if isinstance(known, Known) else ()


def keep_moments(shard: Path, spaces: Sequence[Space]) -> int:
    """Sum the moments of a shard in these spaces, in one pass for all that are not there yet, and keep them beside it.

    They are summed by one thread, a fixed number of samples at a time, so that it does not matter who does it; on
    processors of another kind, last digits may differ.

    Args:
        shard: the folder of its features.
        spaces: what they are the moments of. Without labels all samples are of class 0.

    Returns:
        How many samples the shard has.
    """
    contents = Contents.of(read_manifest(shard))
    missing = [space for space in spaces if contents.samples and stored(shard, space, contents) is None]
    if missing:
        for space, packed in summed(Features.open(shard), missing).items():
            tensors, about = packed._asdict(), {"version": VERSION, "of": contents.identity(space)}
            header = json.dumps({**about, "crc32": checksum_of(tensors, about)})
            write_tensors(moments_file(shard, space), tensors, {HEADER: header}, durable=True)
    return contents.samples


def summed(features: Features, spaces: Sequence[Space]) -> dict[Space, Packed]:
    """The moments in several spaces, in one pass."""
    labels = features.labels
    if labels is not None and len(labels) and int(labels.min()) < 0:
        raise InputError("Labels are negative. Number the classes from 0, or drop unlabelled samples.")
    classes = 1 if labels is None or not len(labels) else int(labels.max()) + 1
    found = {space: Gathering(classes, features.number_of) for space in spaces}
    columns = tuple(dict.fromkeys(column for space in spaces for column in space.columns))
    with one_thread():
        for batch in features.only(columns).batches(CHUNK):
            for space, gathering in found.items():
                gathering.add(space(batch), batch.labels)
        return {space: Packed.of(gathering.result()) for space, gathering in found.items()}


def without(known: Moments, part: Features, space: Space) -> Moments:
    """Known moments without those of some samples that they contain."""
    batches = ((space(batch), batch.labels) for batch in part.only(space.columns).batches(CHUNK))
    with one_thread():
        return known - Moments.of(batches, len(known.counts), part.number_of)


def stored(shard: Path, space: Space, contents: Contents) -> Packed | None:
    """The moments that are kept of a shard, if they are of the features that it holds now."""
    path = moments_file(shard, space)
    try:
        data = read(path)
        tensors, about = load_tensors(data), dict(json.loads(metadata_of(data)[HEADER]))
        if about.get("version") == FIRST:
            return None
        if about.pop("crc32", "") != checksum_of(tensors, about) or about.get("version") != VERSION:
            raise InputError("their checksum does not match, or they are of another version")
        return Packed.read(tensors) if about.get("of") == contents.identity(space) else None
    except FileNotFoundError:
        return None
    except (FormatError, SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"The moments in {path} are damaged ({error}). Delete the file: they are summed anew."
        ) from error


def checksum_of(tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> int:
    """CRC-32 of tensors with their names, types and shapes, and of the text about them.

    It is there to find damage; SHA-256 took two thirds of the time of a merge.
    """
    checksum = zlib.crc32(json.dumps(sorted(about.items())).encode())
    for name, tensor in sorted(tensors.items()):
        checksum = zlib.crc32(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode(), checksum)
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, checksum)
    return checksum


def moments_file(shard: Path, space: Space) -> Path:
    """Where the moments of a shard are kept."""
    name = hashlib.sha256(json.dumps([space.columns, space.normalise]).encode()).hexdigest()[:16]
    return shard.parent / MOMENTS_FOLDER / shard.name / f"{name}.safetensors"


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of several threads may be added in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
