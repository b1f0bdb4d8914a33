"""SCALE: the free energy of features, scaled by how much of their sum the largest of them hold."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from ..registry import register
from ._head import HeadPrior, free_energy

__all__ = ["Scale", "check_percentile", "factor", "kept"]

LARGEST = 50.0
"""The largest exponent: beyond it the features would leave the range of float32."""


@register("scale", "free energy of scaled features")
class Scale(HeadPrior):
    r"""Free energy of features that are all scaled by one factor (SCALE; Xu et al., 2024).

    .. math::
        E(z) = -\log \sum_c \exp\left(e^{r} \, W_c \cdot z + b_c\right), \qquad
        r = \frac{\sum_j z_j^+}{\sum_{j \in \mathrm{top}\,k} z_j^+}, \quad k = \max(1, \mathrm{round}((1 - p)\,d))

    The features are the pooled ones. Only positive parts enter the sums, so that :math:`1 \le r \le d / k` for
    features without a final ReLU too; where none is positive, :math:`r = 1`. Above 50, :math:`r` is cut off.

    Args:
        percentile: :math:`p`, the share of features that are not among the top; 0.85 is the paper's.
        proposals: fit the mixture too, which is needed to propose, not to score.

    Example:
        >>> from heat_ood.features import Features
        >>> train = Features(avg=torch.ones(3, 2), head=(torch.ones(1, 2), None))
        >>> Scale(percentile=0.5).fit(train).score(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        tensor([ -2.7183, -14.7781])

    Paper: *Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement*, ICLR 2024.
    """

    rises = ("unsure",)

    def __init__(self, percentile: float = 0.85, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.percentile = percentile

    def check(self) -> None:
        check_percentile(self.percentile)

    def energy_of(self, z: Tensor) -> Tensor:
        top = z.topk(kept(z, self.percentile), dim=1).values
        return free_energy(self.logits_at(z * factor(z, top)))


def check_percentile(percentile: float) -> None:
    if not 0 <= percentile < 1:
        raise InputError(
            f"percentile is the share of features below the top, at least 0 and less than 1, not {percentile}. "
            "Divide a percentage by 100."
        )


def kept(z: Tensor, percentile: float) -> int:
    """How many of the features are the top ones: at least one."""
    return max(1, round((1 - percentile) * z.shape[1]))


def factor(z: Tensor, top: Tensor) -> Tensor:
    r""":math:`e^r`, (n, 1), with :math:`r` the positive sum of ``z`` over that of ``top``; one where there is none."""
    whole, part = (x.relu().sum(1, keepdim=True) for x in (z, top))
    some = part > 0
    r = torch.where(some, whole / torch.where(some, part, 1), 1)
    return r.clamp(max=LARGEST).exp()
