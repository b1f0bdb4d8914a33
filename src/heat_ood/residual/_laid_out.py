"""Weights laid out once for many products: a matrix product otherwise does so again each time."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LaidOut", "worth_it"]

LEAST = 512 * 512
"""Numbers of a matrix from which the layout is a part of the product's time."""
STEPS = 4
"""Products of each layout from which it pays: one takes about a fifth of a product's time."""


def worth_it(weights: list[Tensor], steps: int) -> bool:
    """Whether there are so many products of so large matrices, of a kind that MKL, where torch has it, lays out."""
    mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    there = mkl and hasattr(torch.ops.mkl, "_mkl_reorder_linear_weight")
    return (
        there
        and steps >= STEPS
        and max(w.numel() for w in weights) >= LEAST
        and all(w.dtype == torch.float32 and w.device.type == "cpu" for w in weights)
    )


class LaidOut:
    r""":math:`x W^\top` and :math:`y W` for ``rows`` rows, of a matrix as it is now.

    The products differ from those of :func:`torch.mm` by rounding.

    Args:
        weight: :math:`W`, float32 on the CPU.
        rows: of :math:`x` and :math:`y`.
    """

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.rows = rows
        self.matrices = weight.detach(), weight.detach().T
        self.laid = [torch.ops.mkl._mkl_reorder_linear_weight(m.contiguous(), rows) for m in self.matrices]

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        r""":math:`x W^\top + b`."""
        return self.product(x, 0).add_(bias)

    def back(self, y: Tensor) -> Tensor:
        """:math:`y W`."""
        return self.product(y, 1)

    def product(self, x: Tensor, side: int) -> Tensor:
        found: Tensor = torch.ops.mkl._mkl_linear(x, self.laid[side], self.matrices[side], None, self.rows)
        return found
