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
    "check_head",
    "check_labels",
    "check_same_model",
    "column_key",
    "column_name",
]

Array: TypeAlias = "Tensor | np.ndarray[Any, Any]"
MOST_CLASSES = 32_768
"""What labels may count to without a head, logits or as many samples to show for it."""


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
    tensor = as_tensor(array, name)
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


def as_tensor(array: Any, name: str) -> Tensor:
    try:
        return array.detach() if isinstance(array, Tensor) else torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(
            f"{name} cannot be made a tensor ({str(error).partition('.')[0]}). Pass numbers, as a tensor or an array."
        ) from error


def as_labels(labels: Array | Sequence[int]) -> Tensor:
    tensor = as_tensor(labels, "labels")
    if tensor.ndim != 1:
        raise InputError(
            f"labels must be a vector of class numbers, not of shape {tuple(tensor.shape)}. "
            "Take the argmax of one-hot labels first."
        )
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"labels must be integers, not {tensor.dtype}. Convert them, for example with .long().")
    whole = tensor.long()
    if tensor.dtype == torch.uint64 and whole.numel() and int(whole.min()) < 0:
        raise InputError("labels are larger than any class number. Number the classes from 0.")
    return whole


def check_labels(labels: Tensor, classes: int | None) -> None:
    """Refuse class numbers that nothing speaks for, since memory is taken for every class up to the largest.

    Args:
        labels: of all samples.
        classes: as many as the head or the logits have; None where there are neither.
    """
    most = max(classes or 0, len(labels), MOST_CLASSES)
    largest = int(labels.max()) if len(labels) else 0
    if largest >= most:
        more = "" if classes is None else f" and {classes:,} classes"
        first = int((labels >= most).nonzero()[0])
        raise InputError(
            f"labels are class numbers, and sample {first} is of class {int(labels[first]):,}: there are "
            f"{len(labels):,} samples{more}, so numbers up to {most - 1:,} are read. "
            "Number the classes from 0, for example with numpy.unique(labels, return_inverse=True)."
        )


def as_head(head: tuple[Array, Array | None] | Head) -> Head:
    """A head as tensors; its numbers are not looked at, since every call of a guard comes by here."""
    weight = as_matrix(head[0], "head weight")
    bias = (
        torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
        if head[1] is None
        else as_tensor(head[1], "head bias").detach()
    )
    if bias.shape != (len(weight),):
        raise InputError(
            f"The head's bias must have shape ({len(weight)},), one number a class, not {tuple(bias.shape)}."
        )
    return Head(weight, bias)


def check_head(head: Head) -> None:
    """Refuse a head with NaN or infinities: every score that follows from it would be one."""
    bad = ~(torch.isfinite(head.weight).all(1) & torch.isfinite(head.bias))
    if bad.any():
        raise InputError(
            f"The head is not finite (NaN or infinite) for {int(bad.sum()):,} of {len(bad):,} classes, the first is "
            f"class {int(bad.nonzero()[0])}. Pass the weights of a network that was trained without overflow."
        )
