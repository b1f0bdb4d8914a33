"""No prior at all: what is left of a hybrid is its network, the energy-based model that the paper compares with."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from ..features import Features, Space
from ..registry import storable
from ._gmm import GaussianMixture, check_gaussian
from ._prior import Prior
from ._settings import check_settings

__all__ = ["Flat"]


@storable("flat")
class Flat(Prior):
    r"""The same energy everywhere, :math:`E(z) = 0`: what is left of a hybrid is its network.

    Chains start from one Gaussian of all ID samples, without classes.

    Args:
        columns: the features that the network reads.
        normalise: put each sample on the unit sphere first.

    Example:
        >>> Flat().fit(Features(avg=torch.rand(9, 2))).score(torch.rand(2, 2))
        tensor([0., 0.])
    """

    def __init__(self, columns: tuple[str, ...] = ("avg",), normalise: bool = True) -> None:
        super().__init__()
        self.columns, self.normalise = columns, normalise
        self.density: GaussianMixture | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return self.space.columns

    @property
    def space(self) -> Space:
        return Space(tuple(self.columns), self.normalise)

    @property
    def fitted(self) -> bool:
        return self.density is not None and self.density.fitted

    @property
    def mixture(self) -> GaussianMixture:
        self.require_fitted()
        assert self.density is not None
        return self.density

    def check(self) -> None:
        check_gaussian(self.space)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        self.density = GaussianMixture(self.space.columns, self.normalise, clusters=1).fit(features)
        return self

    def energy(self, features: Features) -> Tensor:
        return self.energy_of(self.space(features))

    def energy_of(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z[:, 0])

    def gradient_of(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z)

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.density = GaussianMixture(self.space.columns, self.normalise)
