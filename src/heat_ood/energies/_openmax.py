"""OpenMax: an unknown class, to which the logits of samples far from their class give what they lose."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError, Notice
from ..features import Features, normalise
from ..registry import register
from ._head import OfLogits, check_classes, logits_in

__all__ = ["OpenMax"]

EQUAL = 1e-6
"""Distances that spread less than this, relative to the largest, count as equal."""


@register("openmax", "log-odds of an unknown class")
class OpenMax(OfLogits):
    r"""Log-odds of an unknown class beside the known ones (OpenMax; Bendale and Boult, 2016).

    .. math::
        E(x) = v_0 - \log \sum_c e^{v_c}, \qquad
        v_{(i)} = f_{(i)} \left(1 - \tfrac{\alpha - i + 1}{\alpha} \, w_{(i)}\right) \text{ for } i \le \alpha, \quad
        v_0 = \sum_{i \le \alpha} \left(f_{(i)} - v_{(i)}\right)

    with the logits :math:`f_{(1)} \ge f_{(2)} \ge \ldots` and the Weibull distribution function
    :math:`w_c = 1 - \exp(-(\|f - \mu_c\| / \lambda_c)^{k_c})`. The mean logits :math:`\mu_c` are those of ID samples
    classified correctly; shape and scale are fitted by maximum likelihood to the largest distances of these samples
    from it. The energy is :math:`\log(p_0 / (1 - p_0))` of the paper's probability of the unknown class: it ranks
    alike and does not saturate.

    The weights are those of the authors' code. The Weibull's location is zero, so that :math:`w` does not depend on the
    unit of the distances; libMR, which the authors use, moves the smallest distance of each tail to a fixed number.

    A class of which no two distances differ takes the median shape and scale of the other classes. A class without a
    correct sample is never revised; nor is any, if no class can be fitted.

    Args:
        tail: how many of the largest distances of each class are fitted; distances of zero do not count.
        alpha: :math:`\alpha`, how many of the largest logits are revised; at most all.
        distance: "euclidean", "cosine", or the authors' "eucos", Euclidean / 200 + cosine.

    Example:
        >>> logits = 4 * torch.eye(2).repeat(20, 1) + torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
        >>> train = Features(logits=logits, labels=torch.arange(40) % 2)
        >>> near, far = OpenMax().fit(train).score(torch.tensor([[4.5, 0.5], [9.0, 9.0]]))
        >>> bool(near < 0 < far)
        True

    Paper: *Towards Open Set Deep Networks*, CVPR 2016.
    """

    no_prior = "it jumps where the order of the logits changes"
    centres: Tensor
    shapes: Tensor
    log_scales: Tensor

    def __init__(
        self, tail: int = 20, alpha: int = 10, distance: Literal["euclidean", "cosine", "eucos"] = "euclidean"
    ) -> None:
        super().__init__()
        self.tail, self.alpha, self.distance = tail, alpha, distance
        for name in ("centres", "shapes", "log_scales"):
            self.register_buffer(name, None)

    @property
    def learns(self) -> tuple[str, ...]:
        return ("labels",)

    # Fit

    def learn(self, features: Features) -> None:
        first = next(logits_in(features[:1]))[0]
        classes = first.shape[1]
        sums = first.new_zeros(classes, classes, dtype=torch.float64)
        counts = sums.new_zeros(classes)
        for logits, correct in self.correct(features):
            sums.index_add_(0, correct, logits)
            counts += torch.bincount(correct, minlength=classes)
        if not counts.any():
            raise InputError(
                f"OpenMax cannot be fitted: none of {len(features):,} samples is classified correctly. "
                "Pass labels that number the classes as the classifier does."
            )
        self.say_few(counts)
        centres = sums / counts.clamp(min=1)[:, None]

        tails = sums.new_zeros(classes, self.tail)
        for logits, correct in self.correct(features):
            tails = largest(tails, distance(logits, centres[correct], self.distance), correct)
        shapes, log_scales = weibull(tails)
        shapes, log_scales = (shared(x, counts > 0) for x in (shapes, log_scales))
        self.centres, self.shapes, self.log_scales = (x.to(first.dtype) for x in (centres, shapes, log_scales))

    def say_few(self, counts: Tensor) -> None:
        """Say that the Weibulls mean little: new samples are farther from a mean than the few that it was made of."""
        usual = int(counts[counts > 0].median())
        if usual < self.tail:
            text = f"OpenMax fits a Weibull to the tail={self.tail} largest distances of a class, and the usual class "
            text += f"has {usual} samples classified correctly: it may rank the wrong way round. Pass more samples of "
            text += 'each class, or use a method that needs none: "msp", "energy".'
            warnings.warn(Notice(text), stacklevel=4)

    def check(self) -> None:
        if self.tail < 2:
            raise InputError(f"tail is how many distances a Weibull is fitted to, at least 2, not {self.tail}.")
        if self.alpha < 1:
            raise InputError(f"alpha is how many logits are revised, at least 1, not {self.alpha}.")
        if self.distance not in ("euclidean", "cosine", "eucos"):
            raise InputError(f'There is no distance {self.distance!r}. Choose "euclidean", "cosine" or "eucos".')

    def correct(self, features: Features) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits, in float64, and the classes of those samples that are classified correctly, a chunk at a time."""
        for logits, labels in logits_in(features):
            assert labels is not None
            predicted = logits.argmax(1)
            right = predicted == labels.to(predicted.device)
            yield logits[right].double(), predicted[right]

    # Energy

    def of_logits(self, logits: Tensor) -> Tensor:
        check_classes(self, logits, len(self.centres))
        logits = logits.to(self.centres.dtype)
        alpha = min(self.alpha, len(self.centres))
        values, top = (x[:, :alpha] for x in logits.sort(dim=1, descending=True, stable=True))
        away = torch.stack([distance(logits, self.centres[c], self.distance) for c in top.unbind(1)], dim=1)
        w = -torch.expm1(-(self.shapes[top] * (away.log() - self.log_scales[top])).exp())
        removed = values * w * torch.arange(alpha, 0, -1, device=w.device).to(w.dtype) / alpha
        return removed.sum(1) - logits.scatter_add(1, top, -removed).logsumexp(1)

    def validate(self) -> None:
        super().validate()
        parts, classes = (self.centres, self.shapes, self.log_scales), len(self.shapes)
        if [x.shape for x in parts] != [(classes, classes), (classes,), (classes,)]:
            raise InputError(f"the classes have tensors of the shapes {', '.join(str(tuple(x.shape)) for x in parts)}")
        if len({x.dtype for x in parts}) > 1 or not self.centres.is_floating_point():
            raise InputError("the classes have tensors of different kinds")
        if not classes or not self.centres.isfinite().all():
            raise InputError("there is no class, or one has a mean that is not finite")


