"""A number for each sample of a data set, which changes with it: by its file's size and time, or by its bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, SequentialSampler, Subset

from ..files import plain

__all__ = ["Stamps", "UnknownError", "remembered", "size_of", "stamps_in_order", "stamps_of"]

Stamps = np.ndarray[Any, np.dtype[np.uint64]]
Rows = np.ndarray[Any, np.dtype[np.intp]]


class UnknownError(Exception):
    """Nothing tells of the contents."""


def stamps_of(loader: Any) -> Stamps | None:
    """The stamps of all samples of a loader's data set, without reading files; None where nothing tells of them.

    Of a list of batches each batch has one, as often as it has samples.
    """
    try:
        if isinstance(loader, list | tuple):
            return np.repeat([stamp(*flat(batch)) for batch in loader], [size_of(batch) for batch in loader])
        return of_dataset(loader.dataset) if isinstance(loader, DataLoader) else None
    except Exception:  # a data set of one's own, whose parts are not what their names say
        return None


def remembered() -> Callable[[Any], Stamps | None]:
    """:func:`stamps_of` that looks at a loader once, for as long as its samples are held not to change."""
    known: dict[int, tuple[Any, Stamps | None]] = {}

    def stamps(loader: Any) -> Stamps | None:
        if id(loader) not in known:
            known[id(loader)] = loader, stamps_of(loader)
        return known[id(loader)][1]

    return stamps


def stamps_in_order(loader: Any, stamps: Callable[[Any], Stamps | None] = stamps_of) -> Stamps | None:
    """The stamps in the order in which the samples come; None where that is not known."""
    if isinstance(loader, list | tuple):
        return stamps(loader)
    if type(loader) is not DataLoader or type(loader.batch_sampler) is not BatchSampler:
        return None
    found = stamps(loader)
    if found is None or type(loader.sampler) is SequentialSampler:
        return found
    return found[np.asarray(loader.sampler)] if isinstance(loader.sampler, list) else None


def of_dataset(dataset: Any, rows: Rows | None = None) -> Stamps:
    """By what a data set lists: its files, or its arrays; of all samples, or of some, so that a shard looks at its own.

    A sample has the same stamp either way.
    """
    if isinstance(dataset, Subset):
        own_rows = np.asarray(dataset.indices)
        return of_dataset(dataset.dataset, own_rows if rows is None else own_rows[rows])
    if rows is None:
        rows = np.arange(len(dataset))
    rows = np.where(rows < 0, rows + len(dataset), rows)
    if isinstance(dataset, ConcatDataset):
        return of_parts(dataset, rows)
    if (own := getattr(dataset, "identity", None)) is not None:
        listed = getattr(dataset, "stamps", None)
        each = None if listed is None else list(listed)
        known = stamp(repr(plain(own)).encode(errors="surrogatepass"))
        about = ((row, row if each is None else each[row]) for row in rows.tolist())
        return joined(stamp(known, repr(pair).encode()) for pair in about)
    if files := files_of(dataset):
        chosen = (files[row] for row in rows.tolist())
        return joined(stamp(text) for text in described(chosen, getattr(dataset, "root", None)))
    return by_row(arrays_of(dataset), rows)


def of_parts(dataset: ConcatDataset[Any], rows: Rows) -> Stamps:
    """Of each part the samples that are asked for."""
    ends = np.asarray(dataset.cumulative_sizes)
    part = np.searchsorted(ends, rows, side="right")
    found = np.empty(len(rows), np.uint64)
    for number in np.unique(part).tolist():
        mine = part == number
        first = ends[number] - len(dataset.datasets[number])
        found[mine] = of_dataset(dataset.datasets[number], rows[mine] - first)
    return found


def joined(stamps: Iterable[np.uint64]) -> Stamps:
    return np.fromiter(stamps, np.uint64)


def stamp(*parts: Any) -> np.uint64:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return np.uint64(int.from_bytes(digest.digest(), "little"))


# Files


def files_of(dataset: Any) -> list[tuple[Any, Any]]:
    """The files that a data set lists beside their labels, as torchvision's do."""
    listed = getattr(dataset, "samples", None)
    if not isinstance(listed, list) or len(listed) != len(dataset):
        return []
    return listed if all(isinstance(item, tuple) and isinstance(item[0], str | os.PathLike) for item in listed) else []


def described(files: Iterable[tuple[Any, Any]], root: Any) -> Iterator[bytes]:
    """Of each file its name below the root, its label, its size and when it was changed."""
    start = "" if root is None else os.path.join(os.fspath(root), "")
    for path, *label in files:
        about = os.stat(path)
        name = os.fspath(path).removeprefix(start)
        yield repr((name, label, about.st_size, about.st_mtime_ns)).encode(errors="surrogatepass")


# Arrays


def arrays_of(dataset: Any) -> list[Any]:
    """The arrays that a data set in memory holds: a row a sample, and the labels."""
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and tensors and all(isinstance(t, Tensor) for t in tensors):
        return list(tensors)
    data = getattr(dataset, "data", None)
    if not isinstance(data, Tensor | np.ndarray) or len(data) != len(dataset):
        raise UnknownError(type(dataset))
    listed = (getattr(dataset, name, None) for name in ("targets", "labels"))
    return [data, *(np.asarray(labels) for labels in listed if labels is not None)]


def by_row(arrays: list[Any], rows: Rows) -> Stamps:
    each = [rows_of(array, rows) for array in arrays]
    kinds = repr([(tuple(array.shape[1:]), str(array.dtype)) for array in arrays]).encode()
    return joined(stamp(kinds, *row) for row in zip(*each, strict=True))


def rows_of(array: Tensor | np.ndarray[Any, Any], rows: Rows) -> Iterator[Any]:
    """The bytes of each row, a row at a time, so that what is mapped stays on the disk."""
    if isinstance(array, Tensor):
        array = array.detach().cpu().contiguous().reshape(len(array), -1).view(torch.uint8).numpy()
    elif array.dtype.hasobject:
        raise UnknownError(array.dtype)
    flattened = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
    return (flattened[row] for row in rows.tolist())


def bytes_of(value: Tensor | np.ndarray[Any, Any]) -> memoryview:
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise UnknownError(array.dtype)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def flat(value: Any) -> Iterator[Any]:
    """All that is in a batch, each with what it is, so that no two are taken for one another."""
    if isinstance(value, Tensor | np.ndarray):
        yield repr((tuple(value.shape), str(value.dtype))).encode()
        yield bytes_of(value)
    elif isinstance(value, Mapping | list | tuple):
        keys: Any = sorted(value, key=str) if isinstance(value, Mapping) else range(len(value))
        yield repr((type(value).__name__, len(value))).encode()
        for key in keys:
            yield repr(key).encode()
            yield from flat(value[key])
    elif value is None or isinstance(value, str | bytes | int | float):
        yield repr(value).encode(errors="surrogatepass")
    else:
        raise UnknownError(type(value))


def size_of(batch: Any) -> int:
    """The samples of a batch, by the first array in it."""
    if isinstance(batch, Tensor | np.ndarray):
        return len(batch)
    if isinstance(batch, Mapping):
        return size_of(next(value for value in batch.values() if isinstance(value, Tensor | np.ndarray)))
    if isinstance(batch, list | tuple):
        return size_of(batch[0])
    raise UnknownError(type(batch))
