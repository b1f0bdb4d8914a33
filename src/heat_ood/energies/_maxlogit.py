"""The largest logit."""

from __future__ import annotations

from torch import Tensor

from ..registry import register
from ._head import OfLogits

__all__ = ["MaximumLogit"]


@register("max-logit", "largest logit")
class MaximumLogit(OfLogits):
    r"""Minus the largest logit (Hendrycks et al., 2022): :math:`E(x) = -\max_c f_c(x)`.

    Example:
        >>> import torch
        >>> MaximumLogit().score(torch.tensor([[5.0, 0.0], [0.5, 2.0]]))
        tensor([-5., -2.])

    Paper: *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022.
    """

    rises = ("unsure",)
    no_prior = "it has a kink where two classes tie; energy is its smooth form"

    def of_logits(self, logits: Tensor) -> Tensor:
        return -logits.amax(1)
