"""Energies that a residual can correct: they have a gradient, and propose where to start."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..features import Features, Space
from ._base import Energy

if TYPE_CHECKING:
    from ._gmm import GaussianMixture

__all__ = ["Prior"]


class Prior(Energy):
    r"""An energy that can be differentiated in its feature space and can propose samples of it.

    A residual network corrects it: chains start at :meth:`propose` and follow :meth:`gradient_of`.
    """

    @property
    @abstractmethod
    def space(self) -> Space:
        """The features that chains and residuals live in."""

    @abstractmethod
    def energy_of(self, z: Tensor) -> Tensor:
        """The energy of points of the space, (n,)."""

    def gradient_of(self, z: Tensor) -> Tensor:
        r""":math:`\nabla_z E(z)`, (n, d); by automatic differentiation where there is no closed form."""
        with torch.inference_mode(False), torch.enable_grad():
            z = z.detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self.energy_of(z).sum(), z)
        return gradient

    @property
    @abstractmethod
    def mixture(self) -> GaussianMixture:
        """The Gaussian mixture that proposes points of the space; a density prior's is itself."""

    def sampler(self, features: Features) -> GaussianMixture:
        """The mixture, fitted to these samples where the prior was fitted without one."""
        return self.mixture

    def propose(self, n: int, generator: torch.Generator | None = None, widen: Tensor | None = None) -> Tensor:
        """Draw ``n`` points of the space where real features live, (n, d), with ``widen`` times the fitted spread."""
        return self.mixture.propose(n, generator, widen)
