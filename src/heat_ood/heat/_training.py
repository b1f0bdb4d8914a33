"""The residuals of one fit, trained one after the other on the same samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ..features import Features
from ..progress import Bars
from ..residual import Checkpoint, Hybrid
from ._choice import Choice

__all__ = ["Trainer", "identity_of"]


@dataclass(frozen=True)
class Trainer:
    """What all residuals of one fit are trained with.

    Args:
        fitting: the samples to fit.
        held: the samples held out.
        contrast: samples to be told from ID, if there are any.
        bars: where progress is shown.
        folder: for checkpoints; None keeps none.
        identity: what the fit is made of, so that a checkpoint of another one is refused.
        device: where to train.
    """

    fitting: Features
    held: Features
    contrast: Features | None
    bars: Bars
    folder: str | PathLike[str] | None
    identity: str
    device: torch.device | str | None

    def correct(self, name: str, hybrid: Hybrid) -> None:
        """Train one residual, from its checkpoint if there is one."""
        checkpoint = None
        if self.folder is not None:
            file = Path(self.folder) / f"{name.replace('/', '-')}.safetensors"
            checkpoint = Checkpoint(file, f"{self.identity}/{name}")
        hybrid.title = name
        report = self.bars.add(f"residual of {name}")
        hybrid.fit(self.fitting, self.held, self.contrast, report, checkpoint, self.device)


def identity_of(settings: Mapping[str, Any], choice: Choice, features: Features, contrast: Features | None) -> str:
    """What a fit is made of, for its checkpoints: settings, and a look at the samples."""
    digest = hashlib.sha256(repr((dict(settings), choice.priors, choice.weights, choice.residuals)).encode())
    for part in (features, contrast):
        digest.update(repr(part).encode())
        if part is not None:
            some = part[:: max(1, len(part) // 64)]
            for tensor in (*some.columns.values(), part.labels, *(part.head or ())):
                if tensor is not None:
                    digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