def distance(x: Tensor, centre: Tensor, kind: str) -> Tensor:
    """How far each row is from the centre beside it, (n,)."""
    euclidean: Tensor = (x - centre).norm(dim=1)
    if kind == "euclidean":
        return euclidean
    cosine = (1 - (normalise(x) * normalise(centre)).sum(1)).clamp(min=0)
    return cosine if kind == "cosine" else euclidean / 200 + cosine


def largest(tails: Tensor, distances: Tensor, classes: Tensor) -> Tensor:
    """The largest of the distances of each class, seen so far and new, (C, k); zero where there are fewer than k."""
    count, k = tails.shape
    values = torch.cat([tails.flatten(), distances])
    owners = torch.cat([torch.arange(count, device=classes.device).repeat_interleave(k), classes])
    order = values.argsort(descending=True)
    order = order[owners[order].argsort(stable=True)]
    values, owners = values[order], owners[order]

    sizes = torch.bincount(owners, minlength=count)
    place = torch.arange(len(owners), device=owners.device) - (sizes.cumsum(0) - sizes)[owners]
    chosen = place < k
    return values[chosen].reshape(count, k)


def weibull(tails: Tensor) -> tuple[Tensor, Tensor]:
    r"""Maximum likelihood of shape and log scale for the positive entries of each row; NaN where no two differ.

    With :math:`y = \log(t / \max t)` and :math:`a = -\bar y`, the shape solves
    :math:`k \left(a + \sum y e^{k y} / \sum e^{k y}\right) = 1`. The left side grows with :math:`k` and crosses one
    between :math:`k a = 1` and :math:`k a = n`, where it is found by bisection, for all rows at once.
    """
    there = tails > 0
    n = there.sum(1).to(tails.dtype)
    top = tails.amax(1)
    y = torch.where(there, (tails / top[:, None]).log(), 0)
    a = -y.sum(1) / n
    a = torch.where(a > EQUAL, a, torch.nan)

    low, high = torch.ones_like(n), n
    for _ in range(64):
        middle = (low + high) / 2
        k = middle / a
        weight = there * (k[:, None] * y).exp()
        below = k * (a + (weight * y).sum(1) / weight.sum(1)) < 1
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    k = low / a
    return k, top.log() + ((there * (k[:, None] * y).exp()).sum(1) / n).log() / k


def shared(parameter: Tensor, seen: Tensor) -> Tensor:
    """The median of the others where a seen class has none of its own; infinity, which revises nothing, elsewhere."""
    known = torch.where(parameter.isnan(), parameter.nanmedian(), parameter)
    return torch.where(seen & ~known.isnan(), known, torch.inf)
