"""A Gaussian for each class with one shared covariance, in whitened form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..errors import InputError
from ..features import Features, Moments, Space, normalise, working_dtype
from ..registry import register
from ._base import CHUNK
from ._clusters import Clusters
from ._prior import Prior
from ._settings import check_settings

__all__ = ["GaussianMixture", "check_gaussian", "mixture_of", "shrinkage_of"]

DEAD = 1e-12


@register("gmm-joint", "Gaussian mixture of both, side by side", columns=("avg", "std"))
@register("gmm-std", "Gaussian mixture of std-pooled features", columns=("std",))
@register("gmm", "Gaussian mixture of average-pooled features")
class GaussianMixture(Prior):
    r"""Negative log density of a Gaussian mixture with one covariance for all classes (HEAT's GMM prior).

    .. math::
        E(z) = \tfrac12 \|y\|^2 - \log \sum_c \exp\left(y \cdot \nu_c - \tfrac12 \|\nu_c\|^2 + \log \pi_c\right)
               + \tfrac12 \log |2\pi\Sigma|, \qquad y = L^{-1}(z - m), \quad \Sigma = L L^\top

    where :math:`m` is the mean of the class means and :math:`\nu_c = L^{-1}(\mu_c - m)`. The features are whitened
    once, whatever the number of classes: :math:`O(d^2 + C d)` a sample.

    Args:
        columns: what it reads, side by side: ``("avg",)``, ``("std",)``, ``("avg@layer3", "std@layer3")``.
        normalise: put each sample on the unit sphere first.
        shrinkage: how far the covariance is drawn towards a multiple of the identity, in [0, 1]; None takes the
            oracle-approximating estimate (Chen et al., 2010), which follows from the moments alone.
        frequencies: weigh the classes by how often they occur; the paper weighs them alike.
        clusters: replace the labels by this many k-means clusters. None uses the labels and, where there are none,
            as many clusters as the classifier has classes (ten without a classifier).
        seed: of the k-means clusters.
        match_norms: give proposals the norms that real samples have, where the mixture only stands in for an energy
            that has no density; else a residual would learn the norm and nothing else.

    Example:
        >>> z = torch.randn(200, 8, generator=torch.Generator().manual_seed(0)).relu()
        >>> gmm = GaussianMixture().fit(Features(avg=z, labels=torch.arange(200) % 4))
        >>> gmm.score(z).shape
        torch.Size([200])
    """

    rises = ("far",)
    white: Tensor
    shift: Tensor
    colour: Tensor
    centre: Tensor
    nu: Tensor
    log_weights: Tensor
    log_volume: Tensor
    lower: Tensor
    widths: Tensor
    norms: Tensor

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        shrinkage: float | None = None,
        frequencies: bool = False,
        clusters: int | None = None,
        seed: int = 0,
        match_norms: bool = False,
    ) -> None:
        super().__init__()
        self.columns, self.normalise = columns, normalise
        self.shrinkage, self.frequencies, self.clusters, self.seed = shrinkage, frequencies, clusters, seed
        self.match_norms = match_norms
        for name in (
            "white",
            "shift",
            "colour",
            "centre",
            "nu",
            "log_weights",
            "log_volume",
            "lower",
            "widths",
            "norms",
        ):
            self.register_buffer(name, None)

    @property
    def space(self) -> Space:
        return Space(tuple(self.columns), self.normalise)

    @property
    def reads(self) -> tuple[str, ...]:
        return self.space.columns

    # Fit

    def check(self) -> None:
        check_gaussian(self.space, self.shrinkage, self.clusters)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        if len(features) < 2:
            raise InputError(
                f"GaussianMixture cannot be fitted to {len(features)} sample: a covariance needs at least two."
            )
        self.begin(features)
        moments = self.moments_of(features)
        empty = (moments.counts == 0).nonzero().flatten().tolist()
        if empty:
            raise InputError(
                f"GaussianMixture cannot be fitted: class {', '.join(map(str, empty[:5]))}"
                f"{'…' if len(empty) > 5 else ''} has no samples among {moments.n:,}. Pass samples of every class, "
                'labels without gaps, clusters=… to do without labels, or priors=("energy",), which needs none.'
            )
        dtype = working_dtype(self.space.blocks(features[:1])[0])
        self.from_moments(moments, self.space.widths(features[:1]), dtype)
        if self.match_norms:
            chunks = features.only(self.reads).batches(CHUNK)
            self.norms = quantiles(torch.cat([self.space(b).norm(dim=1) for b in chunks])).to(dtype)
        return self

    def moments_of(self, features: Features) -> Moments:
        """The moments of all components: those that are known, by the labels; else in one pass over the samples."""
        known = features.moments_in(self.space) if self.clusters is None and features.labels is not None else None
        if known is not None:
            return known
        classes, batches = self.labelled(features)
        return Moments.of(batches, classes, features.number_of)

    def labelled(self, features: Features) -> tuple[int, Iterator[tuple[Tensor, Tensor | None]]]:
        """How many components there are, and the samples with the component of each, a chunk at a time."""
        space, count = self.space, features.classes
        batches = features.only(space.columns).batches(CHUNK)
        if self.clusters is None and features.labels is not None:
            return count or 1, ((space(b), b.labels) for b in batches)
        clusters = Clusters.of(features, space, self.clusters or count or 10, self.seed)
        return len(clusters), ((z, clusters(z)) for z in (space(b) for b in batches))

    def from_moments(self, moments: Moments, widths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Self:
        """Everything that the energy needs, from class moments alone."""
        covariance = moments.covariance
        variance = covariance.diagonal()
        within, overall = variance.mean(), moments.outer.diagonal() / moments.n
        alive = variance > DEAD * torch.maximum(within, overall)  # below, a variance is the rounding of its sums
        if not alive.any():
            raise InputError(
                "GaussianMixture cannot be fitted: no feature varies within its class. Pass more varied samples."
            )
        rho = shrinkage_of(covariance[alive][:, alive], moments.n) if self.shrinkage is None else self.shrinkage

        L, inverse = factor(covariance[alive][:, alive], rho)
        kept = int(alive.sum())
        white = covariance.new_zeros(kept, len(alive))
        colour = covariance.new_zeros(len(alive), kept)
        white[:, alive], colour[alive] = inverse, L

        means = moments.means
        centre = means.mean(0)
        weights = (
            moments.counts.double() / moments.n if self.frequencies else torch.full_like(means[:, 0], 1 / len(means))
        )
        log_volume = L.diagonal().log().sum() + 0.5 * kept * math.log(2 * math.pi)
        lower = torch.where(moments.minimum >= 0, 0.0, -torch.inf)

        learned = {
            "white": white,
            "shift": white @ centre,
            "colour": colour,
            "centre": centre,
            "nu": (means - centre) @ white.T,
            "log_weights": weights.log(),
            "log_volume": log_volume,
            "lower": lower,
        }
        for name, value in learned.items():
            setattr(self, name, value.to(dtype).contiguous())
        self.widths = torch.tensor(widths)
        self.norms = torch.empty(0, dtype=dtype)
        return self

    # Energy

    def energy(self, features: Features) -> Tensor:
        return self.energy_at(self.coordinates(features))

    def coordinates(self, features: Features) -> Tensor:
        """The whitened features, (n, k)."""
        return self.whiten(self.space(features, self.white.dtype))

    def whiten(self, z: Tensor) -> Tensor:
        r""":math:`y = L^{-1}(z - m)`: unit covariance within classes; channels that never vary are dropped."""
        self.check_width(z, self.white.shape[1], self.columns)
        return linear(z, self.white, -self.shift)

    def colour_in(self, y: Tensor) -> Tensor:
        """The point of the space that has the whitened coordinates ``y``."""
        return linear(y, self.colour, self.centre)

    def energy_at(self, y: Tensor) -> Tensor:
        """The energy of whitened points, (n,)."""
        affinity = torch.addmm(self.log_weights - 0.5 * self.nu.square().sum(1), y, self.nu.T)
        half: Tensor = 0.5 * torch.linalg.vecdot(y, y)
        return half - affinity.logsumexp(1) + self.log_volume

    def gradient_at(self, y: Tensor) -> Tensor:
        r""":math:`\nabla_y E = y - \mathrm{softmax}(\ldots)\,\nu`."""
        return y - self.affinity(y).softmax(1) @ self.nu

    def affinity(self, y: Tensor) -> Tensor:
        """How much whitened points are drawn to each class, (n, C), up to what is the same for all classes."""
        return torch.addmm(self.log_weights - 0.5 * self.nu.square().sum(1), y, self.nu.T)

    def energy_of(self, z: Tensor) -> Tensor:
        return self.energy_at(self.whiten(z))

    def gradient_of(self, z: Tensor) -> Tensor:
        return self.gradient_at(self.whiten(z)) @ self.white

    def ready_gradient(self) -> Callable[[Tensor], Tensor]:
        r""":math:`\nabla_z E = P z - P m - \mathrm{softmax}(\ldots)\, ν W` for many calls: with :math:`P = W^\top W`
        made once, each has one product of d × d where :meth:`gradient_of` has two."""
        white, nu, shift = self.white.double(), self.nu.double(), self.shift.double()
        made = (white.T @ white, -shift @ white, nu @ white, self.log_weights - 0.5 * nu.square().sum(1) - nu @ shift)
        precision, offset, means, level = (value.to(self.white.dtype) for value in made)

        def gradient(z: Tensor) -> Tensor:
            share = torch.addmm(level, z, means.T).softmax(1)
            return torch.addmm(offset, z, precision).addmm_(share, means, alpha=-1)

        return gradient

    def validate(self) -> None:
        super().validate()
        (k, d), c, columns = self.white.shape, len(self.nu), len(self.space.columns)
        shapes = {"shift": (k,), "colour": (d, k), "centre": (d,), "nu": (c, k), "log_weights": (c,)}
        shapes |= {"log_volume": (), "lower": (d,), "widths": (columns,), "norms": (len(self.norms),)}
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        wrong += [n for n in shapes if n != "widths" and getattr(self, n).dtype != self.white.dtype]
        whole = self.widths.dtype == torch.long and int(self.widths.sum()) == d and int(self.widths.min()) > 0
        if wrong or not whole or not self.white.is_floating_point():
            raise InputError(f"the tensors of a Gaussian mixture disagree: {', '.join(wrong) or 'white, widths'}")
        infinite = [n for n in ("white", *shapes) if n != "lower" and not getattr(self, n).isfinite().all()]
        if infinite or not k or not c:
            raise InputError(f"the tensors of a Gaussian mixture are empty or not finite: {', '.join(infinite)}")

    # Proposals

    @property
    def mixture(self) -> GaussianMixture:
        return self

    def propose(self, n: int, generator: torch.Generator | None = None, widen: Tensor | None = None) -> Tensor:
        """Draw the class, then a Gaussian deviation from its mean, ``widen`` times as large, and project.

        Args:
            n: how many points.
            generator: every random draw.
            widen: a factor for each point; None is one.
        """
        c = torch.multinomial(self.log_weights.exp(), n, replacement=True, generator=generator)
        noise = self.nu.new_empty(n, self.nu.shape[1]).normal_(generator=generator)
        if widen is not None:
            noise = noise * widen[:, None]
        z = self.project(self.colour_in(self.nu[c] + noise))
        return self.matched(z, generator) if len(self.norms) else z

    def deviations(self, y: Tensor) -> Tensor:
        """How far whitened points are from the mean of the class that they are most likely of."""
        return y - self.nu[self.affinity(y).argmax(1)]

    def matched(self, z: Tensor, generator: torch.Generator | None) -> Tensor:
        """The same directions with the norms of real samples, in the order of the norms that they had."""
        n, norm = len(z), z.norm(dim=1)
        share = torch.rand(n, generator=generator, dtype=z.dtype, device=z.device)
        level = (norm.argsort().argsort() + share) / n * (len(self.norms) - 1)
        below = level.long().clamp(max=len(self.norms) - 2)
        target = torch.lerp(self.norms[below], self.norms[below + 1], level - below)
        return normalise(z) * target[:, None]

    def project(self, z: Tensor) -> Tensor:
        """To where real features live: non-negative where they are, on the unit sphere if normalised."""
        z = torch.maximum(z, self.lower)
        if not self.normalise:
            return z
        blocks = torch.split(z, self.widths.tolist(), dim=1)
        return normalise(z) if len(blocks) == 1 else torch.cat([normalise(block) for block in blocks], dim=1)


def check_gaussian(space: Space, shrinkage: float | None = None, clusters: int | None = None) -> None:
    """Refuse what Gaussians have in common: making the space has refused columns that are none."""
    assert space.columns
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise InputError(f"shrinkage is a share, between 0 and 1, not {shrinkage}.")
    if clusters is not None and clusters < 1:
        raise InputError(f"clusters must be at least 1, not {clusters}. Pass None to use the labels.")


def mixture_of(features: Features, space: Space) -> GaussianMixture:
    """A mixture that proposes for an energy without a density: by labels if each class has some, else by clusters."""
    labels, known = features.labels, None if features.labels is None else features.moments_in(space)
    counts = None if known is None else known.counts
    if counts is None and labels is not None:
        counts = torch.bincount(labels.clamp(min=0), minlength=features.classes or 1)
    complete = counts is not None and bool((counts > 0).all())
    clusters = None if complete else min(features.classes or 10, len(features))
    return GaussianMixture(space.columns, space.normalise, clusters=clusters, match_norms=not space.normalise).fit(
        features
    )


def quantiles(values: Tensor, count: int = 1001) -> Tensor:
    """``count`` evenly spaced quantiles, the least and the largest included."""
    ordered = values.sort().values
    return ordered[torch.linspace(0, len(ordered) - 1, count, dtype=torch.float64).round().long()]


def shrinkage_of(covariance: Tensor, n: int) -> float:
    r"""The oracle-approximating shrinkage of a sample covariance (Chen, Wiesel, Eldar and Hero, 2010)."""
    d = len(covariance)
    trace, square = covariance.trace(), covariance.square().sum()
    spread = float(square - trace**2 / d)
    if spread <= 0:
        return 1.0
    return min(1.0, float((1 - 2 / d) * square + trace**2) / ((n + 1 - 2 / d) * spread))


def factor(covariance: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """Cholesky factor of the shrunk covariance and its inverse; shrunk more where it is numerically singular."""
    d = len(covariance)
    scale = covariance.trace() / d
    eye = torch.eye(d, dtype=covariance.dtype, device=covariance.device)
    while True:
        L, info = torch.linalg.cholesky_ex((1 - rho) * covariance + rho * scale * eye)
        if info == 0 and L.diagonal().min() > 1e-8 * scale.sqrt():
            return L, torch.linalg.solve_triangular(L, eye, upper=False)
        rho = min(max(10 * rho, 1e-12), 1.0)
