"""DICE: the free energy of a head of which only the weights that matter are kept."""

from __future__ import annotations

from torch import Tensor

from ..errors import InputError
from ..features import Features, quantile
from ..registry import register
from ._head import HeadPrior, free_energy, mean_of

__all__ = ["Dice"]


@register("dice", "free energy of a sparsified head")
class Dice(HeadPrior):
    r"""Free energy of a sparsified head (DICE; Sun and Li, 2022).

    .. math::
        E(z) = -\log \sum_c \exp\left((M \odot W)_c \cdot z + b_c\right), \qquad
        M_{cj} = [V_{cj} > \mathrm{quantile}_s(V)], \quad V_{cj} = W_{cj} \, \mathbb{E}[z_j]

    A weight stays if it contributes more than the :math:`s`-quantile of all contributions :math:`V` of ID samples.

    Args:
        sparsity: :math:`s`, the share of weights to drop: 0.9 is the authors' for CIFAR, 0.7 for ImageNet.
        proposals: fit the mixture too, which is needed to propose, not to score.

    Example:
        >>> import torch
        >>> train = Features(avg=torch.ones(4, 2), head=(torch.tensor([[3.0, 1.0], [0.0, 2.0]]), None))
        >>> Dice(sparsity=0.5).fit(train).weight
        tensor([[3., 0.],
                [0., 2.]])

    Paper: *DICE: Leveraging Sparsification for Out-of-Distribution Detection*, ECCV 2022.
    """

    rises = ("unsure",)

    def __init__(self, sparsity: float = 0.9, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.sparsity = sparsity

    def check(self) -> None:
        if not 0 < self.sparsity < 1:
            raise InputError(
                f"sparsity is the share of weights to drop, between 0 and 1, not {self.sparsity}. "
                "Divide a percentage by 100; energy drops none."
            )

    def learn(self, features: Features) -> None:
        contribution = self.weight.double() * mean_of(self.chunks(features))
        threshold = quantile(lambda: iter([contribution]), self.sparsity)
        self.weight = self.weight * (contribution > threshold)

    def energy_of(self, z: Tensor) -> Tensor:
        return free_energy(self.logits_at(z))

    def gradient_of(self, z: Tensor) -> Tensor:
        return -self.logits_at(z).softmax(1) @ self.weight
