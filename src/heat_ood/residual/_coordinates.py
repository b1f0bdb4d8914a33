"""Where chains and residuals live: the features of a mixture, whitened or as they are."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..energies import GaussianMixture, Prior
from ..features import Features
from ._network import Network

__all__ = ["Coordinates"]


class Coordinates:
    r"""A change of variables ``x`` of a mixture's space: ``x = y``, whitened, or ``x = z``.

    Args:
        mixture: gives the space, its whitening, its proposals and its projection.
        whiten: whitened coordinates, or the features as they are.
    """

    def __init__(self, mixture: GaussianMixture, whiten: bool) -> None:
        self.mixture, self.whiten = mixture, whiten

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return self.mixture.white.shape[0 if self.whiten else 1]

    def of(self, features: Features) -> Tensor:
        """The coordinates of samples."""
        return self.enter(self.mixture.space(features, self.mixture.white.dtype))

    def enter(self, z: Tensor) -> Tensor:
        """From the space to the coordinates."""
        return self.mixture.whiten(z) if self.whiten else z

    def leave(self, x: Tensor) -> Tensor:
        """From the coordinates to the space."""
        return self.mixture.colour_in(x) if self.whiten else x

    def project(self, x: Tensor) -> Tensor:
        """To where real features live."""
        return self.enter(self.mixture.project(self.leave(x)))

    def absorb(self, network: Network) -> Network:
        """The same network as a function of the space itself: the whitening becomes part of its first layer."""
        if not self.whiten:
            return network
        first = network.layers[0]
        assert isinstance(first, nn.Linear)
        self.absorb_into(first)
        return network

    def absorb_into(self, layer: nn.Linear) -> None:
        """Make the whitening part of a layer that reads the coordinates: it reads the space from then on."""
        weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
        layer.in_features = self.mixture.white.shape[1]
        layer.weight = nn.Parameter((weight @ self.mixture.white.double()).to(layer.weight.dtype))
        layer.bias = nn.Parameter((bias - weight @ self.mixture.shift.double()).to(layer.bias.dtype))

    def gradient_of(self, prior: Prior) -> Callable[[Tensor], Tensor]:
        r""":math:`∇_x E_q`, ready for many calls; in closed form where the prior is the mixture itself."""
        if prior is self.mixture:
            return self.mixture.gradient_at if self.whiten else self.mixture.ready_gradient()

        def gradient(x: Tensor) -> Tensor:
            found = prior.gradient_of(self.leave(x))
            return found @ self.mixture.colour if self.whiten else found

        return gradient
