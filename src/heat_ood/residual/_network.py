"""The residual network: a small multi-layer perceptron with one output."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu_, linear

from ._products import affine

__all__ = ["Network", "shapes_of"]

SLOPE = 0.2


class Network(nn.Module):
    r"""``depth`` linear layers with LeakyReLU between them, from ``width`` features to one energy.

    With a bound :math:`b` the output :math:`u` becomes :math:`b \tanh u`. For :math:`b = 1 / 2λ` the loss of HEAT
    is least where :math:`u = -\tfrac12 \log(p / n)`, so that the network learns a log density ratio and its energy
    keeps the bound everywhere, far from all training samples too. The last layer starts at zero: an untrained residual
    corrects nothing.

    Args:
        width: number of inputs.
        hidden: width of the hidden layers.
        depth: number of linear layers.
        tied: let the layers between hidden layers share one matrix.
        bound: the largest energy; None leaves the output as it is, as in the paper.
        generator: draws the initial weights.

    Example:
        >>> Network(8, hidden=16, depth=6)(torch.randn(3, 8))
        tensor([0., 0., 0.], grad_fn=<SqueezeBackward1>)
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        depth: int = 6,
        tied: bool = False,
        bound: float | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.bound = bound
        self.repeats = depth - 2 if tied and depth > 2 else 1
        sizes = sizes_of(width, hidden, depth, tied)
        place = {"dtype": dtype, "device": "cpu" if generator is None else generator.device}
        empty: Any = nn.utils.skip_init  # the caller's random state is left alone
        layers: list[nn.Linear] = [empty(nn.Linear, i, o, **place) for i, o in pairwise(sizes)]
        gain = nn.init.calculate_gain("leaky_relu", SLOPE)
        with torch.no_grad():
            for layer in layers:
                limit = gain * math.sqrt(3 / layer.in_features)
                layer.weight.uniform_(-limit, limit, generator=generator)
                layer.bias.zero_()
            layers[-1].weight.zero_()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers_in_order()
        for weight, bias in hidden:
            x = leaky_relu_(affine(x, weight, bias), SLOPE)
        energy = linear(x, *last).squeeze(1)
        return energy if self.bound is None else energy.tanh() * self.bound

    def layers_in_order(self) -> list[tuple[Tensor, Tensor]]:
        """The weight and the bias of each layer as points go through them; tied ones stand more than once."""
        first, *middle, last = [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]
        return [first, *middle * self.repeats, last]

    @torch.no_grad()
    def shift(self, odds: float) -> None:
        r"""Count real samples ``odds`` times: a bounded network's :math:`u` falls by half their logarithm."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        last.bias.sub_(math.log(odds) / 2)


def sizes_of(width: int, hidden: int, depth: int, tied: bool) -> list[int]:
    """The widths between the linear layers that have weights of their own, the first and the last included."""
    middle = min(depth - 2, 1) if tied else depth - 2
    return [width] + [hidden] * (middle + 1) + [1]


def shapes_of(width: int, hidden: int, depth: int, tied: bool) -> dict[str, tuple[int, ...]]:
    """The shapes of a network's weights by their names, before there is any.

    Example:
        >>> shapes_of(8, 16, depth=2, tied=False)
        {'layers.0.weight': (16, 8), 'layers.0.bias': (16,), 'layers.1.weight': (1, 16), 'layers.1.bias': (1,)}
    """
    found: dict[str, tuple[int, ...]] = {}
    for number, (i, o) in enumerate(pairwise(sizes_of(width, hidden, depth, tied))):
        found |= {f"layers.{number}.weight": (o, i), f"layers.{number}.bias": (o,)}
    return found
