"""Priors without a density of their own, which propose from the Gaussian mixture of the space they read."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import InputError
from ..features import Features, Space
from ._gmm import GaussianMixture, mixture_of
from ._prior import Prior

__all__ = ["Borrowing"]


class Borrowing(Prior):
    """A prior that lacks a sampler and takes that of the Gaussian mixture of its own feature space.

    Args:
        proposals: fit the mixture too, which takes a pass over the features and is needed to propose, not to score.
    """

    def __init__(self, proposals: bool = False) -> None:
        super().__init__()
        self.proposals = proposals
        self.density: GaussianMixture | None = None

    @property
    def fitted(self) -> bool:
        return super().fitted and (not self.proposals or (self.density is not None and self.density.fitted))

    def borrow(self, features: Features) -> None:
        """Fit the mixture, if proposals are wanted; the last thing that a fit does."""
        self.density = mixture_of(features, self.space) if self.proposals else None

    @property
    def mixture(self) -> GaussianMixture:
        if self.density is None:
            raise InputError(
                f"{type(self).__name__} proposes from a Gaussian mixture of its features. Fit it with proposals=True."
            )
        return self.density

    def sampler(self, features: Features) -> GaussianMixture:
        return mixture_of(features, self.space) if self.density is None else self.density

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if self.proposals:
            space = self.space_of(tensors)
            self.density = GaussianMixture(space.columns, space.normalise)

    def space_of(self, tensors: dict[str, Tensor]) -> Space:
        """The space, before the tensors are in place."""
        return self.space
