"""A checkpoint of a training run: one safetensors file, replaced whole after each epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import FormatError, InputError
from ..files import replacing

__all__ = ["Checkpoint"]


class Checkpoint:
    """Where an interrupted fit goes on.

    Args:
        path: the file.
        identity: what the run is made of; a checkpoint of another run is refused.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self.identity = path, identity

    def save(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the file: a kill leaves the old one or the new one."""
        metadata = {"identity": self.identity, "facts": json.dumps(facts)}
        with replacing(self.path) as part:
            save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, part, metadata)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last saved state; None where there is none."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            facts = json.loads(metadata["facts"])
        except (SafetensorError, KeyError, ValueError) as error:
            raise FormatError(
                f"The checkpoint {self.path} is damaged ({error}). Delete it to start this residual anew."
            ) from error
        if metadata["identity"] != self.identity:
            raise InputError(
                f"The checkpoint {self.path} is of a fit with other data or settings. Name another folder or delete it."
            )
        return tensors, facts
