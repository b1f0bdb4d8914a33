"""ASH: the free energy of features of which only the largest are kept."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..registry import register
from ._head import HeadPrior, free_energy
from ._scale import check_percentile, factor, kept

__all__ = ["Ash"]


@register("ash", "free energy of pruned features")
class Ash(HeadPrior):
    r"""Free energy of pruned features (ASH; Djurisic et al., 2023).

    .. math::
        E(z) = -\log \sum_c \exp(W_c \cdot z' + b_c), \qquad
        z'_j = [z_j \ge t] \cdot \begin{cases}
            z_j \, e^{s_1 / s_2} & \text{s} \\ s_1 / n & \text{b} \\ z_j & \text{p}
        \end{cases}

    where :math:`t` is the :math:`k`-th largest feature of the sample, :math:`k = \max(1, \mathrm{round}((1 - p)\,d))`,
    :math:`s_1` and :math:`s_2` are the sums before and after pruning, and :math:`n` is the number of positive features
    left. Features that tie with :math:`t` are all kept; the authors' code keeps :math:`k` of them, and :math:`n = k`.
    Only positive parts enter the sums, and "b" keeps positive features alone; see :class:`Scale`.

    Args:
        percentile: :math:`p`, the share of features to prune.
        variant: "s" scales what is left, "b" makes it binary, "p" prunes only.
        proposals: fit the mixture too, which is needed to propose, not to score.

    Example:
        >>> from heat_ood.features import Features
        >>> train = Features(avg=torch.ones(3, 2), head=(torch.ones(1, 2), None))
        >>> Ash(percentile=0.5, variant="b").fit(train).score(torch.tensor([[3.0, 1.0]]))
        tensor([-4.])

    Paper: *Extremely Simple Activation Shaping for Out-of-Distribution Detection*, ICLR 2023.
    """

    rises = ("unsure",)

    def __init__(self, percentile: float = 0.9, variant: Literal["s", "b", "p"] = "s", proposals: bool = False) -> None:
        super().__init__(proposals)
        self.percentile, self.variant = percentile, variant

    def check(self) -> None:
        check_percentile(self.percentile)
        if self.variant not in ("s", "b", "p"):
            raise InputError(f'There is no ASH variant {self.variant!r}. Choose "s", "b" or "p".')

    def energy_of(self, z: Tensor) -> Tensor:
        return free_energy(self.logits_at(self.shaped(z)))

    def shaped(self, z: Tensor) -> Tensor:
        """The features that are left, as the head reads them."""
        threshold = z.topk(kept(z, self.percentile), dim=1).values[:, -1:]
        pruned = torch.where(z < threshold, 0, z)
        if self.variant == "p":
            return pruned
        if self.variant == "s":
            return pruned * factor(z, pruned)
        left = pruned > 0
        return left * (z.relu().sum(1, keepdim=True) / left.sum(1, keepdim=True).clamp(min=1))
