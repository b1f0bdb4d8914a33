"""The pass of a guard, kept from ``torch.compile``; imported by what is being compiled alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ._features import Features

if TYPE_CHECKING:
    from ._guard import Guard

__all__ = ["read_uncompiled"]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def read_uncompiled(guard: Guard, images: Any) -> tuple[Tensor | None, Features]:
    """The logits and the features of a batch; nothing below is compiled either."""
    return guard._read(images)
