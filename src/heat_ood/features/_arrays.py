"""Features as the arrays that are stored, and the columns that describe them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ._columns import Head, column_name
from ._features import Features
from ._manifest import Column
from ._mapped import Numpy

__all__ = ["arrays_of", "as_numpy", "column_of", "head_columns", "numbered", "summary"]


def arrays_of(features: Features) -> dict[tuple[str | None, str], Numpy]:
    arrays = {key: as_numpy(column) for key, column in features.columns.items()}
    if features.labels is not None:
        arrays[None, "labels"] = as_numpy(features.labels)
    return arrays


def as_numpy(tensor: Tensor) -> Numpy:
    tensor = tensor.detach().cpu()
    array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def column_of(key: tuple[str | None, str], array: Numpy, index: int) -> Column:
    layer, pooling = key
    file = f"{pooling}.npy" if layer is None else f"layer-{index:03d}-{pooling}.npy"
    return Column(pooling, layer, file, array.dtype.str, array.shape[1] if array.ndim == 2 else 0)


def head_columns(head: Head) -> list[Column]:
    weight, bias = (as_numpy(t) for t in head)
    return [
        Column("weight", None, "head-weight.npy", weight.dtype.str, weight.shape[1]),
        Column("bias", None, "head-bias.npy", bias.dtype.str, 0),
    ]


def numbered(column: Column, number: int) -> Column:
    """The same column in another file, where the first name is taken."""
    return replace(column, file=column.file.replace(".npy", f"-{number}.npy")) if number else column


def summary(columns: list[Column]) -> str:
    return ", ".join(f"{column_name((c.layer, c.pooling))} ({c.width or 1} × {c.dtype})" for c in columns)
