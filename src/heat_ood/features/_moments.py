"""Class moments in one pass: the sufficient statistics of everything Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError

__all__ = ["Gathering", "Moments"]


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Counts, class sums and the sum of outer products, in float64, about a fixed origin.

    .. math:: n_c, \qquad s_c = \sum_{i: y_i = c} (z_i - o), \qquad S = \sum_i (z_i - o)(z_i - o)^\top

    The origin keeps the differences small, so that nothing is lost when features lie far from zero.
    Moments of two disjoint sets add up, and the moments of a part can be taken away again.

    Example:
        >>> z, y = torch.randn(100, 3, dtype=torch.float64), torch.arange(100) % 2
        >>> whole = Moments.of([(z, y)], classes=2)
        >>> halves = Moments.of([(z[:50], y[:50])], 2) + Moments.of([(z[50:], y[50:])], 2)
        >>> torch.allclose(whole.covariance, halves.covariance, atol=1e-12)
        True
    """

    counts: Tensor
    sums: Tensor
    outer: Tensor
    origin: Tensor
    minimum: Tensor
    maximum: Tensor

    @classmethod
    def of(
        cls,
        batches: Iterable[tuple[Tensor, Tensor | None]],
        classes: int = 1,
        number_of: Callable[[int], int] = int,
    ) -> Moments:
        """One pass over ``(z, labels)`` batches; labels None puts every sample in class 0.

        Args:
            batches: the samples.
            classes: how many there are.
            number_of: what errors call the sample at a position, as :meth:`Features.number_of` does.
        """
        gathering = Gathering(classes, number_of)
        for z, labels in batches:
            gathering.add(z, labels)
        return gathering.result()

    @classmethod
    def zero(cls, origin: Tensor, classes: int) -> Moments:
        """Moments of no sample about ``origin``."""
        d = len(origin)
        new = origin.new_zeros
        infinite = torch.full_like(origin, torch.inf)
        counts = torch.zeros(classes, dtype=torch.long, device=origin.device)
        return cls(counts, new(classes, d), new(d, d), origin.clone(), infinite, -infinite)

    def about(self, origin: Tensor) -> Moments:
        """The same moments about another origin."""
        shift = self.origin - origin
        total, n = self.sums.sum(0), self.counts.sum()
        cross = torch.outer(total, shift)
        outer = self.outer + cross + cross.T + n * torch.outer(shift, shift)
        return Moments(self.counts, self.sums + self.counts[:, None] * shift, outer, origin, self.minimum, self.maximum)

    def like(self, other: Moments) -> Moments:
        """Another's moments about this origin, if they are of the same classes and channels."""
        if self.sums.shape != other.sums.shape:
            (c, d), (k, e) = self.sums.shape, other.sums.shape
            raise InputError(f"Moments of {c} classes × {d} features and of {k} classes × {e} features do not join.")
        return other.about(self.origin)

    def __add__(self, other: Moments) -> Moments:
        other = self.like(other)
        return Moments(
            self.counts + other.counts,
            self.sums + other.sums,
            self.outer + other.outer,
            self.origin,
            torch.minimum(self.minimum, other.minimum),
            torch.maximum(self.maximum, other.maximum),
        )

    def __sub__(self, other: Moments) -> Moments:
        """The moments without a part that they contain; the range is left as it was."""
        other = self.like(other)
        counts = self.counts - other.counts
        return Moments(
            counts, self.sums - other.sums, self.outer - other.outer, self.origin, self.minimum, self.maximum
        )

    @property
    def n(self) -> int:
        """How many samples."""
        return int(self.counts.sum())

    @property
    def means(self) -> Tensor:
        """The mean of each class, (C, d); a class without samples has the origin."""
        return self.origin + self.sums / self.counts.clamp(min=1)[:, None]

    @property
    def mean(self) -> Tensor:
        """The mean of all samples, (d,)."""
        return self.origin + self.sums.sum(0) / self.n

    @property
    def covariance(self) -> Tensor:
        r"""The covariance within classes, (d, d): :math:`\frac{1}{n}\sum_i (z_i - \mu_{y_i})(z_i - \mu_{y_i})^\top`."""
        scaled = self.sums / self.counts.clamp(min=1).double().sqrt()[:, None]
        covariance: Tensor = (self.outer - scaled.T @ scaled) / self.n
        return (covariance + covariance.T) / 2


class Gathering:
    """Moments that grow batch by batch, about the mean of the first; the arguments are those of :meth:`Moments.of`."""

    def __init__(self, classes: int = 1, number_of: Callable[[int], int] = int) -> None:
        self.classes, self.number_of = classes, number_of
        self.moments: Moments | None = None
        self.seen = 0

    def add(self, z: Tensor, labels: Tensor | None) -> None:
        """Count a batch."""
        if not len(z):
            return
        z = z.double()
        labels = torch.zeros(len(z), dtype=torch.long, device=z.device) if labels is None else labels.to(z.device)
        check(z, labels, self.classes, self.seen, self.number_of)
        self.seen += len(z)
        if self.moments is None:
            self.moments = Moments.zero(z.mean(0), self.classes)
        moments = self.moments
        x = z - moments.origin
        moments.counts.add_(torch.bincount(labels, minlength=self.classes))
        moments.sums.index_add_(0, labels, x)
        moments.outer.addmm_(x.T, x)
        torch.minimum(moments.minimum, z.amin(0), out=moments.minimum)
        torch.maximum(moments.maximum, z.amax(0), out=moments.maximum)

    def result(self) -> Moments:
        """The moments of all batches."""
        if self.moments is None:
            raise InputError("Moments need at least one sample; the features are empty.")
        return self.moments


def check(z: Tensor, labels: Tensor, classes: int, seen: int, number_of: Callable[[int], int]) -> None:
    """Non-finite features and labels out of range, with where and how many."""
    bad = ~torch.isfinite(z).all(1)
    if bad.any():
        first, start, end = (number_of(seen + i) for i in (int(bad.nonzero()[0]), 0, len(z) - 1))
        raise InputError(
            f"Features are not finite (NaN or infinite) in sample {first}, the first of {int(bad.sum()):,} such among "
            f"samples {start:,} to {end:,}. "
            "Drop those samples, or extract again in float32 (half precision overflows above 65,504)."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        wrong = int(((labels < 0) | (labels >= classes)).sum())
        raise InputError(
            f"{wrong} labels are out of range: they run from {low} to {high}, and there are {classes} classes. "
            f"Number the classes 0 to {classes - 1}, or drop unlabelled samples."
        )
