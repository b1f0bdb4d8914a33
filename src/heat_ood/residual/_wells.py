"""The network of an energy-based model without a prior: a soft minimum of many wells."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

__all__ = ["Wells", "shapes_of_wells"]


class Wells(nn.Module):
    r"""A soft minimum of :math:`K` paraboloids of one learned shape, each with a place and a depth of its own.

    .. math:: E(x) = -\log \sum_{j=1}^{K} \exp\left(w_j \cdot x + b_j - \tfrac12 \|A x\|^2\right)

    Far from all samples it rises quadratically, by its form; the output of a network alone may do anything there. At
    first all wells lie near the origin and have the shape of the noisy samples, one Gaussian; training parts them.

    Args:
        width: number of inputs.
        count: :math:`K`.
        scale: :math:`A` begins as so many times the identity.
        generator: draws the initial wells.
        outputs: the rows of :math:`A`; None is ``width``.

    Example:
        >>> Wells(8, count=16)(torch.zeros(3, 8)).shape
        torch.Size([3])
    """

    def __init__(
        self,
        width: int,
        count: int,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        place = {"dtype": dtype, "device": "cpu" if generator is None else generator.device}
        empty: Any = nn.utils.skip_init  # the caller's random state is left alone
        shape, wells = empty(nn.Linear, width, outputs or width, **place), empty(nn.Linear, width, count, **place)
        limit = 1 / math.sqrt(width)
        with torch.no_grad():
            shape.weight.zero_().fill_diagonal_(scale)
            shape.bias.zero_()
            wells.weight.uniform_(-limit, limit, generator=generator)
            wells.bias.uniform_(-limit, limit, generator=generator)
        self.layers = nn.ModuleList([shape, wells])

    def forward(self, x: Tensor) -> Tensor:
        shape, wells = (layer for layer in self.layers if isinstance(layer, nn.Linear))
        u = linear(x, shape.weight, shape.bias)
        half: Tensor = 0.5 * torch.linalg.vecdot(u, u)
        return half - linear(x, wells.weight, wells.bias).logsumexp(1)


def shapes_of_wells(inputs: int, width: int, count: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights by their names, before there is any; ``width`` coordinates of ``inputs`` features.

    Example:
        >>> shapes_of_wells(8, 6, 16)["layers.0.weight"], shapes_of_wells(8, 6, 16)["layers.1.weight"]
        ((6, 8), (16, 8))
    """
    shape = {"layers.0.weight": (width, inputs), "layers.0.bias": (width,)}
    return shape | {"layers.1.weight": (count, inputs), "layers.1.bias": (count,)}
