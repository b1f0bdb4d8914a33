"""A space: which pooled features an energy reads, and how they are normalised."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from ._features import Features

__all__ = ["Space"]


@dataclass(frozen=True)
class Space:
    r"""Columns of the features, side by side, each sample of each column normalised or not.

    Args:
        columns: ``avg``, ``std`` or ``logits`` of the penultimate layer, ``avg@layer3`` of an earlier one.
        normalise: divide each sample by its Euclidean norm, column by column; a zero vector stays zero.

    Example:
        >>> Space(("avg", "std"))(Features(avg=torch.tensor([[3.0, 4.0]]), std=torch.tensor([[0.0, 0.0]])))
        tensor([[0.6000, 0.8000, 0.0000, 0.0000]])
    """

    columns: tuple[str, ...] = ("avg",)
    normalise: bool = True

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("A space needs at least one column: avg, std or logits.")
        for column in self.columns:
            pooling = column.partition("@")[0]
            if pooling not in ("avg", "std", "logits"):
                raise InputError(f"There is no column {column!r}: write avg, std or logits, and avg@NAME for a layer.")

    def blocks(self, features: Features) -> list[Tensor]:
        """The raw columns, as stored."""
        found = []
        for column in self.columns:
            tensor = features.column(column)
            if tensor is None:
                raise InputError(
                    f"{column} is needed, but there is none in {features!r}. Extract it with Extractor (std needs maps "
                    "or tokens; an earlier layer needs layers=…), or choose priors that do without it."
                )
            found.append(tensor)
        return found

    def available(self, features: Features) -> bool:
        """Whether the features have what it reads."""
        return set(self.columns) <= features.available

    def __call__(self, features: Features, dtype: torch.dtype | None = None) -> Tensor:
        """The samples as points of this space, (n, d), in float32 unless the features are float64."""
        blocks = [block.to(dtype or working_dtype(block)) for block in self.blocks(features)]
        if self.normalise:
            blocks = [normalise(block) for block in blocks]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    def widths(self, features: Features) -> tuple[int, ...]:
        """The width of each column."""
        return tuple(block.shape[1] for block in self.blocks(features))


def normalise(z: Tensor) -> Tensor:
    """Each row divided by its norm; a zero row stays zero, and one whose norm overflows is not a number."""
    smallest = math.sqrt(torch.finfo(z.dtype).tiny)  # below it the squares vanish, and with them the norm
    norm: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp(min=smallest)
    return z / norm.masked_fill(norm.isinf(), torch.nan)


def working_dtype(z: Tensor) -> torch.dtype:
    """Computation follows the data: float64 stays, everything else is float32."""
    return torch.float64 if z.dtype == torch.float64 else torch.float32
