"""Mahalanobis distance to the nearest class: of raw features, and of normalised ones (SSD)."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ..features import Features
from ..registry import register
from ._base import Energy
from ._gmm import GaussianMixture, check_gaussian
from ._settings import check_settings

__all__ = ["SSD", "Mahalanobis"]


@register("mahalanobis", "Mahalanobis distance to the nearest class")
class Mahalanobis(Energy):
    r"""Squared Mahalanobis distance to the nearest class, with one covariance for all (Lee et al., 2018).

    .. math:: E(z) = \min_c\, (z - \mu_c)^\top \Sigma^{-1} (z - \mu_c)

    The squared distance itself, as published: twice the energy of the nearest Gaussian, without its constant. The
    features are whitened once and compared with the class means there: :math:`O(d^2 + C d)` a sample. It is the
    distance alone: neither the paper's perturbed inputs nor its weights of several layers, which need OOD samples.

    Args:
        columns: what it reads, side by side: ``("avg",)``, ``("avg@layer3",)``.
        normalise: put each sample on the unit sphere first; the paper does not.
        shrinkage: how far the covariance is drawn towards a multiple of the identity, as in
            :class:`~heat_ood.energies.GaussianMixture`; 0 is the paper's.
        clusters: replace the labels by this many k-means clusters. None uses the labels and, where there are none,
            as many clusters as the classifier has classes (ten without a classifier).
        seed: of the k-means clusters.

    Example:
        >>> z = torch.tensor([[1.0], [-1.0], [11.0], [9.0]])
        >>> Mahalanobis().fit(Features(avg=z, labels=[0, 0, 1, 1])).score(torch.tensor([[13.0], [2.0]]))
        tensor([9., 4.])

    References:
        Lee, Lee, Lee and Shin, A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial
        Attacks, NeurIPS 2018.
    """

    rises = ("far",)
    no_prior = "a minimum over classes has kinks; gmm is the same distance in smooth form"

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = False,
        shrinkage: float | None = None,
        clusters: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.columns, self.normalise = columns, normalise
        self.shrinkage, self.clusters, self.seed = shrinkage, clusters, seed
        self.density = self.gaussians()

    def gaussians(self, clusters: int | None = None) -> GaussianMixture:
        return GaussianMixture(tuple(self.columns), self.normalise, self.shrinkage, clusters=clusters, seed=self.seed)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.density.reads

    @property
    def fitted(self) -> bool:
        return self.density.fitted

    def check(self) -> None:
        check_gaussian(self.density.space, self.shrinkage, self.clusters)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        self.density = self.gaussians(self.components(features)).fit(features)
        return self

    def components(self, features: Features) -> int | None:
        """How many clusters replace the labels; None leaves it to what there is."""
        return self.clusters

    def energy(self, features: Features) -> Tensor:
        return squared_distance(self.density, self.density.coordinates(features))


@register("ssd", "Mahalanobis distance of normalised features, labels or not")
class SSD(Mahalanobis):
    r"""Mahalanobis distance of normalised features, with or without labels (SSD and SSD+; Sehwag et al., 2021).

    .. math:: E(z) = \min_m\, (\bar z - \mu_m)^\top \Sigma^{-1} (\bar z - \mu_m), \qquad \bar z = z / \|z\|

    With labels the clusters are the classes (here called SSD+; the paper's SSD+ uses the labels to train the
    backbone, too). Without, it is SSD with ``clusters`` k-means clusters, by default a single one, which the authors
    find best for self-supervised features. The covariance is shared, as in the HEAT paper; the authors' code
    estimates one for each cluster, which is the same for one cluster.

    Args:
        columns: what it reads, side by side: ``("avg",)``, ``("avg@layer3",)``.
        normalise: put each sample on the unit sphere first.
        shrinkage: how far the covariance is drawn towards a multiple of the identity, as in
            :class:`~heat_ood.energies.GaussianMixture`; 0 is the paper's.
        clusters: replace the labels by this many k-means clusters. None uses the labels and, where there are none, a
            single cluster.
        seed: of the k-means clusters.

    Example:
        >>> z = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
        >>> SSD().fit(Features(avg=z)).score(z).shape
        torch.Size([100])

    References:
        Sehwag, Chiang and Mittal, SSD: A Unified Framework for Self-Supervised Outlier Detection, ICLR 2021.
    """

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        shrinkage: float | None = None,
        clusters: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(columns, normalise, shrinkage, clusters, seed)

    def components(self, features: Features) -> int | None:
        return 1 if self.clusters is None and features.labels is None else self.clusters


def squared_distance(mixture: GaussianMixture, y: Tensor) -> Tensor:
    """Of whitened points to the nearest mean, (n,), from the difference itself: it cannot be negative."""
    deviation = mixture.deviations(y)
    squared: Tensor = torch.linalg.vecdot(deviation, deviation)
    return squared
