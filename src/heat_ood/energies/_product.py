"""Gaussian mixtures of several groups of features as one: independent of each other within a class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..errors import InputError
from ._gmm import GaussianMixture

__all__ = ["product_of"]


class Product(GaussianMixture):
    """A mixture that whitens its groups of features one by one: the zeros between them are not multiplied."""

    groups: Sequence[tuple[slice, slice]] = ()
    """Of each group the whitened coordinates and those of the space."""

    def whiten(self, z: Tensor) -> Tensor:
        self.check_width(z, self.white.shape[1], self.columns)
        return torch.cat([linear(z[:, own], self.white[w, own], -self.shift[w]) for w, own in self.groups], 1)

    def colour_in(self, y: Tensor) -> Tensor:
        return torch.cat([linear(y[:, w], self.colour[own, w], self.centre[own]) for w, own in self.groups], 1)


def product_of(mixtures: Sequence[GaussianMixture]) -> GaussianMixture:
    r"""The mixture whose components are products, :math:`q_c(z) = \prod_k q_{k,c}(z_k)`, of fitted ones.

    It is what a sum of energies says about the features: given the class, the groups do not depend on each other.
    Whitening, proposals and projection are those of the parts, side by side; nothing is fitted.

    Args:
        mixtures: of different columns, with the same classes in the same order, all normalised or none.

    Example:
        >>> from heat_ood.features import Features
        >>> z = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
        >>> train = Features(avg=z, std=z.flip(1), labels=torch.arange(60) % 2)
        >>> both = product_of([GaussianMixture((c,)).fit(train) for c in ("avg", "std")])
        >>> both.columns, both.coordinates(train).shape
        (('avg', 'std'), torch.Size([60, 6]))
    """
    first, columns = mixtures[0], tuple(c for m in mixtures for c in m.columns)
    alike = {(m.normalise, m.nu.shape[0], len(m.norms)) for m in mixtures}
    if len(alike) > 1 or len(set(columns)) < len(columns) or len(first.norms):
        raise InputError(
            f"Mixtures of {', '.join(columns)} have no product: it takes different columns, the same classes, and all "
            "of them normalised or none. Fit one mixture to all columns instead."
        )
    joined = Product(columns, first.normalise, first.shrinkage, first.frequencies, first.clusters, first.seed)

    def all_of(name: str) -> list[Tensor]:
        like: Tensor = getattr(first, name)
        return [getattr(m, name).to(like) for m in mixtures]

    diagonal: Any = torch.block_diag
    joined.white, joined.colour = diagonal(*all_of("white")), diagonal(*all_of("colour"))
    for name in ("shift", "centre", "lower", "widths"):
        setattr(joined, name, torch.cat(all_of(name)))
    joined.nu = torch.cat(all_of("nu"), 1)
    joined.log_weights, joined.norms = first.log_weights, first.norms
    joined.log_volume = torch.stack(all_of("log_volume")).sum(0)
    ends = [[0, *accumulate(m.white.shape[axis] for m in mixtures)] for axis in (0, 1)]
    joined.groups = list(zip(*([slice(*pair) for pair in pairwise(e)] for e in ends), strict=True))
    return joined
