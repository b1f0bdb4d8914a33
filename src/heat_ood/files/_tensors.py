"""Tensors as one safetensors file, written whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ._writing import replacing

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["write_tensors"]

_CODE = re.compile(r"\(os error (\d+)\)")
"""How safetensors names an error of the file system."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, *, durable: bool = False
) -> None:
    """Write tensors, or replace them, in one step; what the file system refuses (a full disk) is an ``OSError``.

    Args:
        path: the file.
        tensors: by name, on any device; those that share memory are written one by one.
        metadata: text by name.
        durable: as for :func:`replacing`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    own: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        kept = tensor.detach().cpu().contiguous()
        place = kept.untyped_storage().data_ptr()
        own[name] = kept.clone() if place in seen else kept  # safetensors refuses those that share memory
        seen.add(place)
    with replacing(path, durable=durable) as part:
        try:
            save_file(own, part, None if metadata is None else dict(metadata))
        except SafetensorError as error:
            found = _CODE.search(str(error))
            if found is None:
                raise
            raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error
