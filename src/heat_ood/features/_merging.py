"""Close a store of shards: all of them there, finished, and of one model, one preprocessing and one kind."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from ..errors import Argument, FormatError, InputError
from ..files import url_of
from ._arrays import summary
from ._closing import Closing, Member, is_sharded, write_closing
from ._columns import check_same_model
from ._features import Features
from ._manifest import FEATURES_FILE, Column, Manifest, read_manifest
from ._mapped import load
from ._remote import copy_of, mirrored_shards
from ._seen import Seen
from ._shard import Shard, shard_name, shards_in
from ._sharded import open_shards

__all__ = ["merge_shards", "refuse_open"]

SHOWN = 5
"""So many shards an error names."""


def merge_shards(folder: str | PathLike[str], *, verify: bool = False) -> Features:
    """Close a folder of shards, ``shard-00000`` and on, and open it as one store.

    All shards must be there, be finished and fit together: the same model, layers, head, preprocessing, class names,
    columns and types. Nothing is copied: the manifest of the folder is written in one step, with the counts and
    checksums of all shards. It can be done again at any time, and must be after a shard was made anew.

    Args:
        folder: of the shards.
        verify: read all files and compare their checksums.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for i in range(3):
        ...         Features(avg=torch.rand(4, 2)).save(f"{folder}/shard-0000{i}")
        ...     merge_shards(folder)
        Features(n=12, avg=2)
    """
    if (url := url_of(folder)) is not None:
        mirror = mirrored_shards(url)
        close(mirror.local)
        mirror.send([FEATURES_FILE])
        copy = copy_of(url)
        return open_shards(copy.local, verify, copy)
    root = Path(folder)
    close(root)
    return open_shards(root, verify)


def close(root: Path) -> None:
    """Write the manifest of the shards in a folder, if they are all there and go together."""
    if (root / FEATURES_FILE).exists() and not is_sharded(root):
        raise InputError(f"{root} holds features that are not in shards. Pass the folder that the shards lie in.")
    found = finished_in(root)
    for number, manifest in found.items():
        check_alike(root, found[0], manifest, number)
    largest = max((largest_label(root / shard_name(i), manifest) for i, manifest in found.items()), default=-1)
    first = found[0]
    closing = Closing(
        fingerprint=first.fingerprint,
        columns=tuple(first.columns),
        head=tuple(first.head),
        head_checksums=tuple(first.checksums[column.file] for column in first.head),
        classes=first.classes,
        largest=largest,
        origin=first.origin,
        seen=joined([manifest.seen for manifest in found.values()]),
        members=tuple(
            Member(manifest.count, tuple((c.file, manifest.checksums[c.file]) for c in manifest.columns))
            for manifest in found.values()
        ),
    )
    write_closing(closing, root)


def refuse_open(folder: Path) -> NoReturn:
    """Say why shards that no manifest closes cannot be opened: one is missing, is not finished, or all are there."""
    try:
        count = len(finished_in(folder))
    except InputError as error:
        raise FormatError(*error.parts) from None
    raise FormatError(
        f"{folder} holds {count:,} shards, all finished, but it is not closed. Close it with heat-ood merge {folder}."
    )


def finished_in(folder: Path) -> dict[int, Manifest]:
    """The manifests of all shards in order; an error that names what is missing or not finished."""
    there = shards_in(folder)
    if not there:
        raise InputError(
            f"There are no shards in {folder}. Pass the folder that heat-ood extract --shard wrote to; its shards are "
            f"called {shard_name(0)} and on."
        )
    found: dict[int, Manifest] = {}
    begun: list[int] = []
    for number, name in there.items():
        if not (folder / name / FEATURES_FILE).exists():
            begun.append(number)
            continue
        found[number] = read_manifest(folder / name)
        if not found[number].finished:
            begun.append(number)
    places = {number: manifest.shard for number, manifest in found.items() if manifest.shard is not None}
    of = check_places(folder, places, found)
    missing = [number for number in range(of or max(there) + 1) if number not in there]
    if missing:
        raise InputError(f"{folder} is not complete: {named(missing)} missing. {again(missing, of)}")
    if begun:
        counts = ", ".join(f"{found[i].count:,} samples in {shard_name(i)}" for i in begun[:SHOWN] if i in found)
        raise InputError(
            f"{folder} is not complete: {named(begun)} not finished{f' ({counts} so far)' * bool(counts)}. "
            f"{again(begun, of)}"
        )
    for number, manifest in found.items():
        if not manifest.checksums:
            path = folder / shard_name(number)
            raise InputError(
                f"{path} has no checksums: an earlier version made it. Save it again: "
                f'Features.open("{path}").save("{path}").'
            )
    return found


def check_places(folder: Path, places: Mapping[int, Shard], found: Mapping[int, Manifest]) -> int | None:
    """How many shards there should be, by what the shards say of themselves; they must not contradict each other."""
    if not places:
        return None
    if len(places) < len(found):
        strange = next(number for number in found if number not in places)
        raise InputError(
            f"{folder / shard_name(strange)} does not say which part of the samples it is, and other shards do. Move "
            "it away, or extract it as they were, with ",
            Argument("shard"),
            ".",
        )
    first, one = next(iter(places.items()))
    for number, place in places.items():
        if place.number != number:
            raise InputError(
                f"{folder / shard_name(number)} is shard {place} by its manifest. Give it the name {place.name}."
            )
        if (place.of, place.total) != (one.of, one.total):
            raise InputError(
                f"The shards in {folder} were not cut from the same samples: {shard_name(first)} is {one.described()}, "
                f"{shard_name(number)} is {place.described()}. Extract all of them from the same samples, each with "
                "the same number of shards; a folder holds one set."
            )
        if place.total is not None and place.first != place.block(place.total).start:
            raise InputError(
                f"{folder / shard_name(number)} does not begin where {place.described()} does: another version cut it. "
                "Extract it again, with ",
                Argument("overwrite", True),
                ".",
            )
    return one.of


def named(numbers: Sequence[int]) -> str:
    names = ", ".join(map(shard_name, numbers[:SHOWN]))
    more = f" and {len(numbers) - SHOWN:,} more" if len(numbers) > SHOWN else ""
    return f"{names}{more} {'is' if len(numbers) == 1 else 'are'}"


def again(numbers: Sequence[int], of: int | None) -> str:
    which = f"{numbers[0]}/{'…' if of is None else of}"
    return f"Run its extraction (again), heat-ood extract … --shard {which}, and merge when it is done."


def check_alike(folder: Path, first: Manifest, other: Manifest, number: int) -> None:
    """Refuse a shard that does not go with the first."""
    name = shard_name(number)
    try:
        check_same_model(first.fingerprint, other.fingerprint)
        if (first.fingerprint is None) != (other.fingerprint is None):
            raise InputError("One says which model made it, and the other does not. Extract both alike.")
        if [c.kind for c in first.columns] != [c.kind for c in other.columns]:
            raise InputError(
                f"They hold {summary(first.columns)} and {summary(other.columns)}. Extract both with the same "
                "layers, labels and dtype."
            )
        if head_of(first) != head_of(other):
            raise InputError("They have different heads. Extract both with the same model and head.")
        if first.origin != other.origin:
            raise InputError(f"Their samples were made otherwise ({first.origin!r} and {other.origin!r}).")
        before, now = Seen.read(first.seen), Seen.read(other.seen)
        before.check(now)
        if None not in (before.classes, now.classes) and before.classes != now.classes:
            raise InputError(
                "They have different class names. Cut one set of samples into shards, so that the classes of all are "
                "numbered alike."
            )
    except InputError as error:
        raise InputError(f"{shard_name(0)} and {name} in {folder} do not go together. ", *error.parts) from None


def head_of(manifest: Manifest) -> list[Any]:
    return [manifest.classes, *((c.kind, manifest.checksums[c.file].sha256) for c in manifest.head)]


def largest_label(folder: Path, manifest: Manifest) -> int:
    column: Column | None = next((c for c in manifest.columns if c.pooling == "labels"), None)
    if column is None or not manifest.count:
        return -1
    return max(-1, int(load(folder, column, manifest.count, manifest.checksums.get(column.file), False).max()))


def joined(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all shards saw; of the samples the digests of all, in one."""
    known = {key: value for key, value in seen[0].items() if all(other.get(key) == value for other in seen)}
    each = [str(one.get("samples")) for one in seen]
    if "samples" in seen[0]:
        names, contents = (
            hashlib.sha256("\n".join(text.partition("/")[part] for text in each).encode()).hexdigest()[:16]
            for part in (0, 2)
        )
        known["samples"] = f"{names}/{contents}"
    return known
