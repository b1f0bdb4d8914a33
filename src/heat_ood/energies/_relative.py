"""How much likelier a sample is under one Gaussian of everything than under those of the classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from ..errors import InputError
from ..features import Features, Moments, Space
from ..registry import register
from ._base import CHUNK
from ._gmm import GaussianMixture, check_gaussian
from ._mahalanobis import squared_distance
from ._prior import Prior
from ._settings import check_settings

__all__ = ["RelativeMixture", "as_one"]


@register("relative-gmm-joint", "the same of both poolings, side by side", columns=("avg", "std"))
@register("relative-gmm", "class mixture against one Gaussian of all samples")
class RelativeMixture(Prior):
    r"""Negative log ratio of the class mixture to one Gaussian of all samples (RMDS; Ren et al., 2021).

    .. math::
        E(z) = -\log \frac{\frac1C \sum_c \mathcal N(z; \mu_c, \Sigma)}{\mathcal N(z; \mu_0, \Sigma_0)}

    where :math:`\Sigma` is the covariance within classes and :math:`\Sigma_0` that of all samples about their mean.
    Both densities are of the channels that vary within classes. ``hard=True`` is the distance of the paper, without
    halves and constants:

    .. math:: E(z) = \min_c d_c^2(z) - d_0^2(z), \qquad d_c^2(z) = (z - \mu_c)^\top \Sigma^{-1} (z - \mu_c)

    and with ``normalise=False, shrinkage=0.0`` it is RMDS as published; this library's default is the smooth form
    of normalised features, as for all its Gaussians. It proposes from the class mixture.

    Args:
        columns: what it reads, side by side: ``("avg",)``, ``("avg@layer3",)``.
        normalise: put each sample on the unit sphere first.
        shrinkage: of each of the two covariances, as in :class:`~heat_ood.energies.GaussianMixture`.
        hard: the nearest class instead of all.

    Example:
        >>> import torch
        >>> z = torch.tensor([[1.0], [-1.0], [5.0], [3.0]])
        >>> rmds = RelativeMixture(normalise=False, hard=True).fit(Features(avg=z, labels=[0, 0, 1, 1]))
        >>> rmds.score(torch.tensor([[2.0]]))
        tensor([4.])

    References:
        Ren, Fort, Liu, Roy, Padhy and Lakshminarayanan, A Simple Fix to Mahalanobis Distance for Improving Near-OOD
        Detection, 2021.
    """

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        shrinkage: float | None = None,
        hard: bool = False,
    ) -> None:
        super().__init__()
        self.columns, self.normalise, self.shrinkage, self.hard = columns, normalise, shrinkage, hard
        self.density = GaussianMixture(tuple(columns), normalise, shrinkage, match_norms=not normalise)
        self.background = GaussianMixture(tuple(columns), normalise, shrinkage)

    @property
    def space(self) -> Space:
        return self.density.space

    @property
    def reads(self) -> tuple[str, ...]:
        return self.space.columns

    @property
    def fitted(self) -> bool:
        return self.density.fitted and self.background.fitted

    @property
    def mixture(self) -> GaussianMixture:
        self.require_fitted()
        return self.density

    def check(self) -> None:
        check_gaussian(self.space, self.shrinkage)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        self.density.fit(features)
        varies = (self.density.white != 0).any(0)
        known = None if features.labels is None else features.moments_in(self.space)
        if known is None:
            batches = features.only(self.reads).batches(CHUNK)
            moments = Moments.of((self.space(batch) * varies, None) for batch in batches)
        else:
            moments = as_one(known, varies)
        self.background.from_moments(moments, self.space.widths(features[:1]), self.density.white.dtype)
        return self

    def energy(self, features: Features) -> Tensor:
        return self.energy_of(self.space(features, self.density.white.dtype))

    def energy_of(self, z: Tensor) -> Tensor:
        y, y0 = self.density.whiten(z), self.background.whiten(z)
        if self.hard:
            return squared_distance(self.density, y) - squared_distance(self.background, y0)
        return self.density.energy_at(y) - self.background.energy_at(y0)

    def gradient_of(self, z: Tensor) -> Tensor:
        return self.slope(self.density, z) - self.slope(self.background, z)

    def slope(self, mixture: GaussianMixture, z: Tensor) -> Tensor:
        """The gradient of one of the two terms."""
        return 2 * mixture.deviations(mixture.whiten(z)) @ mixture.white if self.hard else mixture.gradient_of(z)

    def validate(self) -> None:
        super().validate()
        one, other = self.density.white, self.background.white
        if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
            raise InputError("the class mixture and the Gaussian of all samples are of different features")


def as_one(moments: Moments, varies: Tensor) -> Moments:
    """All classes as one, of the channels that vary within classes."""
    v = varies.double()
    sums = (moments.sums.sum(0) * v)[None]
    return replace(moments, counts=moments.counts.sum()[None], sums=sums, outer=moments.outer * torch.outer(v, v))
