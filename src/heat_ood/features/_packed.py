"""Moments as they are stored and merged: half of the symmetric matrix, and the classes that occur."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ._moments import Moments

__all__ = ["Merging", "Packed"]

BLOCK = 256
"""So many parts' shifts are multiplied at a time. Other blocks round in another way, so it is not to be changed."""


class Packed(NamedTuple):
    """The moments of one part: class sums of the classes that occur, and the upper triangle of the outer products.

    With 1,000 classes of 2,048 features it takes 16 MiB for each of the two, where class covariances would take 31 GiB.

    Args:
        classes: the numbers of the classes that occur, rising.
        counts: how many samples each has.
        sums: their sums about the origin, a row each.
        upper: the rows of the upper triangle of the sum of outer products, one behind the other.
        origin: of the sums and the outer products.
        minimum: of each channel.
        maximum: of each channel.
    """

    classes: Tensor
    counts: Tensor
    sums: Tensor
    upper: Tensor
    origin: Tensor
    minimum: Tensor
    maximum: Tensor

    @classmethod
    def of(cls, moments: Moments) -> Packed:
        """Half of what moments hold says it all."""
        there = moments.counts.nonzero().flatten()
        upper = torch.cat([row[i:] for i, row in enumerate(moments.outer)])
        sums = moments.sums[there]
        return cls(there, moments.counts[there], sums, upper, moments.origin, moments.minimum, moments.maximum)

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor]) -> Packed:
        """From tensors by name; what no moments can be is an :class:`InputError`."""
        if set(tensors) != set(cls._fields):
            raise InputError(f"they have {', '.join(sorted(tensors))}")
        found = cls(**tensors)
        (d,), (k,) = found.origin.shape[:1] or (0,), found.classes.shape[:1] or (0,)
        shapes = {"classes": (k,), "counts": (k,), "sums": (k, d), "upper": (d * (d + 1) // 2,)}
        shapes |= {"origin": (d,), "minimum": (d,), "maximum": (d,)}
        for name, shape in shapes.items():
            tensor, kind = tensors[name], torch.long if name in ("classes", "counts") else torch.float64
            if tensor.shape != shape or tensor.dtype != kind or not finite(tensor):
                raise InputError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, or not finite")
        if not d or not k or int(found.classes[0]) < 0 or (found.classes.diff() <= 0).any() or (found.counts < 1).any():
            raise InputError("their classes are not in order, or have no samples")
        return found

    @property
    def bytes(self) -> int:
        """How much it takes."""
        return sum(tensor.nbytes for tensor in self)


def finite(tensor: Tensor) -> bool:
    """Whether all numbers are: then mostly their sum is, too, which is quicker to make."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


class Merging:
    r"""The moments of many parts, added one after the other, with one of them in memory at a time.

    All are brought to the origin of the first. With :math:`t = \sum_c s_c` and the shift :math:`δ` from the new origin
    to a part's own, its outer products become

    .. math:: S + u δ^\top + δ u^\top, \qquad u = t + \tfrac n2 δ,

    so that each part costs two sums, and the products of all shifts are made a block at a time. The same parts in the
    same order give the same bits.

    Args:
        classes: how many there are.

    Example:
        >>> z, y = torch.randn(100, 3, dtype=torch.float64), torch.arange(100) % 2
        >>> merging = Merging(2)
        >>> for half in (slice(0, 50), slice(50, 100)):
        ...     merging.add(Packed.of(Moments.of([(z[half], y[half])], 2)))
        >>> torch.allclose(merging.result().covariance, Moments.of([(z, y)], 2).covariance, atol=1e-12)
        True
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.moments: Moments | None = None
        self.upper = torch.empty(0)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, part: Packed) -> None:
        """Count a part."""
        if int(part.classes[-1]) >= self.classes:
            raise InputError(
                f"A label is {int(part.classes[-1])}, and there are {self.classes} classes. Number the classes 0 to "
                f"{self.classes - 1}, or drop unlabelled samples."
            )
        if self.moments is None:
            self.moments, self.upper = Moments.zero(part.origin, self.classes), torch.zeros_like(part.upper)
        total = self.moments
        if total.origin.shape != part.origin.shape:
            raise InputError(
                f"Moments of {len(total.origin)} and of {len(part.origin)} features do not join. Extract all shards "
                "in the same way."
            )
        total.counts.index_add_(0, part.classes, part.counts)
        total.sums.index_add_(0, part.classes, part.sums)
        self.upper.add_(part.upper)
        torch.minimum(total.minimum, part.minimum, out=total.minimum)
        torch.maximum(total.maximum, part.maximum, out=total.maximum)

        counts = torch.zeros(self.classes, dtype=torch.float64).index_add_(0, part.classes, part.counts.double())
        shift = part.origin - total.origin
        self.waiting.append((counts, shift, part.sums.sum(0) + 0.5 * counts.sum() * shift))
        if len(self.waiting) == BLOCK:
            self.shift()

    def shift(self) -> None:
        """Bring the sums of the last parts to the common origin."""
        assert self.moments is not None
        counts, shifts, totals = (torch.stack(rows) for rows in zip(*self.waiting, strict=True))
        self.moments.sums.addmm_(counts.T, shifts)
        self.moments.outer.addmm_(totals.T, shifts)
        self.waiting.clear()

    def result(self) -> Moments:
        """The moments of all parts."""
        if self.moments is None:
            raise InputError("Moments need at least one sample; the features are empty.")
        if self.waiting:
            self.shift()
        total, d = self.moments, len(self.moments.origin)
        outer = total.outer + total.outer.T
        start = 0
        for i in range(d):
            row = self.upper[start : start + d - i]
            outer[i, i:] += row
            outer[i + 1 :, i] += row[1:]
            start += d - i
        return Moments(total.counts, total.sums, outer, total.origin, total.minimum, total.maximum)
