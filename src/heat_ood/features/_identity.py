"""Which samples a loader yields: a short text that other samples, or the same after a change, do not have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from ..files import plain
from ._stamps import Stamps, stamps_of

__all__ = ["dataset_of", "identity_of", "same_samples"]

LOOKS, MORE = 4, 32
"""So many samples of a data set are read to tell it from another one; more where nothing else tells of its contents."""


def identity_of(loader: Any, stamps: Callable[[Any], Stamps | None] = stamps_of) -> str | None:
    """Two digests, ``names/contents``, of what a loader yields; what cannot be known is left out.

    The first is the one of version 0.2: of a data set's own ``identity`` (names of files, a version), or of some
    samples as they are read. The second has the whole: sizes and times of files, or the numbers of arrays.
    """
    first, second = names_of(loader), contents_of(loader, stamps(loader))
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


def contents_of(loader: Any, stamps: Stamps | None) -> str | None:
    """A digest of the stamps of all samples; of more samples as they are read where nothing tells of their stamps."""
    if stamps is not None:
        return hashlib.sha256(stamps.tobytes()).hexdigest()[:16]
    dataset: Any = getattr(loader, "dataset", None)
    if not isinstance(loader, DataLoader) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return None
    digest = hashlib.sha256()
    for row in spread(len(dataset), MORE):
        sample = steady(dataset, row)
        if sample is None:
            return None
        digest.update(sample)
    return digest.hexdigest()[:16]
