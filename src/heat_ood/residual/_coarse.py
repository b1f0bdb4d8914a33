"""The gradient of a network's energy in bfloat16, for chains whose noise is far above the rounding."""

from __future__ import annotations

import platform

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu_, linear

from ._network import SLOPE, Network

__all__ = ["CoarseGradient", "quick_in_bfloat16"]

INSTRUCTIONS = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
"""How torch calls the questions for the instructions that make it quick."""
LEAST = 512 * 512
"""Numbers of a matrix from which rounding it is worth its while."""


def quick_in_bfloat16(network: Network) -> bool:
    """Whether this processor multiplies the network's matrices in bfloat16 faster than in float32.

    Intel's since 2023 do (AMX), six times as fast on a Xeon of the fourth generation; AMD's since 2022 (AVX-512's dot
    products), twice as fast as oneDNN's in float32 on an EPYC of the fifth.
    """
    weight = network.layers[0].weight
    return (
        isinstance(weight, Tensor)
        and weight.numel() >= LEAST
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and platform.machine().lower() in ("x86_64", "amd64")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and any(getattr(torch.cpu, name, lambda: False)() for name in INSTRUCTIONS)
    )


class CoarseGradient:
    r""":math:`\nabla_x E_θ(x)` of a network, all products in bfloat16.

    Rounding moves a value by 0.4 % at most, and a unit near the kink of its LeakyReLU to the other slope: for one
    sample the gradient is a few per cent off, on average hardly. It is for chains whose noise is far larger than what
    the gradient moves: in the paper's settings, some hundred times.

    Args:
        network: whose energy; its weights are rounded anew when they have changed.

    Example:
        >>> network = Network(3, hidden=4, depth=2)
        >>> CoarseGradient(network)(torch.ones(2, 3))
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.rounded: list[tuple[Tensor, Tensor]] = []
        self.seen: list[tuple[int, int]] = []

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        *layers, (out, offset) = self.weights()
        h, hidden = x.bfloat16(), []
        for weight, bias in layers:
            h = leaky_relu_(linear(h, weight, bias), SLOPE)
            hidden.append(h)
        pull, bound = out.expand(len(x), -1), self.network.bound
        if bound is not None:
            pull = linear(h, out, offset).float().tanh().square().neg().add(1).mul(bound).bfloat16() * pull
        for (weight, _), h in zip(reversed(layers), reversed(hidden), strict=True):
            pull = torch.ops.aten.leaky_relu_backward(pull, h, SLOPE, True) @ weight
        return pull.to(x.dtype)

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """Those of the network, rounded, in the order in which points go through them."""
        now = self.network.layers_in_order()
        versions = [(id(tensor), tensor._version) for pair in now for tensor in pair]
        if versions != self.seen:
            self.rounded = [(weight.bfloat16(), bias.bfloat16()) for weight, bias in now]
            self.seen = versions
        return self.rounded
