"""Features of a set of samples: pooled layers, logits, labels and the head that joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ._columns import (
    Array,
    Head,
    Layer,
    as_head,
    as_labels,
    as_matrix,
    check_head,
    check_labels,
    check_same_model,
    column_key,
    column_name,
)
from ._pieces import Pieces, whole
from ._seen import Seen

if TYPE_CHECKING:
    from ._moments import Moments
    from ._spaces import Space

__all__ = ["Features"]


class Features:
    r"""What a frozen network says about ``n`` samples; no image is kept.

    Args:
        avg: what the head reads, (n, d): the average-pooled maps, the class token, the embedding.
        std: the standard deviation over positions of the maps that enter the pooling, (n, k).
        logits: (n, C); when left out they follow from ``avg`` and the head.
        labels: the class of each sample, integers in [0, C).
        head: ``(W, b)`` with logits :math:`W z + b`; ``b`` may be None.
        layers: earlier layers by name, each ``(avg, std)`` or a single array for ``avg``.
        fingerprint: tells which model made the features; features of two models do not mix.
        seen: what else is known of how they were made; see :class:`Seen`.

    Arrays may be numpy or torch, of any floating type, in memory or memory-mapped; nothing is copied. Those of a store
    of shards (:meth:`open`) are read where they are used: a batch, a slice, samples by their numbers; a whole column,
    ``avg``, comes into memory.

    Example:
        >>> z = torch.rand(6, 4)
        >>> train = Features(avg=z, labels=[0, 1, 0, 1, 0, 1], head=(torch.ones(2, 4), None))
        >>> train
        Features(n=6, avg=4, logits=2, classes=2)
        >>> len(train[:4]), train[:4].logits.shape
        (4, torch.Size([4, 2]))
    """

    _moments: Callable[[Space], Moments] | None = None

    def __init__(
        self,
        avg: Array | None = None,
        std: Array | None = None,
        logits: Array | None = None,
        labels: Array | Sequence[int] | None = None,
        head: tuple[Array, Array | None] | Head | None = None,
        layers: Mapping[str, Array | tuple[Array | None, Array | None] | Layer] | None = None,
        fingerprint: str | None = None,
        seen: Seen | None = None,
    ) -> None:
        self.fingerprint, self.seen = fingerprint, seen
        self._rows: Tensor | None = None
        self._columns: dict[tuple[str | None, str], Tensor | Pieces] = {}
        self._put(None, "avg", avg)
        self._put(None, "std", std)
        for name, layer in (layers or {}).items():
            pair = layer if isinstance(layer, tuple) else (layer, None)
            self._put(name, "avg", pair[0])
            self._put(name, "std", pair[1])
        self._put(None, "logits", logits)
        if not self._columns:
            raise InputError("Features need at least one of avg, std, logits or layers; all are None.")

        sizes = {column_name(key): len(column) for key, column in self._columns.items()}
        given = None if labels is None else as_labels(labels)
        self._labels: Tensor | Pieces | None = given
        if given is not None:
            sizes["labels"] = len(given)
        if len(set(sizes.values())) > 1:
            raise InputError(f"Features disagree on the number of samples: {sizes}. Pass arrays of one length.")

        self._head = None if head is None else as_head(head)
        self._check_head()
        if given is not None:
            check_labels(given, self._outputs)

    @classmethod
    def unchecked(
        cls,
        columns: Mapping[str, Tensor | Pieces],
        labels: Tensor | Pieces | None = None,
        head: Head | None = None,
        fingerprint: str | None = None,
        seen: Seen | None = None,
    ) -> Features:
        """Features of tensors that are known to fit together, by the names that energies use: ``avg``, ``std@layer3``.

        Nothing is checked, copied or asked for its size, so that it can stand inside a graph (``torch.export``) and
        in every call of a guard.
        """
        features = object.__new__(cls)
        features.fingerprint, features.seen, features._head = fingerprint, seen, head
        features._rows, features._labels = None, labels
        features._columns = {column_key(name): column for name, column in columns.items()}
        return features

    def _put(self, layer: str | None, pooling: str, array: Array | None) -> None:
        if array is not None:
            self._columns[layer, pooling] = as_matrix(array, column_name((layer, pooling)))

    def _check_head(self) -> None:
        if self._head is None:
            return
        check_head(self._head)
        classes, width = self._head.weight.shape
        avg, logits = self.get("avg"), self._columns.get((None, "logits"))
        if avg is not None and avg.shape[1] != width:
            raise InputError(
                f"The head reads {width} features but avg has {avg.shape[1]}. "
                f"Pass head=(W, b) with W of shape (classes, {avg.shape[1]})."
            )
        if logits is not None and logits.shape[1] != classes:
            raise InputError(
                f"The head has {classes} classes but logits has {logits.shape[1]} columns. "
                "Pass the head that made them."
            )

    # What there is

    @property
    def avg(self) -> Tensor | None:
        """What the head reads, (n, d)."""
        return self.get("avg")

    @property
    def std(self) -> Tensor | None:
        """Standard deviation over positions of the maps that enter the pooling, (n, k)."""
        return self.get("std")

    @property
    def logits(self) -> Tensor | None:
        """The logits, (n, C): given, or computed from ``avg`` and the head."""
        return self.get("logits")

    @property
    def labels(self) -> Tensor | None:
        """The class of each sample, int64 (n,)."""
        if self._labels is None:
            return None
        return whole(self._labels if self._rows is None else self._labels[self._rows])

    @property
    def head(self) -> Head | None:
        """The linear head, or None."""
        return self._head

    @property
    def layers(self) -> dict[str, Layer]:
        """Earlier layers by name."""
        names = dict.fromkeys(layer for layer, _ in self._columns if layer is not None)
        return {name: Layer(self.get("avg", name), self.get("std", name)) for name in names}

    @property
    def classes(self) -> int | None:
        """How many classes there are: by the head, the logits or the labels, in this order."""
        if self._outputs is None and self._labels is not None and len(self._labels):
            return int(whole(self._labels).max()) + 1
        return self._outputs

    @property
    def _outputs(self) -> int | None:
        """How many classes the network tells apart."""
        logits = self._columns.get((None, "logits"))
        if self._head is not None:
            return len(self._head.weight)
        return None if logits is None else logits.shape[1]

    def get(self, pooling: str, layer: str | None = None) -> Tensor | None:
        """The column ``pooling`` ("avg", "std" or "logits") of a layer; None where there is none."""
        if self._rows is not None:
            return self[:].get(pooling, layer)
        column = self._columns.get((layer, pooling))
        if column is None and (layer, pooling) == (None, "logits") and self._head is not None:
            avg = self.get("avg")
            if avg is not None:
                return self._head(avg if avg.dtype in (torch.float32, torch.float64) else avg.float())
        return None if column is None else whole(column)

    def column(self, name: str) -> Tensor | None:
        """A column by the name that energies use: ``avg``, ``std@layer3``, ``logits``."""
        layer, pooling = column_key(name)
        return self.get(pooling, layer)

    @property
    def available(self) -> set[str]:
        """The names of all there is, ``head`` and ``labels`` included."""
        names = {column_name(key) for key in self._columns}
        if self._head is not None:
            names |= {"head", "logits"} if "avg" in names else {"head"}
        return names | ({"labels"} if self._labels is not None else set())

    @property
    def columns(self) -> dict[tuple[str | None, str], Tensor]:
        """The stored columns, by (layer, pooling); logits that follow from the head are not stored."""
        found = self._columns if self._rows is None else self[:]._columns
        return {key: whole(column) for key, column in found.items()}

    @property
    def device(self) -> torch.device:
        """Where the columns are."""
        return next(iter(self._columns.values())).device

    # Slices, batches, unions

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())) if self._rows is None else self._rows)

    def __getitem__(self, index: int | slice | Array | Sequence[int]) -> Features:
        """The chosen samples; a slice is a view and costs nothing."""
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"sample {index} of {len(self)}")
            index = slice(index, index + 1 or None)
        elif not isinstance(index, slice):
            index = torch.as_tensor(np.asarray(index) if not isinstance(index, Tensor) else index)
            index = index.nonzero().squeeze(1) if index.dtype == torch.bool else index.long().reshape(-1)
        if self._rows is not None:
            index = self._rows[index]
        labels = None if self._labels is None else self._labels[index]
        return self._derive({k: v[index] for k, v in self._columns.items()}, labels)

    def subset(self, rows: Tensor) -> Features:
        """The samples of these numbers as a view: nothing is read before a batch of it is."""
        derived = self._derive(self._columns, self._labels)
        derived._rows = rows if self._rows is None else self._rows[rows]
        return derived

    def standing_for(self, moments: Callable[[Space], Moments]) -> Features:
        """The same samples as a sample of more, whose class moments in any space are known."""
        derived = self.only(sorted(self.available))
        derived._moments = moments
        return derived

    def moments_in(self, space: Space) -> Moments | None:
        """The class moments of all samples that these stand for, where they are known: those of a store of shards."""
        return None if self._moments is None else self._moments(space)

    summed = property(lambda self: self._moments is not None, doc="Whether :meth:`moments_in` knows them.")

    def number_of(self, position: int) -> int:
        """The number that a sample has in the features that a view was taken of, for error messages.

        Example:
            >>> Features(avg=torch.rand(9, 2)).subset(torch.tensor([4, 7])).number_of(1)
            7
        """
        return position if self._rows is None else int(self._rows[position])

    def batches(self, size: int = 1024) -> Iterator[Features]:
        """The samples in order, ``size`` at a time; a memory-mapped store is read a batch at a time."""
        if size < 1:
            raise InputError(f"A batch needs at least one sample, not {size}.")
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def to(self, *args: Any, **kwargs: Any) -> Features:
        """The same features on another device or of another floating type, as ``Tensor.to``."""
        columns = {k: v.to(*args, **kwargs) for k, v in self.columns.items()}
        labels, device = self.labels, next(iter(columns.values())).device
        return self._derive(columns, None if labels is None else labels.to(device))

    def only(self, names: Sequence[str]) -> Features:
        """A view with these columns alone (``avg``, ``std@layer3``…); labels and head stay."""
        wanted = {key: column for key, column in self._columns.items() if column_name(key) in names}
        if "logits" in names and (None, "logits") not in wanted and (None, "avg") in self._columns:
            wanted[None, "avg"] = self._columns[None, "avg"]
        derived = self._derive(wanted or self._columns, self._labels)
        derived._rows, derived._moments = self._rows, self._moments
        return derived

    def changed(self, share: float, generator: torch.Generator) -> Features:
        """The same samples with other last digits: each channel moved by up to this share of its mean size."""
        moved = {}
        for key, column in self.columns.items():
            size = column.abs().mean(0, keepdim=True)
            noise = 2 * torch.rand(column.shape, generator=generator).to(column) - 1
            moved[key] = column + share * size * noise
        return self._derive(moved, self.labels)

    def among(self, classes: Tensor, labelled: bool = True) -> Features:
        """A view for a classifier that knows some classes alone: head and logits cut, labels renumbered.

        Args:
            classes: the classes to keep, as numbers.
            labelled: keep the labels; every sample must then be of these classes.

        Example:
            >>> f = Features(logits=torch.eye(3), labels=[0, 1, 2])
            >>> f[1:].among(torch.tensor([1, 2])).labels
            tensor([0, 1])
        """
        columns = dict(self._columns)
        if (None, "logits") in columns:
            columns[None, "logits"] = columns[None, "logits"][:, classes]
        labels = None
        if labelled and self._labels is not None:
            before = whole(self._labels).cpu()
            known = 1 + int(torch.cat([before, classes]).max())
            number = torch.full((known + 1,), -1).index_put((classes,), torch.arange(len(classes)))
            labels = number[before.clamp(min=-1)]  # the last is of those that have no class
            if int((labels if self._rows is None else labels[self._rows]).min()) < 0:
                raise InputError("A sample is of none of the classes. Choose the samples of these classes first.")
        derived = self._derive(columns, labels)
        derived._rows = self._rows
        if self._head is not None:
            bias = self._head.bias
            derived._head = Head(self._head.weight[classes], None if bias is None else bias[classes])
        return derived

    @classmethod
    def concatenate(cls, parts: Sequence[Features]) -> Features:
        """One feature set of several, in memory; they must have the same columns and come from the same model."""
        if not parts:
            raise InputError("Nothing to concatenate: pass at least one feature set.")
        first = parts[0]
        keys = set(first._columns)
        for part in parts[1:]:
            if set(part._columns) != keys or (part.labels is None) != (first.labels is None):
                raise InputError(
                    f"Features with different columns cannot be concatenated: {first!r} and {part!r}. "
                    "Extract both in the same way."
                )
            check_same_model(first.fingerprint, part.fingerprint)
        each = [part.columns for part in parts]
        columns = {k: torch.cat([part[k] for part in each]) for k in each[0]}
        labels = None if first.labels is None else torch.cat([p.labels for p in parts if p.labels is not None])
        return first._derive(columns, labels)

    def _derive(
        self, columns: Mapping[tuple[str | None, str], Tensor | Pieces], labels: Tensor | Pieces | None
    ) -> Features:
        derived = self.unchecked({}, labels, self._head, self.fingerprint, self.seen)
        derived._columns = dict(columns)
        return derived

    # On disk

    def save(self, path: str | PathLike[str]) -> None:
        """Write a folder of ``.npy`` files with a ``manifest.json``; :meth:`open` reads it back, memory-mapped.

        Features that are there already are replaced in one step: a kill leaves the old ones or the new ones.
        """
        from ._store import save

        save(self, path)

    @classmethod
    def open(cls, path: str | PathLike[str], verify: bool = False) -> Features:
        """Open a finished store, memory-mapped: it takes next to no memory, whatever its size.

        A store of shards opens as one: the files of a shard are opened and checked where they are first read.

        Args:
            path: the folder.
            verify: read all files and compare their checksums. Without it their sizes, headers and first and last
                numbers are checked, which costs next to nothing whatever their size.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Features(avg=torch.rand(3, 2)).save(folder)
            ...     Features.open(folder, verify=True)
            Features(n=3, avg=2)
        """
        from ._store import open_store

        return open_store(path, verify)

    def __repr__(self) -> str:
        parts = [f"n={len(self)}"] + [f"{column_name(k)}={v.shape[1]}" for k, v in self._columns.items()]
        if (None, "logits") not in self._columns and self._head is not None and (None, "avg") in self._columns:
            parts.append(f"logits={len(self._head.weight)}")
        if self._labels is not None:
            parts.append(f"classes={self.classes}")
        return f"Features({', '.join(parts)})"
