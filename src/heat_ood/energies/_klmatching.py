"""KL matching: how far a prediction is from what predictions of ID samples look like."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..errors import InputError
from ..features import Features
from ..registry import register
from ._head import OfLogits, check_classes, logits_in

__all__ = ["KLMatching"]


@register("kl-matching", "divergence from the mean predictions of the classes")
class KLMatching(OfLogits):
    r"""Divergence from the nearest of the classes' mean predictions (Hendrycks et al., 2022).

    .. math::
        E(x) = \min_c \mathrm{KL}(p(x) \,\|\, d_c), \qquad d_c = \frac{1}{n_c} \sum_{i : \hat c_i = c} p(x_i)

    The template :math:`d_c` is the mean softmax of the ID samples *predicted* as :math:`c`: labels are not needed, and
    a class that is never predicted has none. Templates are averaged in the log domain, where none is ever zero, so that
    they need no floor. The paper takes them from held-out data; here they come from what :meth:`fit` is given.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> KLMatching().fit(Features(logits=logits)).score(torch.zeros(1, 2))
        tensor([0.4338])

    Paper: *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022.
    """

    no_prior = "it has a kink where two templates are equally near"
    templates: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("templates", None)

    def learn(self, features: Features) -> None:
        first = next(logits_in(features[:1]))[0]
        self.templates = log_means(logits for logits, _ in logits_in(features)).to(first.dtype)

    def of_logits(self, logits: Tensor) -> Tensor:
        check_classes(self, logits, self.templates.shape[1])
        log_p = logits.to(self.templates.dtype).log_softmax(1)
        p = log_p.exp()
        return (p * log_p).sum(1) - (p @ self.templates.T).amax(1)

    def validate(self) -> None:
        super().validate()
        if self.templates.ndim != 2 or not self.templates.numel() or not self.templates.is_floating_point():
            raise InputError(f"the templates are {self.templates.dtype} of shape {tuple(self.templates.shape)}")


def log_means(chunks: Iterable[Tensor]) -> Tensor:
    """The log of the mean softmax of each predicted class, (K, C), in float64, in one pass."""
    top: Tensor | None = None
    for logits in chunks:
        log_p, predicted = logits.double().log_softmax(1), logits.argmax(1)
        classes = logits.shape[1]
        if top is None:
            top = log_p.new_full((classes, classes), torch.finfo(log_p.dtype).min)
            total, counts = torch.zeros_like(top), torch.zeros_like(top[0])
        higher = top.scatter_reduce(0, predicted[:, None].expand_as(log_p), log_p, "amax")
        total *= (top - higher).exp()
        total.index_add_(0, predicted, (log_p - higher[predicted]).exp())
        counts += torch.bincount(predicted, minlength=classes)
        top = higher
    assert top is not None
    seen = counts > 0
    return top[seen] + total[seen].log() - counts[seen, None].log()
