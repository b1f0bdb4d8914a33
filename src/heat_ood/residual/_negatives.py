"""Negatives: what the residual learns to tell from data."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..energies import Prior
from ._coarse import CoarseGradient, quick_in_bfloat16
from ._coordinates import Coordinates
from ._gradient import InputGradient
from ._langevin import langevin
from ._network import Network
from ._settings import Residual

__all__ = ["CHAINS", "Negatives"]

REFRESH = 0.05
"""Share of the persistent chains that start anew at each step."""
CHAINS = 10_000
"""Number of persistent chains."""


class Negatives:
    """Proposals of the prior, widened, moved by Langevin steps on the hybrid energy, and mixed with contrast.

    Args:
        prior: whose energy the chains follow.
        coordinates: where they live.
        temperature: of the prior's energy.
        settings: widening, steps, start, share of contrast.
        generator: every random draw.
        data: draws coordinates of ``n`` real samples, for chains that start at data.
        contrast: draws coordinates of ``n`` samples given as negatives.
        unseen: draws such samples for watching, which training does not see; None draws from ``contrast``.
    """

    def __init__(
        self,
        prior: Prior,
        coordinates: Coordinates,
        temperature: float,
        settings: Residual,
        generator: torch.Generator,
        data: Callable[[int], Tensor],
        contrast: Callable[[int], Tensor] | None = None,
        unseen: Callable[[int], Tensor] | None = None,
    ) -> None:
        self.prior, self.coordinates, self.temperature = prior, coordinates, temperature
        self.settings, self.generator, self.data, self.contrast = settings, generator, data, contrast
        self.unseen = contrast if unseen is None else unseen
        self.chains: Tensor | None = None
        self.gradient: InputGradient | CoarseGradient | None = None

    def draw(self, n: int, network: Network) -> Tensor:
        """``n`` negatives, as coordinates, (n, k)."""
        given = self.given(n, self.contrast)
        return torch.cat([given, self.sample(n - len(given), network)]) if len(given) < n else given

    def unmoved(self, n: int) -> Tensor:
        """``n`` negatives before any Langevin step: what a residual must tell from data, whatever its chains do."""
        given = self.given(n, self.unseen)
        propose = self.white_noise if self.settings.start == "noise" else self.propose
        return torch.cat([given, propose(n - len(given))]) if len(given) < n else given

    def given(self, n: int, contrast: Callable[[int], Tensor] | None) -> Tensor:
        """The share of ``n`` negatives that is taken from contrast."""
        count = round(n * self.settings.contrast_share) if contrast is not None else 0
        if contrast is not None and count:
            return contrast(count)
        return self.coordinates.mixture.white.new_empty(0, self.coordinates.width)

    def sample(self, n: int, network: Network) -> Tensor:
        """``n`` samples of the hybrid, by chains, and perhaps their starts; unmoved proposals if there are no steps."""
        if self.settings.start == "persistent":
            return self.resume(n, network)
        start = {"data": self.data, "noise": self.white_noise}.get(self.settings.start, self.propose)(n)
        moved = self.move(start, network)
        return torch.cat([moved, start]) if self.settings.keep_starts else moved

    def propose(self, n: int) -> Tensor:
        """``n`` proposals of the mixture, widened by a random factor each."""
        mixture, (low, high) = self.coordinates.mixture, (math.log(w) for w in self.settings.widen)
        widen = None
        if (low, high) != (0, 0):
            share = torch.rand(n, generator=self.generator, dtype=mixture.nu.dtype, device=mixture.nu.device)
            widen = (low + (high - low) * share).exp()
        return self.coordinates.enter(mixture.propose(n, self.generator, widen))

    def white_noise(self, n: int) -> Tensor:
        """``n`` points of white noise, brought to where features live."""
        mixture = self.coordinates.mixture
        z = mixture.white.new_empty(n, mixture.white.shape[1]).normal_(generator=self.generator)
        return self.coordinates.enter(mixture.project(z))

    def resume(self, n: int, network: Network) -> Tensor:
        if self.chains is None:
            self.chains = self.propose(max(CHAINS, n))
        chosen = torch.randperm(len(self.chains), generator=self.generator, device=self.chains.device)[:n]
        start = self.chains[chosen]
        fresh = max(1, round(REFRESH * n))
        start[:fresh] = self.propose(fresh)
        self.chains[chosen] = moved = self.move(start, network)
        return torch.cat([moved, start]) if self.settings.keep_starts else moved

    def move(self, x: Tensor, network: Network) -> Tensor:
        if not self.settings.steps:
            return x

        if self.gradient is None or self.gradient.network is not network:
            coarse = self.settings.coarse and quick_in_bfloat16(network)
            self.gradient = CoarseGradient(network) if coarse else InputGradient(network)
        of_network, of_prior = self.gradient, self.coordinates.gradient_of(self.prior)

        def gradient(x: Tensor) -> Tensor:
            return of_prior(x).div_(self.temperature).add_(of_network(x))

        s = self.settings
        return langevin(x, gradient, s.steps, s.step, s.noise, self.coordinates.project, self.generator, s.decay)
