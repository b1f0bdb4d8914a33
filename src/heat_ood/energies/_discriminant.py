"""The class mixture against one Gaussian of everything, in the few axes that tell the classes apart."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..errors import InputError
from ..features import Features, Moments, Space, working_dtype
from ..registry import register
from ._base import CHUNK, Energy
from ._gmm import GaussianMixture, check_gaussian
from ._settings import check_settings

__all__ = ["Discriminant"]

LEAST = 1e-10
"""Class means that differ by less along an axis, in variances within classes, are held for equal there."""


@register("discriminant-joint", "the same of both poolings, side by side", columns=("avg", "std"))
@register("discriminant", "class mixture against one Gaussian, in the axes that tell classes apart")
class Discriminant(Energy):
    r"""Negative log ratio of the class mixture to one Gaussian that has its covariance.

    .. math::
        E(z) = -\log \frac{\frac1C \sum_c \mathcal N(z; \mu_c, \Sigma)}{\mathcal N(z; \mu, \Sigma + B)}, \qquad
        B = \sum_c \frac{n_c}{n} (\mu_c - \mu)(\mu_c - \mu)^\top

    It is the smooth form of the relative distance (RMDS; Ren et al., 2021), as
    :class:`~heat_ood.energies.RelativeMixture` is, but for one thing: the one Gaussian is not shrunk by itself. So all
    that does not tell the classes apart cancels. What is left are the axes of Fisher's discriminant analysis, of which
    there are fewer than classes:

    .. math::
        E = \tfrac12 \sum_j \tfrac{b_j}{1 + b_j} u_j^2 - \tfrac12 \sum_j \log(1 + b_j)
            - \log \tfrac1C \sum_c \exp\left(u \cdot a_c - \tfrac12 \|a_c\|^2\right), \qquad
        u = V L^{-1}(z - \mu), \quad a_c = V L^{-1}(\mu_c - \mu)

    where :math:`\Sigma = L L^\top`, and the rows of :math:`V` are the axes of :math:`L^{-1} B L^{-\top}` with its
    eigenvalues :math:`b_j`. A sample costs :math:`O(C d)`, so that it can read many layers at once.

    Args:
        columns: what it reads, side by side: ``("avg",)``, ``("avg", "std", "avg@layer3", "std@layer3")``.
        normalise: put each sample of each column on the unit sphere first.
        shrinkage: of the covariance within classes, as in :class:`~heat_ood.energies.GaussianMixture`.

    Example:
        >>> z = torch.tensor([[1.0], [-1.0], [5.0], [3.0]])
        >>> ratio = Discriminant(normalise=False, shrinkage=0.0).fit(Features(avg=z, labels=[0, 0, 1, 1]))
        >>> ratio.score(torch.tensor([[2.0], [4.0]])).round(decimals=3)
        tensor([ 1.1950, -0.5120])

    Paper: *A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection*, 2021.
    """

    no_prior = "it has no density: what does not tell the classes apart is nothing to it"
    axes: Tensor
    shift: Tensor
    means: Tensor
    shares: Tensor
    level: Tensor

    def __init__(
        self, columns: tuple[str, ...] = ("avg",), normalise: bool = True, shrinkage: float | None = None
    ) -> None:
        super().__init__()
        self.columns, self.normalise, self.shrinkage = columns, normalise, shrinkage
        for name in ("axes", "shift", "means", "shares", "level"):
            self.register_buffer(name, None)

    @property
    def space(self) -> Space:
        return Space(tuple(self.columns), self.normalise)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.space.columns

    @property
    def learns(self) -> tuple[str, ...]:
        return ("labels",)

    def check(self) -> None:
        check_gaussian(self.space, self.shrinkage)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        space = self.space
        moments = features.moments_in(space)
        if moments is None:
            pairs = ((space(batch), batch.labels) for batch in features.only(self.reads).batches(CHUNK))
            moments = Moments.of(pairs, features.classes or 1, features.number_of)
        if empty := (moments.counts == 0).nonzero().flatten().tolist():
            raise InputError(
                f"Discriminant cannot be fitted: class {', '.join(map(str, empty[:5]))}"
                f"{'…' if len(empty) > 5 else ''} has no samples among {moments.n:,}. Pass samples of every class, or "
                "labels without gaps."
            )
        return self.from_moments(moments, space.widths(features[:1]), working_dtype(space.blocks(features[:1])[0]))

    def from_moments(self, moments: Moments, widths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Self:
        """Everything that the energy needs, from class moments alone."""
        mixture = GaussianMixture(tuple(self.columns), self.normalise, self.shrinkage)
        mixture.from_moments(moments, widths, torch.float64)
        share = moments.counts.double() / moments.n
        mean = share @ mixture.nu
        apart = mixture.nu - mean
        found = torch.linalg.svd(apart * share.sqrt()[:, None], full_matrices=False)
        kept = found.S.square() > LEAST
        axes, between = found.Vh[kept], found.S[kept].square()
        learned = {
            "axes": axes @ mixture.white,
            "shift": axes @ (mixture.shift + mean),
            "means": apart @ axes.T,
            "shares": between / (1 + between),
            "level": 0.5 * between.log1p().sum(),
        }
        for name, value in learned.items():
            setattr(self, name, value.to(dtype).contiguous())
        return self

    def energy(self, features: Features) -> Tensor:
        return self.energy_of(self.space(features, self.axes.dtype))

    def energy_of(self, z: Tensor) -> Tensor:
        """The energy of points of the space, (n,)."""
        self.check_width(z, self.axes.shape[1], self.columns)
        u = linear(z, self.axes, -self.shift)
        affinity = linear(u, self.means, -0.5 * self.means.square().sum(1))
        mixture = affinity.logsumexp(1) - torch.full_like(self.level, len(self.means)).log()
        return 0.5 * (u.square() @ self.shares) - self.level - mixture

    def validate(self) -> None:
        super().validate()
        shapes = {"axes": 2, "shift": 1, "means": 2, "shares": 1, "level": 0}
        tensors = {name: getattr(self, name) for name in shapes}
        if any(tensors[name].dim() != dims for name, dims in shapes.items()):
            raise InputError("the tensors of a discriminant have the wrong number of dimensions")
        k, (classes, width) = len(self.axes), self.means.shape
        alike = self.shift.shape == self.shares.shape == (k,) and width == k
        one_type = len({t.dtype for t in tensors.values()}) == 1 and self.axes.is_floating_point()
        if not (alike and classes and one_type):
            raise InputError("the axes, the means and the shares of a discriminant disagree")
        if infinite := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            raise InputError(f"the tensors of a discriminant are not finite: {', '.join(infinite)}")
