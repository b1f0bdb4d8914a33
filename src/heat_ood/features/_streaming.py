"""Extract everything a loader yields, a batch in memory at a time; interrupted runs continue."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import Argument, InputError, Notice
from ..progress import sample_bar
from ._batches import Batch, check_order, count_of, promised_by, rest_of, unpack
from ._columns import column_name
from ._contrast import Distorted
from ._features import Features
from ._manifest import Manifest
from ._mapped import Numpy
from ._seen import Seen
from ._shard import Shard
from ._stamps import remembered, stamps_in_order
from ._store import Writer, open_store

if TYPE_CHECKING:
    from ._extractor import Extractor

__all__ = ["check_there", "extract"]

Advance = Callable[[int], None]
DTYPES = {torch.float16: "<f2", torch.float32: "<f4", torch.float64: "<f8"}


def extract(
    extractor: Extractor,
    loader: Iterable[Any],
    path: str | PathLike[str] | None,
    *,
    progress: bool,
    overwrite: bool,
    dtype: torch.dtype,
    description: str,
    shard: Shard | None = None,
) -> Features:
    """See :meth:`Extractor.extract`; the loader is that of the shard alone, and the path the shard's own."""
    check_order(loader)
    if dtype not in DTYPES:
        raise InputError(f"Features cannot be stored as {dtype}. Choose torch.float32, torch.float16 or torch.float64.")
    total, origin = (loader.count, loader.origin) if isinstance(loader, Distorted) else (count_of(loader), "")
    promised = promised_by(loader.drawn if isinstance(loader, Distorted) else loader)
    fingerprint = extractor.compute_fingerprint()
    stamps = remembered()
    seen = extractor.seen(loader, stamps)
    if path is None:
        with sample_bar(progress, description, total) as advance:
            parts = list(stream(extractor, (unpack(b, extractor.network) for b in loader), dtype, advance))
        if not parts:
            raise InputError("The loader yields no batches. Check its data set; a generator can be used only once.")
        check_labels(parts)
        whole = Features.concatenate(parts)
        whole.seen = seen
        return whole

    folder = Path(path)
    with opened(folder, fingerprint, overwrite, origin, seen, shard) as writer:
        check_dtype(writer.manifest, dtype, folder)
        if writer.manifest.finished:
            check_length(writer, total, promised)
            writer.check_seen(seen)
            unsure = " How many samples this loader has is not known." if total is promised is None else ""
            warnings.warn(Notice(f"The features in {folder} are there already, and are reused.{unsure}"), stacklevel=3)
            return open_store(folder)
        drawn = loader.drawn if isinstance(loader, Distorted) else loader
        writer.check_seen(seen, lambda: stamps_in_order(drawn, stamps))
        with sample_bar(progress, description, total, writer.manifest.count) as advance:
            batches = (unpack(b, extractor.network) for b in remaining(loader, writer, extractor))
            for features in stream(extractor, batches, dtype, lambda _: None):
                writer.append(features)
                advance(len(features))
        if not writer.manifest.count:
            raise InputError("The loader yields no batches. Check its data set; a generator can be used only once.")
        if promised is not None and writer.manifest.number_of_batches < promised:
            raise InputError(
                f"The loader ended after {writer.manifest.number_of_batches} of the {promised} batches that its len() "
                f"promises, so the features in {folder} are not finished. Mend it and run again to go on from there; "
                "where its len() is wrong, pass iter(loader)."
            )
        writer.finish()
    return open_store(folder)


def check_there(
    extractor: Extractor, loader: Iterable[Any], folder: Path, dtype: torch.dtype, shard: Shard | None
) -> None:
    """What is finished already must be what is asked for, by its manifest; that it is reused is said."""
    seen = extractor.seen(loader)
    with opened(folder, extractor.compute_fingerprint(), False, "", seen, shard) as writer:
        check_dtype(writer.manifest, dtype, folder)
        check_length(writer, count_of(loader), promised_by(loader))
        writer.check_seen(seen)
    warnings.warn(Notice("The features are there already, and are reused."), stacklevel=4)


