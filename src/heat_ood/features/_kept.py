"""Moments of a shard, kept beside it: summed once, whoever asks, and merged in the order of the shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from ..errors import FormatError, InputError
from ..files import digest_of_tensors, metadata_of, read, write_tensors
from ._columns import column_name
from ._features import Features
from ._manifest import Manifest, read_manifest
from ._moments import Gathering, Moments
from ._packed import Merging, Packed
from ._spaces import Space

__all__ = ["MOMENTS_FOLDER", "keep_moments", "merged_moments", "moments_file", "without"]

MOMENTS_FOLDER = "moments"
"""Beside the shards: a folder for each, with a file for each space."""
VERSION = "1"
HEADER = "about"
"""One text holds all that is said of the tensors: several would stand in any order, and equal files must be equal."""
CHUNK = 4096
"""Samples summed at a time. Other chunks round in another way, so it is not to be changed."""


def keep_moments(shard: Path, spaces: Sequence[Space]) -> None:
    """Sum the moments of a shard in these spaces, in one pass for all that are not there yet, and keep them beside it.

    They are summed by one thread, a fixed number of samples at a time, so that it does not matter who does it; on
    processors of another kind, last digits may differ.

    Args:
        shard: the folder of its features.
        spaces: what they are the moments of. Without labels all samples are of class 0.
    """
    manifest = read_manifest(shard)
    missing = [space for space in spaces if stored(shard, space, manifest) is None]
    if missing:
        for space, packed in summed(Features.open(shard), missing).items():
            tensors, about = packed._asdict(), {"version": VERSION, "of": identity_of(manifest, space)}
            header = json.dumps({**about, "sha256": digest_of_tensors(tensors, about)})
            write_tensors(moments_file(shard, space), tensors, {HEADER: header}, durable=True)


def merged_moments(shards: Sequence[Path], space: Space, classes: int) -> Moments:
    """The moments of all shards, added in the order given; those that are not kept yet are summed first.

    Of shards whose moments are kept no feature is read.
    """
    merging = Merging(classes)
    for shard in shards:
        part = stored(shard, space, read_manifest(shard))
        if part is None:
            keep_moments(shard, [space])
            part = stored(shard, space, read_manifest(shard))
        assert part is not None
        with one_thread():
            merging.add(part)
    with one_thread():
        return merging.result()


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


def stored(shard: Path, space: Space, manifest: Manifest) -> Packed | None:
    """The moments that are kept of a shard, if they are of the features that it holds now."""
    path = moments_file(shard, space)
    try:
        data = read(path)
        tensors, about = load_tensors(data), dict(json.loads(metadata_of(data)[HEADER]))
        if about.pop("sha256", "") != digest_of_tensors(tensors, about) or about.get("version") != VERSION:
            raise InputError("their checksum does not match, or they are of another version")
        return Packed.read(tensors) if about.get("of") == identity_of(manifest, space) else None
    except FileNotFoundError:
        return None
    except (FormatError, SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"The moments in {path} are damaged ({error}). Delete the file: they are summed anew."
        ) from error


def moments_file(shard: Path, space: Space) -> Path:
    """Where the moments of a shard are kept."""
    name = hashlib.sha256(json.dumps([space.columns, space.normalise]).encode()).hexdigest()[:16]
    return shard.parent / MOMENTS_FOLDER / shard.name / f"{name}.safetensors"


def identity_of(manifest: Manifest, space: Space) -> str:
    """What the moments are of: the numbers in the files that the space reads and in the labels, by their checksums."""
    if not manifest.finished or not manifest.checksums:
        raise FormatError("Moments are kept of finished shards with checksums. Extract the shard again.")
    wanted = {"avg" if column == "logits" else column for column in space.columns} | {*space.columns, "labels"}
    head = [manifest.checksums[column.file].sha256 for column in manifest.head]
    files = {
        name: manifest.checksums[column.file].sha256
        for column in manifest.columns
        if (name := column_name((column.layer, column.pooling))) in wanted
    }
    about = [manifest.count, sorted(files.items()), head if "logits" in space.columns else []]
    return hashlib.sha256(json.dumps([*about, list(space.columns), space.normalise]).encode()).hexdigest()


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of several threads may be added in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
