"""The gradient of a network's energy with respect to its input, written out: chains need nothing else of it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu_

from ._network import SLOPE, Network
from ._products import product, quick

__all__ = ["InputGradient"]


class InputGradient:
    r""":math:`\nabla_x E_θ(x)` of a network, without automatic differentiation and without new memory for each call.

    A perceptron's gradient is its own matrices, transposed, in the opposite order, each after the slopes of its
    LeakyReLU. The products are those of automatic differentiation in training, so without a bound the bits are too;
    large ones on a CPU take new memory each.

    What a call returns is overwritten by the next.

    Args:
        network: whose energy; its weights are read anew at each call.

    Example:
        >>> network = Network(3, hidden=4, depth=2)
        >>> InputGradient(network)(torch.ones(2, 3))
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.hidden: list[Tensor] = []
        self.pulled: list[Tensor] = []

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        *layers, (out, offset) = [(w.detach(), b.detach()) for w, b in self.network.layers_in_order()]
        self.prepare(x, len(layers))
        h = x
        for i, (weight, bias) in enumerate(layers):
            place = self.hidden[i]
            z = product(h, weight, bias) if quick(h, weight) else torch.addmm(bias, h, weight.T, out=place)
            h = self.hidden[i] = leaky_relu_(z, SLOPE)

        pull, other, last = self.pulled
        bound = self.network.bound
        if bound is None:
            pull.copy_(out.expand_as(pull))
        else:
            flat = torch.addmm(offset, h, out.T).tanh_().square_().neg_().add_(1).mul_(bound)
            torch.mul(flat, out, out=pull)
        for i in range(len(layers) - 1, -1, -1):
            torch.ops.aten.leaky_relu_backward.grad_input(pull, self.hidden[i], SLOPE, True, grad_input=pull)
            place = other if i else last
            weight = layers[i][0]
            place = product(pull, weight.T) if quick(pull, weight) else torch.mm(pull, weight, out=place)
            pull, other = place, pull
        return pull

    def prepare(self, x: Tensor, depth: int) -> None:
        """Memory for as many points, of the same kind, as there are."""
        width = int(self.network.layers[0].weight.shape[0])  # type: ignore[index]
        if not self.hidden or (self.hidden[0].shape, self.hidden[0].dtype) != ((len(x), width), x.dtype):
            self.hidden = [x.new_empty(len(x), width) for _ in range(depth)]
            self.pulled = [x.new_empty(len(x), width), x.new_empty(len(x), width), torch.empty_like(x)]
