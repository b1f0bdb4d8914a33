"""Which samples a loader yields: a short text that other samples, or the same after a change, do not have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset

from ..files import plain

__all__ = ["dataset_of", "identity_of", "same_samples"]

LOOKS, MORE = 4, 32
"""So many samples of a data set are read to tell it from another one; more where nothing else tells of its contents."""
WHOLE, ROWS = 2**31, 2**16
"""An array of more bytes than the first is told by so many of its rows, evenly spaced."""


def identity_of(loader: Any) -> str | None:
    """Two digests, ``names/contents``, of what a loader yields; what cannot be known is left out.

    The first is the one of version 0.2: of a data set's own ``identity`` (names of files, a version), or of some
    samples as they are read. The second has the whole: sizes and times of files, or the numbers of arrays.
    """
    first, second = names_of(loader), contents_of(loader)
    return first if second is None else f"{first or ''}/{second}"


def same_samples(before: str | None, now: str | None) -> Literal["same", "changed", "others"]:
    """Whether two loaders yield the same samples, as far as it is known of both.

    Example:
        >>> same_samples("a1/c1", "a1/c1"), same_samples("a1/c1", "a1/c2"), same_samples("a1/c1", "a2/c2")
        ('same', 'changed', 'others')
        >>> same_samples("a1", "a1/c1"), same_samples(None, "a1/c1")  # an earlier version's, and one that cannot tell
        ('same', 'same')
    """
    first, second = zip(*((text or "").partition("/")[::2] for text in (before, now)), strict=True)
    if all(first) and first[0] != first[1]:
        return "others"
    return "changed" if all(second) and second[0] != second[1] else "same"


def dataset_of(loader: Any) -> Any:
    """The data set behind a loader and behind subsets of it."""
    dataset = getattr(loader, "dataset", None)
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


# Names, as version 0.2 took them


def names_of(loader: Any) -> str | None:
    own = getattr(dataset_of(loader), "identity", None)
    if own is not None:
        return hashlib.sha256(repr(plain(own)).encode()).hexdigest()[:16]
    digest = hashlib.sha256()
    for sample in some_of(loader):
        if sample is None:
            return None
        digest.update(sample)
    return digest.hexdigest()[:16]


def some_of(loader: Any) -> Iterator[bytes | None]:
    """The bytes of some samples; None where a sample is another one at each reading."""
    dataset = getattr(loader, "dataset", None)
    if isinstance(loader, DataLoader) and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        yield str(len(dataset)).encode()  # type: ignore[arg-type]
        for row in spread(len(dataset), LOOKS):  # type: ignore[arg-type]
            yield steady(dataset, row)
    elif isinstance(loader, list | tuple) and loader:
        for batch in (loader[0], loader[-1]):
            try:
                yield b"".join(bytes_of(batch))
            except (TypeError, ValueError, RuntimeError):
                yield None
    else:
        yield None


def spread(count: int, looks: int) -> list[int]:
    """Some rows, evenly spaced."""
    return np.unique(np.linspace(0, max(count - 1, 0), looks).astype(int)).tolist() if count else []


def steady(dataset: Any, row: int) -> bytes | None:
    """A sample, if it is the same at each reading; one that cannot be read will say so in its turn."""
    try:
        once, again = (b"".join(bytes_of(dataset[row])) for _ in range(2))
    except Exception:
        return None
    return once if once == again else None


def bytes_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().numpy() if value.dtype.is_floating_point else value.cpu().numpy()
    if isinstance(value, np.ndarray):
        yield f"{value.shape}{value.dtype}".encode() + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from bytes_of(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from bytes_of(item)
    else:
        yield repr(value).encode()


# Contents


class UnknownError(Exception):
    """Nothing tells of the contents."""


def contents_of(loader: Any) -> str | None:
    """A digest of all that a loader yields, without reading it where files or arrays tell; None where nothing does."""
    digest = Digest()
    try:
        if isinstance(loader, list | tuple):
            digest.add(loader)
        elif isinstance(loader, DataLoader):
            if isinstance(loader.sampler, list | tuple | range | np.ndarray | Tensor):
                digest.add(np.asarray(loader.sampler))
            digest.add_dataset(loader.dataset)
        else:
            return None
    except Exception:  # a data set of one's own, whose parts are not what their names say
        return None
    return digest.text


class Digest:
    """Of values of any kind, each with what it is, so that no two are taken for one another."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    @property
    def text(self) -> str:
        return self._sha256.hexdigest()[:16]

    def add(self, value: Any) -> None:
        """An array, whatever holds some, or anything that shows itself by its text."""
        if isinstance(value, Tensor | np.ndarray):
            self._add_array(value)
        elif isinstance(value, Mapping):
            self._say("map", len(value))
            for key in sorted(value, key=str):
                self._say(key)
                self.add(value[key])
        elif isinstance(value, list | tuple):
            self._say("list", len(value))
            for item in value:
                self.add(item)
        elif value is None or isinstance(value, str | bytes | int | float | np.generic):
            self._say(value)
        else:
            raise UnknownError(type(value))

    def _add_array(self, value: Tensor | np.ndarray[Any, Any]) -> None:
        self._say(tuple(value.shape), str(value.dtype))
        if value.nbytes > WHOLE and len(value) > ROWS:
            value = value[spread(len(value), ROWS)]
        if isinstance(value, Tensor):
            value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        elif value.dtype.hasobject:
            raise UnknownError(value.dtype)
        self._sha256.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)

    def _say(self, *values: Any) -> None:
        self._sha256.update(repr(values).encode(errors="surrogatepass") + b"\0")

    def add_dataset(self, dataset: Any) -> None:
        """What a data set lists: its own identity, its files, or its arrays; else some samples as they are read."""
        if isinstance(dataset, Subset):
            self.add(np.asarray(dataset.indices))
            self.add_dataset(dataset.dataset)
        elif isinstance(dataset, ConcatDataset):
            self._say("parts", len(dataset.datasets))
            for part in dataset.datasets:
                self.add_dataset(part)
        elif (own := getattr(dataset, "identity", None)) is not None:
            self._say(plain(own), plain(getattr(dataset, "stamps", None)))
        elif files := files_of(dataset):
            self._say(*stamps(files, getattr(dataset, "root", None)))
        elif arrays := arrays_of(dataset):
            self.add(arrays)
        else:
            for row in spread(len(dataset), MORE):
                sample = steady(dataset, row)
                if sample is None:
                    raise UnknownError(row)
                self._sha256.update(sample)


def files_of(dataset: Any) -> list[tuple[Any, Any]]:
    """The files that a data set lists beside their labels, as torchvision's do."""
    listed = getattr(dataset, "samples", None)
    if not isinstance(listed, list) or len(listed) != len(dataset):
        return []
    return listed if all(isinstance(item, tuple) and isinstance(item[0], str | os.PathLike) for item in listed) else []


def stamps(files: Iterable[tuple[Any, Any]], root: Any) -> Iterator[tuple[Any, ...]]:
    """Of each file its name below the root, its label, its size and when it was changed."""
    start = "" if root is None else os.path.join(os.fspath(root), "")
    for path, *label in files:
        about = os.stat(path)
        yield os.fspath(path).removeprefix(start), label, about.st_size, about.st_mtime_ns


def arrays_of(dataset: Any) -> list[Any]:
    """The arrays that a data set in memory holds: one row a sample, and the labels."""
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and tensors and all(isinstance(t, Tensor) for t in tensors):
        return list(tensors)
    data = getattr(dataset, "data", None)
    if not isinstance(data, Tensor | np.ndarray) or len(data) != len(dataset):
        return []
    return [data, *(getattr(dataset, name, None) for name in ("targets", "labels"))]