def opened(folder: Path, fingerprint: str, overwrite: bool, origin: str, seen: Seen, shard: Shard | None) -> Writer:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Pass a path for a folder.")
    return Writer(folder, fingerprint, overwrite=overwrite, origin=origin, seen=seen, shard=shard)


def check_length(writer: Writer, total: int | None, promised: int | None) -> None:
    """A finished store must be as long as the loader, by samples or, where these are not known, by batches."""
    count, batches = writer.manifest.count, writer.manifest.number_of_batches
    if total is not None and total != count:
        raise InputError(
            f"{writer.folder} holds features of {count} samples, but the loader has {total}. "
            "Choose another path for other data, or pass ",
            Argument("overwrite", True),
            ".",
        )
    if total is None and promised is not None and promised != batches:
        raise InputError(
            f"{writer.folder} holds features of {batches} batches, but the loader has {promised}. Pass a loader with "
            "the same batch size, choose another path for other data, or pass ",
            Argument("overwrite", True),
            ".",
        )


def stream(extractor: Extractor, batches: Iterable[Batch], dtype: torch.dtype, advance: Advance) -> Iterator[Features]:
    for number, batch in enumerate(batches, 1):
        features = extractor.features_of(extractor.forward(batch.inputs), batch.labels).to("cpu", dtype)
        check_finite(features, number)
        advance(len(features))
        yield features


def remaining(loader: Iterable[Any], writer: Writer, extractor: Extractor) -> Iterator[Any]:
    """What a loader yields after the batches that are written; those must be the same as then."""
    manifest, labels = writer.manifest, writer.labels()
    done = manifest.count
    if not done:
        return iter(loader)
    *full, (last, times) = manifest.batches
    wanted = getattr(loader, "batch_size", None)
    if all(size == wanted for size, _ in full) and (times == 1 or last == wanted):
        rest = rest_of(loader, done, labels)
        if rest is not None:
            return rest

    iterator, start = iter(loader), 0
    sizes = (size for size, times in manifest.batches for _ in range(times))
    for number, size in enumerate(sizes, 1):
        batch = next(iterator, None)
        if batch is None:
            raise InputError(f"{writer.folder} already holds {done} samples, more than the loader yields. ", *REMEDY)
        found = unpack(batch, extractor.network)
        if len(found.inputs) != size:
            raise InputError(
                f"Batch {number} has {len(found.inputs)} samples; it had {size} when {writer.folder} was begun. ",
                *REMEDY,
            )
        expected = None if labels is None else labels[start : start + size]
        if not same_labels(found.labels, expected):
            raise InputError(
                f"The labels of batch {number} are not those with which {writer.folder} was begun. ", *REMEDY
            )
        start += size
    return iterator


def same_labels(found: Tensor | None, expected: Numpy | None) -> bool:
    if found is None or expected is None:
        return found is None and expected is None
    return np.array_equal(found.numpy(), expected)


REMEDY = (
    "Pass the same loader, with the same batch size, to continue; ",
    Argument("overwrite", True),
    " to start anew.",
)


def check_dtype(manifest: Manifest, dtype: torch.dtype, folder: Path) -> None:
    stored = {c.dtype for c in manifest.columns if c.pooling != "labels"}
    if stored - {DTYPES[dtype]}:
        name = next(k for k, v in DTYPES.items() if v in stored)
        raise InputError(
            f"The features in {folder} are {name}. Pass ",
            Argument("dtype", name),
            " to use them, or ",
            Argument("overwrite", True),
            f" to make them anew as {dtype}.",
        )


def check_labels(parts: list[Features]) -> None:
    if len({part.labels is None for part in parts}) > 1:
        raise InputError("Some batches have labels and others have none. Let the loader give labels always, or never.")


def check_finite(features: Features, number: int) -> None:
    for key, column in features.columns.items():
        bad = int((~torch.isfinite(column)).any(1).sum())
        if bad:
            raise InputError(
                f"{column_name(key)} is not finite for {bad} of {len(features)} samples, in batch {number} of this "
                "run. Check these inputs for NaN; if they are sound, leave out ",
                Argument("autocast", torch.float16),
                " or ",
                Argument("dtype", torch.float16),
                ", whose largest number is 65504.",
            )
