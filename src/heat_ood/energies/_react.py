"""ReAct: the free energy of clipped features."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ..errors import InputError
from ..features import Features, quantile
from ..registry import register
from ._head import HeadPrior, free_energy

__all__ = ["React"]


@register("react", "free energy of clipped features")
class React(HeadPrior):
    r"""Free energy of features clipped from above (ReAct; Sun et al., 2021).

    .. math:: E(z) = -\log \sum_c \exp\left(W_c \cdot \min(z, t) + b_c\right)

    The threshold :math:`t` is one for all channels: a quantile of all activations of all ID samples, exact, found in
    several passes over the features.

    Args:
        quantile: which one; 0.9 is the paper's.
        proposals: fit the mixture too, which is needed to propose, not to score.

    Example:
        >>> import torch
        >>> train = Features(avg=torch.arange(11.0)[:, None], head=(torch.ones(1, 1), None))
        >>> React().fit(train).score(torch.tensor([[5.0], [50.0]]))
        tensor([-5., -9.])

    Paper: *ReAct: Out-of-distribution Detection With Rectified Activations*, NeurIPS 2021.
    """

    rises = ("unsure",)
    ceiling: Tensor
    former: ClassVar[dict[str, str]] = {"threshold": "ceiling"}

    def __init__(self, quantile: float = 0.9, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.quantile = quantile
        self.register_buffer("ceiling", None)

    def check(self) -> None:
        if not 0 < self.quantile <= 1:
            raise InputError(
                f"quantile is the share of activations below the threshold, between 0 and 1, not {self.quantile}. "
                "Divide a percentage by 100."
            )

    def learn(self, features: Features) -> None:
        self.ceiling = self.weight.new_tensor(quantile(lambda: self.chunks(features), self.quantile))

    def energy_of(self, z: Tensor) -> Tensor:
        return free_energy(self.logits_at(z.clamp(max=self.ceiling)))

    def gradient_of(self, z: Tensor) -> Tensor:
        p = self.logits_at(z.clamp(max=self.ceiling)).softmax(1)
        return -(p @ self.weight) * (z <= self.ceiling)

    def validate(self) -> None:
        super().validate()
        if self.ceiling.shape != () or self.ceiling.dtype != self.weight.dtype:
            raise InputError(f"the threshold is {self.ceiling.dtype} of shape {tuple(self.ceiling.shape)}")
