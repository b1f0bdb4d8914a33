"""The distance to the k-th nearest ID sample, and its smooth form."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import InputError, Notice
from ..features import Features, Space, normalise
from ..registry import register
from ._borrowing import Borrowing
from ._gmm import check_gaussian
from ._neighbours import attraction, bandwidth_of, check_bank, check_k, log_kernel_sum, nearest, stored_samples
from ._settings import LARGEST, SMALLEST, check_settings

__all__ = ["KNearest"]


@register("knn", "distance to the k-th nearest ID sample")
class KNearest(Borrowing):
    r"""Euclidean distance to the k-th nearest of the stored ID samples (Sun et al., 2022).

    .. math:: E(z) = \|z - z_{(k)}\|_2

    The search is exact and holds a chunk of the stored samples at a time. The neighbours are found by inner products
    about the mean of the stored samples; the k-th distance is then computed from the difference itself, so that
    near-duplicates lose no digits to cancellation. It needs neither labels nor a head; on features of a contrastively
    trained backbone it is the authors' KNN+.

    A distance to one sample has a gradient that jumps from sample to sample. ``soft=True`` is the form that HEAT
    corrects, the soft k-NN energy, which the HEAT paper leaves to future work:

    .. math:: E(z) = -\log \frac1N \sum_i \exp\left(-\frac{\|z - z_i\|^2}{2h^2}\right)

    where the width :math:`h` makes the weights of an ID sample spread over ``k`` others: the mean perplexity of the
    weights of (at most 512) ID samples, themselves left out, is ``k``. So both forms have the same single parameter.

    Args:
        columns: what it reads, side by side: ``("avg",)``, ``("std",)``, ``("avg@layer3",)``.
        normalise: put each sample on the unit sphere first, as the authors do.
        k: which neighbour, or the perplexity; the authors take 50 on CIFAR-10, 200 on CIFAR-100, 1000 on ImageNet.
        limit: how many ID samples are stored; a float is a share of them, the authors' :math:`\alpha`; None is all.
        soft: the smooth form.
        seed: of the samples that are stored and of those that set the width.
        proposals: fit the mixture, which takes a pass over the features and is needed to propose, not to score.

    Example:
        >>> knn = KNearest(normalise=False, k=2).fit(Features(avg=torch.tensor([[0.0, 0.0], [0.0, 3.0], [9.0, 9.0]])))
        >>> knn.score(torch.tensor([[4.0, 0.0]]))
        tensor([5.])

    References:
        Sun, Ming, Zhu and Li, Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """

    rises = ("far",)
    stored: Tensor
    centre: Tensor
    half_squares: Tensor
    bandwidth: Tensor

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        k: int = 50,
        limit: int | float | None = None,
        soft: bool = False,
        seed: int = 0,
        proposals: bool = False,
    ) -> None:
        super().__init__(proposals)
        self.columns, self.normalise = columns, normalise
        self.k, self.limit, self.soft, self.seed = k, limit, soft, seed
        for name in ("stored", "centre", "half_squares", "bandwidth"):
            self.register_buffer(name, None)

    @classmethod
    def as_prior(cls, **settings: Any) -> KNearest:
        return cls(**{"soft": True, **settings})

    @property
    def space(self) -> Space:
        return Space(tuple(self.columns), self.normalise)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.space.columns

    def check(self) -> None:
        check_bank(self.k, self.limit)
        check_gaussian(self.space)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        stored = stored_samples(features.only(self.reads), self.space, self.limit, self.seed)
        self.check_neighbours(len(stored))
        self.say_beyond_classes(features, len(stored))

        self.centre = stored.mean(0, dtype=torch.float64).to(stored)
        self.stored = stored.sub_(self.centre)
        self.half_squares = 0.5 * torch.linalg.vecdot(self.stored, self.stored)
        h = bandwidth_of(self.stored, self.half_squares, self.k, self.seed) if self.soft else 0.0
        self.bandwidth = self.stored.new_tensor(h)
        self.borrow(features)
        return self

    def check_neighbours(self, count: int) -> None:
        check_k(type(self).__name__, self.k, count)
        if self.soft and not 2 <= self.k <= count - 2:
            raise InputError(
                f"soft=True spreads the weights of each of {count:,} stored samples over k={self.k} of the others, "
                f"and k must leave some room. Choose k between 2 and {count - 2}, or pass more samples."
            )

    def say_beyond_classes(self, features: Features, stored: int) -> None:
        """Say that the k-th neighbour of an ID sample is of another class, where the labels tell so."""
        if features.labels is None:
            return
        sizes = torch.unique(features.labels, return_counts=True)[1]
        each = max(1, math.floor(stored / len(sizes)))
        if len(sizes) > 1 and self.k > each:
            text = f"{stored:,} samples of {len(sizes):,} classes are stored, {each} a class, so the neighbour number "
            text += f"k={self.k} of an ID sample is of another class. Choose k={each} or less, or store more samples."
            warnings.warn(Notice(text), stacklevel=3)

    # Energy

    def energy(self, features: Features) -> Tensor:
        return self.energy_of(self.space(features, self.stored.dtype))

    def energy_of(self, z: Tensor) -> Tensor:
        x = self.centred(z)
        if not self.soft:
            distance: Tensor = torch.linalg.vector_norm(x - self.neighbour(x), dim=1)
            return distance
        half: Tensor = 0.5 * torch.linalg.vecdot(x, x) / self.bandwidth**2
        return half - log_kernel_sum(x, self.stored, self.half_squares, self.bandwidth) + math.log(len(self.stored))

    def gradient_of(self, z: Tensor) -> Tensor:
        r""":math:`(z - z_{(k)}) / \|z - z_{(k)}\|`, zero where they meet; soft :math:`(z - \sum_i w_i z_i) / h^2`."""
        x = self.centred(z)
        if not self.soft:
            return normalise(x - self.neighbour(x))
        return (x - attraction(x, self.stored, self.half_squares, self.bandwidth)) / self.bandwidth**2

    def centred(self, z: Tensor) -> Tensor:
        self.check_width(z, len(self.centre), self.columns)
        return z - self.centre

    def neighbour(self, x: Tensor) -> Tensor:
        """The k-th nearest stored sample of each point, (n, d), about the mean."""
        return self.stored[nearest(x, self.stored, self.k, self.half_squares)[1][:, -1]]

    def validate(self) -> None:
        super().validate()
        if self.stored.ndim != 2 or not self.stored.is_floating_point():
            raise InputError(f"the stored samples are {self.stored.dtype} of shape {tuple(self.stored.shape)}")
        n, d = self.stored.shape
        shapes = {"centre": (d,), "half_squares": (n,), "bandwidth": ()}
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        wrong += [name for name in shapes if getattr(self, name).dtype != self.stored.dtype]
        if wrong:
            raise InputError(f"{', '.join(dict.fromkeys(wrong))} and {n} stored samples of {d} features disagree")
        self.check_neighbours(n)
        if self.soft and not SMALLEST <= float(self.bandwidth) ** 2 <= LARGEST:
            raise InputError(f"the bandwidth is {float(self.bandwidth)}")
        if not all(t.isfinite().all() for t in (self.stored, self.centre, self.half_squares)):
            raise InputError("the stored samples are not finite")
        if self.density is not None and self.density.white.shape[1] != d:
            raise InputError("the mixture and the stored samples have different widths")
