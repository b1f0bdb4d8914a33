"""fDBD: how far a sample is from the decision boundaries, for its distance from the mean."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..errors import InputError
from ..features import Features, Space, working_dtype
from ..registry import register
from ._base import CHUNK, Energy
from ._head import check_head, mean_of

__all__ = ["FastBoundary"]


@register("fdbd", "distance to the decision boundaries")
class FastBoundary(Energy):
    r"""Minus the mean distance to the decision boundaries, regularised (fDBD; Liu and Qin, 2024).

    .. math::
        E(z) = -\frac{1}{\|z - \mu\|} \cdot \frac{1}{C - 1} \sum_{c \ne \hat c}
               \frac{f_{\hat c}(z) - f_c(z)}{\|w_{\hat c} - w_c\|}, \qquad \hat c = \arg\max_c f_c(z)

    where :math:`\mu` is the mean of the ID samples. Two classes with the same weights have no boundary between them:
    such pairs are left out of the mean, and a lone class has energy zero. A sample closer to :math:`\mu` than rounding
    can tell is taken to be that far.

    Example:
        >>> train = Features(avg=torch.tensor([[1.0, 0.0], [0.0, 1.0]]), head=(torch.eye(2), None))
        >>> FastBoundary().fit(train).score(torch.tensor([[2.5, 0.5], [0.5, 2.5]]))
        tensor([-0.7071, -0.7071])

    Paper: *Fast Decision Boundary based Out-of-Distribution Detector*, ICML 2024.
    """

    no_prior = "it jumps where the predicted class changes"
    weight: Tensor
    bias: Tensor
    mean: Tensor
    rates: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "rates"):
            self.register_buffer(name, None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg",)

    @property
    def learns(self) -> tuple[str, ...]:
        return ("head",)

    def fit(self, features: Features) -> Self:
        self.begin(features)
        avg, head = features[:1].avg, features.head
        assert avg is not None
        assert head is not None
        space = Space(self.reads, normalise=False)
        mean = mean_of(space(batch) for batch in features.only(self.reads).batches(CHUNK))
        if not torch.isfinite(mean).all():
            raise InputError(
                f"avg is not finite in channel {int((~torch.isfinite(mean)).nonzero()[0])} of some samples. "
                "Drop those samples, or extract again in float32."
            )
        self.weight, self.bias = (t.to(avg.device, working_dtype(avg)).clone() for t in head)
        self.mean, self.rates = mean.to(self.weight), rates(self.weight)
        return self

    def energy(self, features: Features) -> Tensor:
        z = Space(self.reads, normalise=False)(features, self.weight.dtype)
        self.check_width(z, self.weight.shape[1])
        logits = linear(z, self.weight, self.bias)
        top, predicted = logits.max(1, keepdim=True)
        distance = ((top - logits) * self.rates[predicted.squeeze(1)]).sum(1)
        limits = torch.finfo(z.dtype)
        smallest = (limits.eps * self.mean.norm()).clamp(min=math.sqrt(limits.tiny))
        return -distance / torch.maximum((z - self.mean).norm(dim=1), smallest)

    def validate(self) -> None:
        super().validate()
        check_head(self.weight, self.bias, self.weight.shape[-1])
        classes, d = self.weight.shape
        wrong = self.mean.shape != (d,) or self.rates.shape != (classes, classes)
        if wrong or {self.mean.dtype, self.rates.dtype} != {self.weight.dtype}:
            raise InputError("the mean, the rates and the head do not fit together")


def rates(weight: Tensor) -> Tensor:
    r""":math:`1 / \|w_k - w_c\|` over the number of boundaries that class :math:`k` has, (C, C); zero for none."""
    exact = weight.double()
    gaps = torch.cdist(exact, exact, compute_mode="donot_use_mm_for_euclid_dist")
    apart = gaps > torch.finfo(weight.dtype).eps * exact.norm(dim=1).max()
    boundaries = apart.sum(1, keepdim=True).clamp(min=1)
    return torch.where(apart, 1 / (gaps * boundaries), 0).to(weight.dtype)
