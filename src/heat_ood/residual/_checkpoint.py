"""A checkpoint of a training run: one safetensors file with a checksum, replaced whole after each epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from ..errors import FormatError, InputError
from ..files import digest_of_tensors, metadata_of, plain, read, write_tensors

__all__ = ["Checkpoint"]

VERSION = "2"
"""Earlier ones have none, and no checksum: they are refused, since what is in them cannot be trusted."""


class Checkpoint:
    """Where an interrupted fit goes on.

    Args:
        path: the file.
        identity: what the run is made of; a checkpoint of another run is refused.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the file: a kill leaves the old one or the new one."""
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        about = {"version": VERSION, "identity": self.identity, "facts": json.dumps(plain(facts), allow_nan=False)}
        write_tensors(self.path, kept, about | {"sha256": digest_of_tensors(kept, about)})

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last saved state; None where there is none."""
        try:
            data = read(self.path)
            tensors, about = load_tensors(data), metadata_of(data)
        except FileNotFoundError:
            return None
        except FormatError as error:
            raise FormatError(f"{error} Delete it to start this residual anew.") from error
        except (SafetensorError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self.damaged(str(error)) from error
        if about.get("version") != VERSION:
            raise FormatError(
                f"The checkpoint {self.path} is of another version of heat-ood. Delete it to start this residual anew."
            )
        checksum = about.pop("sha256", None)
        if checksum != digest_of_tensors(tensors, about):
            raise self.damaged("its checksum does not match")
        if about.get("identity") != self.identity:
            raise InputError(
                f"The checkpoint {self.path} is of a fit with other data or settings. Name another folder or delete it."
            )
        try:
            return tensors, dict(json.loads(about["facts"]))
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            raise self.damaged(f"what it says of the training cannot be read: {error}") from error

    def damaged(self, why: str) -> FormatError:
        """The error that says so."""
        return FormatError(f"The checkpoint {self.path} is damaged ({why}). Delete it to start this residual anew.")

    def remove(self) -> None:
        """What is done needs none."""
        self.path.unlink(missing_ok=True)
