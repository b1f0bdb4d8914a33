"""A digest of features: of every number, so that no other ones are taken for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ._features import Features

__all__ = ["digest_of_samples"]

CHUNK = 4096


def digest_of_samples(features: Features) -> str:
    """BLAKE2 of all columns, labels and the head, read a part at a time.

    Example:
        >>> one, other = Features(avg=torch.zeros(9, 2)), Features(avg=torch.zeros(9, 2))
        >>> digest_of_samples(one) == digest_of_samples(other), len(digest_of_samples(one))
        (True, 64)
    """
    digest = hashlib.blake2b(repr(features).encode(), digest_size=32)
    for tensor in tensors_in(features):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tensors_in(features: Features) -> Iterator[Tensor]:
    """All that features hold, a part at a time: a memory-mapped store stays on the disk."""
    for batch in features.batches(CHUNK):
        yield from batch.columns.values()
    for tensor in (features.labels, *(features.head or ())):
        if tensor is not None:
            yield tensor
