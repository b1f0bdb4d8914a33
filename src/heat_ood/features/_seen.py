"""What features were made by and of; it travels with them, and with the detector that is fitted to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from ..errors import InputError
from ..files import plain, restored

__all__ = ["Seen", "identity_of", "seen_of"]

LOOKS = 4
"""So many samples of a data set tell it from another one."""


@dataclass(frozen=True)
class Seen:
    """The model, how images were prepared for it, the classes and the samples; None where it is not known.

    Args:
        model: as it was named (``timm:resnet50``), or its class.
        weights: the file that its weights came from.
        preprocessing: size, crop, interpolation, mean, std, by name.
        classes: the names of the classes, in order.
        source: where the samples lie.
        samples: a digest of some samples, to tell them from others.
        layers: the earlier layers that were read, as the extractor was given them: names, or ``("stages",)``.
        head: the name of the head where one was given, ``none`` where it was said that there is none.

    Example:
        >>> small, large = (Seen(preprocessing={"size": [n, n], "mean": [0.5]}) for n in (32, 64))
        >>> small.check(large)
        Traceback (most recent call last):
        heat_ood.errors.InputError: These samples were prepared otherwise than those before: size [64, 64] instead of
        [32, 32]. Prepare all of them alike: the same size, crop, interpolation, mean and std.
    """

    model: str | None = None
    weights: str | None = None
    preprocessing: Mapping[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    source: str | None = None
    samples: str | None = None
    layers: tuple[str, ...] | None = None
    head: str | None = None

    def check(self, other: Seen | None) -> None:
        """Refuse samples that were prepared otherwise; what is not known passes."""
        if other is None or self.preprocessing is None or other.preprocessing is None:
            return
        mine, theirs = plain(self.preprocessing), plain(other.preprocessing)
        names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        if names:
            sides = ", ".join(f"{name} {theirs.get(name)} instead of {mine.get(name)}" for name in names)
            raise InputError(
                f"These samples were prepared otherwise than those before: {sides}. Prepare all of them alike: the "
                "same size, crop, interpolation, mean and std."
            )

    def to_dict(self) -> dict[str, Any]:
        """What is known, as JSON can hold it."""
        return {f.name: plain(value) for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @classmethod
    def read(cls, data: Any) -> Seen:
        """What :meth:`to_dict` gave; keys of a later version are left out."""
        known = {f.name for f in fields(cls)}
        return restored(cls, {key: value for key, value in dict(data).items() if key in known}, "seen")


def seen_of(loader: Any, model: str | None, weights: str | None) -> Seen:
    """What can be known of what a loader yields: a data set may tell how its images are prepared, and its classes."""
    dataset = _dataset_of(loader)
    preprocessing: Any = getattr(dataset, "preprocessing", None)
    prepared = preprocessing.to_dict() if hasattr(preprocessing, "to_dict") else None
    classes, root = getattr(dataset, "classes", None), getattr(dataset, "root", None)
    named = isinstance(classes, list | tuple) and all(isinstance(name, str) for name in classes)
    return Seen(
        model,
        weights,
        None if prepared is None else plain(prepared),
        tuple(classes) if named and classes is not None else None,
        None if root is None else str(root),
        identity_of(loader),
    )


def _dataset_of(loader: Any) -> Any:
    """The data set behind a loader and behind subsets of it."""
    dataset = getattr(loader, "dataset", None)
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def identity_of(loader: Any) -> str | None:
    """A digest of some of the samples that a loader yields; None where they cannot be read twice alike.

    A data set that has an ``identity`` of its own (files' names and sizes, a version) is told by that.
    """
    own = getattr(_dataset_of(loader), "identity", None)
    if own is not None:
        return hashlib.sha256(repr(plain(own)).encode()).hexdigest()[:16]
    digest = hashlib.sha256()
    for sample in _some(loader):
        if sample is None:
            return None
        digest.update(sample)
    return digest.hexdigest()[:16]


def _some(loader: Any) -> Iterator[bytes | None]:
    """The bytes of some samples; None where a sample is another one at each reading."""
    dataset = getattr(loader, "dataset", None)
    if isinstance(loader, DataLoader) and hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        count = len(dataset)  # type: ignore[arg-type]
        yield str(count).encode()
        for row in np.unique(np.linspace(0, max(count - 1, 0), LOOKS).astype(int)) if count else ():
            try:
                once, again = (b"".join(_bytes_of(dataset[int(row)])) for _ in range(2))  # type: ignore[index]
            except Exception:  # a sample that cannot be read will say so in its turn
                once, again = b"", b"-"
            yield once if once == again else None
    elif isinstance(loader, list | tuple) and loader:
        yield b"".join(_bytes_of(loader[0]))
        yield b"".join(_bytes_of(loader[-1]))
    else:
        yield None


def _bytes_of(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous().numpy() if value.dtype.is_floating_point else value.cpu().numpy()
    if isinstance(value, np.ndarray):
        yield f"{value.shape}{value.dtype}".encode() + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _bytes_of(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _bytes_of(item)
    else:
        yield repr(value).encode()
