"""GradNorm: how strongly a sample would change the head, were it trained towards uniform predictions."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ..features import Features, working_dtype
from ..registry import register
from ._base import Energy
from ._head import logits_of
from ._settings import check_positive, check_settings

__all__ = ["GradNorm"]


@register("gradnorm", "norm of the gradient of the head")
class GradNorm(Energy):
    r"""Minus the L1 norm of a gradient of the head's weights (GradNorm; Huang et al., 2021).

    .. math::
        E(x) = -\left\| \nabla_W \, \mathrm{KL}\left(u \,\|\, \mathrm{softmax}(f / T)\right) \right\|_1
             = -\tfrac{1}{T} \, \|z\|_1 \, \left\| \mathrm{softmax}(f / T) - \tfrac{1}{C} \right\|_1

    with :math:`f = W z + b` and :math:`u` uniform over the :math:`C` classes. The gradient is an outer product, so its
    norm needs no backward pass. The authors' code leaves out the :math:`1/C` of :math:`u`, and is :math:`C` times this.

    Args:
        temperature: :math:`T`; one is the paper's.

    Example:
        >>> import torch
        >>> GradNorm().score(Features(avg=torch.tensor([[1.0, -3.0]]), logits=torch.tensor([[99.0, 0.0]])))
        tensor([-4.])

    Paper: *On the Importance of Gradients for Detecting Distributional Shifts in the Wild*, NeurIPS 2021.
    """

    rises = ("unsure",)
    no_prior = "its absolute values have kinks, and features that a ReLU made zero lie on them"

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg", "logits")

    def check(self) -> None:
        check_positive("temperature", self.temperature, " The paper takes 1.")

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        return self

    def energy(self, features: Features) -> Tensor:
        z, logits = features.avg, logits_of(features)
        assert z is not None
        uneven = (logits / self.temperature).softmax(1) - 1 / logits.shape[1]
        return -z.to(working_dtype(z)).abs().sum(1) * uneven.abs().sum(1) / self.temperature
