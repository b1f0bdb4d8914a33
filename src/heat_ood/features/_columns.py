"""What features are made of: pooled layers, the head, the names of columns; arrays turned into tensors, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError

__all__ = [
    "Array",
    "Head",
    "Layer",
    "as_head",
    "as_labels",
    "as_matrix",
    "check_same_model",
    "column_key",
    "column_name",
]

Array: TypeAlias = "Tensor | np.ndarray[Any, Any]"


class Layer(NamedTuple):
    """One layer, pooled over its positions: the mean and the standard deviation of each channel."""

    avg: Tensor | None
    std: Tensor | None = None


class Head(NamedTuple):
    """The linear map from ``avg`` to the logits: ``avg @ weight.T + bias``."""

    weight: Tensor
    bias: Tensor

    def __call__(self, avg: Tensor) -> Tensor:
        weight, bias = self.weight.to(avg), self.bias.to(avg)
        return torch.nn.functional.linear(avg, weight, bias)


def column_name(key: tuple[str | None, str]) -> str:
    """A column's name as a user writes it: ``std``, ``std@layer3``."""
    layer, pooling = key
    return pooling if layer is None else f"{pooling}@{layer}"


def column_key(name: str) -> tuple[str | None, str]:
    """The layer, None for the last, and the pooling of a column's name."""
    pooling, _, layer = name.partition("@")
    return layer or None, pooling


def check_same_model(one: str | None, other: str | None) -> None:
    """Refuse features of two models; unknown models (None) pass."""
    if one is not None and other is not None and one != other:
        raise InputError(
            f"These features come from two different models (fingerprints {one[:12]} and {other[:12]}). "
            "Extract both with the same model and layers, or build them from arrays with Features(avg=…), which carry "
            "no fingerprint."
        )


def as_matrix(array: Array, name: str) -> Tensor:
    tensor = array.detach() if isinstance(array, Tensor) else torch.as_tensor(array)
    if tensor.ndim != 2:
        raise InputError(
            f"{name} must be a matrix, (samples, features), not of shape {tuple(tensor.shape)}. "
            "Pool maps first, or use Extractor."
        )
    if not tensor.is_floating_point():
        raise InputError(
            f"{name} must hold floating-point numbers, not {tensor.dtype}. Convert it, for example with .float()."
        )
    if tensor.shape[1] == 0:
        raise InputError(f"{name} has no columns.")
    return tensor


def as_labels(labels: Array | Sequence[int]) -> Tensor:
    tensor = torch.as_tensor(labels)
    if tensor.ndim != 1:
        raise InputError(
            f"labels must be a vector of class numbers, not of shape {tuple(tensor.shape)}. "
            "Take the argmax of one-hot labels first."
        )
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"labels must be integers, not {tensor.dtype}. Convert them, for example with .long().")
    return tensor.long()


def as_head(head: tuple[Array, Array | None] | Head) -> Head:
    weight = as_matrix(head[0], "head weight")
    bias = (
        torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
        if head[1] is None
        else torch.as_tensor(head[1]).detach()
    )
    if bias.shape != (len(weight),):
        raise InputError(
            f"The head's bias must have shape ({len(weight)},), one number a class, not {tuple(bias.shape)}."
        )
    return Head(weight, bias)
