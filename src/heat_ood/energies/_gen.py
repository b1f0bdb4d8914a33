"""GEN: the generalised entropy of the predicted classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from ..registry import register
from ._head import OfLogitsPrior

__all__ = ["Gen"]

MOST = 100


@register("gen", "generalised entropy of the softmax")
class Gen(OfLogitsPrior):
    r"""Generalised entropy of the most probable classes (GEN; Liu et al., 2023).

    .. math:: E(x) = \sum_{i=1}^{M} p_{(i)}^\gamma \, (1 - p_{(i)})^\gamma, \qquad p_{(1)} \ge p_{(2)} \ge \ldots

    The paper's score is minus this sum, higher for ID samples. It is computed from logarithms, of :math:`1 - p` too, so
    that neither it nor its gradient breaks at :math:`p = 1`.

    Args:
        gamma: :math:`\gamma` in (0, 1]; 0.1 is the paper's.
        top: :math:`M`; None takes all classes, up to the 100 that the paper takes of ImageNet's.
        proposals: fit the mixture too, which is needed to propose, not to score.

    Example:
        >>> from heat_ood.features import Features
        >>> test = Features(logits=torch.tensor([[0.0, 0.0], [0.0, 8.0]]))
        >>> Gen(gamma=0.5).fit(test).score(test)
        tensor([1.0000, 0.0366])

    Paper: *GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection*, CVPR 2023.
    """

    rises = ("unsure",)

    def __init__(self, gamma: float = 0.1, top: int | None = None, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.gamma, self.top = gamma, top

    def check(self) -> None:
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma must be positive and at most 1, not {self.gamma}. The paper takes 0.1.")
        if self.top is not None and self.top < 1:
            raise InputError(f"top is how many classes to sum over, at least 1, not {self.top}. None takes all.")

    def of_logits(self, logits: Tensor) -> Tensor:
        classes = logits.shape[1]
        if classes == 1:
            return 0 * logits[:, 0]  # a lone class is certain
        everywhere = logits.log_softmax(1)
        log_p, order = everywhere.topk(min(self.top or MOST, classes), dim=1)
        others = everywhere.scatter(1, order[:, :1], -torch.inf).logsumexp(1, keepdim=True)
        log_q = torch.cat([others, torch.log1p(-log_p[:, 1:].exp())], dim=1)  # below the first, p is at most a half
        return (self.gamma * (log_p + log_q)).exp().sum(1)
