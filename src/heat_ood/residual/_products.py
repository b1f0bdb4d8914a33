"""Large float32 products by oneDNN: MKL, which torch takes for them, uses half of the width of some processors."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

__all__ = ["affine", "product", "quick"]

LEAST = 512 * 512
"""Numbers of a matrix from which the choice is worth a call that is a little longer."""


def quick(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is there for these two, and the matrix is large.

    On an AMD EPYC (Zen 5) it is 2.3 times as quick as MKL, whose products are in vectors of 256 bits there.
    """
    return (
        weight.numel() >= LEAST
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and platform.machine().lower() in ("x86_64", "amd64")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r""":math:`x W^\top + b` by oneDNN, of tensors that are :func:`quick`; it knows no derivative.

    It differs from torch's own by rounding.
    """
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r""":math:`x W^\top + b` with its derivative: in training by oneDNN where it is quicker, else as torch has it.

    What is not trained, scored, exported or compiled say, is torch's own.
    """
    trained = torch.is_grad_enabled() and weight.requires_grad and not torch.compiler.is_compiling()
    if trained and quick(x, weight):
        found: Tensor = Affine.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return found
    return linear(x, weight, bias)


class Affine(torch.autograd.Function):
    """:func:`product` with its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        back = product(pull, weight.T) if ctx.needs_input_grad[0] else None
        return back, product(pull.T, x.T), pull.sum(0)
