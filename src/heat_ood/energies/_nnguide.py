"""The classifier's confidence, guided by the confidence of the ID samples near by."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ..errors import InputError
from ..features import Features, Space
from ..registry import register
from ._base import Energy
from ._head import free_energy, logits_of
from ._neighbours import check_bank, check_k, nearest, stored_samples
from ._settings import check_settings

__all__ = ["NNGuide"]


@register("nnguide", "confidence guided by the nearest ID samples")
class NNGuide(Energy):
    r"""Confidence guided by the similarity to ID samples, each weighed by its own (Park et al., 2023).

    .. math::
        E(x) = -S(x) \cdot \frac1k \sum_{i \in \mathrm{top}_k} S(x_i) \cos(z, z_i), \qquad
        S(x) = \log \sum_c \exp f_c(x)

    where the k largest of the products :math:`S(x_i) \cos(z, z_i)` are taken, as the authors do, and not those of
    the k nearest samples.

    Args:
        k: how many ID samples guide.
        limit: how many ID samples are stored; a float is a share of them, the authors' :math:`\alpha`; None is all.
        seed: of the samples that are stored.

    Example:
        >>> import torch
        >>> z = torch.eye(2)
        >>> guide = NNGuide(k=1).fit(Features(avg=z, logits=torch.tensor([[2.0], [4.0]])))
        >>> guide.score(Features(avg=z, logits=torch.tensor([[3.0], [3.0]])))
        tensor([ -6., -12.])

    References:
        Park, Jung and Teoh, Nearest Neighbor Guidance for Out-of-Distribution Detection, ICCV 2023.
    """

    rises = ("unsure",)
    no_prior = "its gradient jumps where the nearest samples change; energy and knn have smooth forms"
    bank: Tensor

    def __init__(self, k: int = 10, limit: int | float | None = None, seed: int = 0) -> None:
        super().__init__()
        self.k, self.limit, self.seed = k, limit, seed
        self.register_buffer("bank", None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg", "logits")

    @property
    def space(self) -> Space:
        """The directions that are compared."""
        return Space(("avg",))

    def check(self) -> None:
        check_bank(self.k, self.limit)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        bank = stored_samples(features.only(self.reads), self.weighed, self.limit, self.seed)
        check_k(type(self).__name__, self.k, len(bank))
        self.bank = bank
        return self

    def weighed(self, features: Features) -> Tensor:
        """Directions times confidences: what is stored of each ID sample."""
        z = self.space(features)
        return z * confidence(features).to(z)[:, None]

    def energy(self, features: Features) -> Tensor:
        z = self.space(features, self.bank.dtype)
        self.check_width(z, self.bank.shape[1])
        return -confidence(features).to(z) * nearest(z, self.bank, self.k)[0].mean(1)

    def validate(self) -> None:
        super().validate()
        if self.bank.ndim != 2 or not self.bank.is_floating_point():
            raise InputError(f"the bank is {self.bank.dtype} of shape {tuple(self.bank.shape)}")
        check_k(type(self).__name__, self.k, len(self.bank))
        if not self.bank.numel() or not self.bank.isfinite().all():
            raise InputError("the bank is empty or not finite")


def confidence(features: Features) -> Tensor:
    """Minus the free energy of one batch, (n,)."""
    return -free_energy(logits_of(features))
