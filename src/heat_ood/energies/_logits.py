"""Energies of the classifier's own output: the free energy and the softmax probability."""

from __future__ import annotations

import torch
from torch import Tensor

from ..registry import register
from ._head import OfLogits, OfLogitsPrior, free_energy
from ._settings import check_positive

__all__ = ["FreeEnergy", "MaximumSoftmax"]


@register("energy", "free energy of the logits")
class FreeEnergy(OfLogitsPrior):
    r"""Free energy of the logits (Liu et al., 2020).

    .. math:: E(z) = -T \log \sum_c \exp(f_c(z) / T), \qquad f(z) = W z + b

    It has no density of its own: chains start from a Gaussian mixture of the features that the head reads, and its
    gradient goes through the head. Features without a head have their logits for a space.

    Args:
        temperature: :math:`T`; one is what the papers use.
        proposals: fit the mixture, which takes a pass over the features and is needed to propose, not to score.

    Example:
        >>> from heat_ood.features import Features
        >>> free = FreeEnergy().fit(Features(logits=torch.zeros(3, 2)))
        >>> free.score(torch.zeros(1, 2))
        tensor([-0.6931])
    """

    rises = ("unsure",)

    def __init__(self, temperature: float = 1.0, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.temperature = temperature

    def check(self) -> None:
        check_positive("temperature", self.temperature)

    def of_logits(self, logits: Tensor) -> Tensor:
        return free_energy(logits, self.temperature)

    def gradient_of(self, z: Tensor) -> Tensor:
        p = (self.logits_at(z) / self.temperature).softmax(1)
        return -p if self.weight is None else -p @ self.weight


@register("msp", "maximum softmax probability")
class MaximumSoftmax(OfLogits):
    r"""Minus the largest softmax probability (Hendrycks and Gimpel, 2017): :math:`E(x) = -\max_c p(c \mid x)`.

    Computed as the log of the odds against the top class, which ranks alike and does not saturate at one.

    Example:
        >>> MaximumSoftmax().score(torch.tensor([[5.0, 0.0], [0.1, 0.0]])).tolist()
        [-5.0, -0.10000000149011612]
    """

    rises = ("unsure",)
    no_prior = "where two classes tie it has a kink, and it says nothing of a density; energy, its smooth kin, has one"

    def of_logits(self, logits: Tensor) -> Tensor:
        top = logits.argmax(1, keepdim=True)
        others = logits.scatter(1, top, -torch.inf).logsumexp(1)
        # a lone class has no odds against it; an infinite logit is not hidden
        return others.clamp(min=torch.finfo(logits.dtype).min / 2) - logits.gather(1, top).squeeze(1)
