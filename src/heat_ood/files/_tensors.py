"""Tensors as one safetensors file, written whole or not at all, and how to tell that they are what was written."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ._writing import replacing

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["digest_of_tensors", "metadata_of", "write_tensors"]

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


def metadata_of(data: bytes) -> dict[str, str]:
    """What stands in the header of a safetensors file beside the tensors; its length comes first."""
    size = int.from_bytes(data[:8], "little")
    return dict(json.loads(data[8 : 8 + size]).get("__metadata__", {}))


def digest_of_tensors(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    """A checksum of tensors on the CPU, with their names, types and shapes, and of the text about them."""
    import torch

    digest = hashlib.sha256(json.dumps(sorted(about.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
