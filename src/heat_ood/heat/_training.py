"""The residuals of one fit, trained one after the other on the same samples."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..features import Features, digest_of_samples
from ..files import locked, plain
from ..progress import Bars
from ..residual import Checkpoint, Hybrid
from ._choice import Choice

__all__ = ["Kept", "Trainer", "identity_of", "kept_in"]


@dataclass(frozen=True)
class Trainer:
    """What all residuals of one fit are trained with.

    Args:
        fitting: the samples to fit.
        held: the samples held out.
        contrast: samples to be told from ID, if there are any.
        bars: where progress is shown.
        kept: where checkpoints lie; None keeps none.
        identity: what the fit is made of, so that a checkpoint of another one is refused.
        device: where to train.
    """

    fitting: Features
    held: Features
    contrast: Features | None
    bars: Bars
    kept: Kept | None
    identity: str
    device: torch.device | str | None

    def correct(self, name: str, hybrid: Hybrid) -> None:
        """Train one residual, from its checkpoint if there is one."""
        checkpoint = None
        if self.kept is not None:
            checkpoint = Checkpoint(self.kept.file_of(name), f"{self.identity}/{name}")
        hybrid.title = name
        report = self.bars.add(f"residual of {name}")
        hybrid.fit(self.fitting, self.held, self.contrast, report, checkpoint, self.device)


@contextmanager
def kept_in(folder: str | PathLike[str] | None) -> Iterator[Kept | None]:
    """A folder for the checkpoints of one fit, which nobody else writes to meanwhile; None keeps none."""
    if folder is None:
        yield None
        return
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file. Name a folder for the checkpoints.")
    before = {file.name for file in place.iterdir()} if place.exists() else None
    with locked(place, wait=False):
        yield Kept(place, before)


class Kept:
    """The checkpoints of one fit: they stay until what was fitted is saved, since till then it is in memory alone.

    Args:
        folder: where they lie.
        before: what was in the folder when the fit began; None where there was no folder.
    """

    def __init__(self, folder: Path, before: Set[str] | None) -> None:
        self.folder, self.before = folder, before
        self.files: list[Path] = []

    def file_of(self, name: str) -> Path:
        """Where the checkpoint of a residual lies."""
        plain = name if re.fullmatch(r"[\w@.,\[\]-]{1,100}", name) else ""
        self.files.append(self.folder / f"{plain or hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors")
        return self.files[-1]

    def remove(self) -> None:
        """Remove the fit's own files and, where it made it, the folder."""
        for file in self.files:
            file.unlink(missing_ok=True)
        made = self.before is None or (bool(self.before) and self.before <= {file.name for file in self.files})
        if made:
            with suppress(OSError):  # something else is in it now
                self.folder.rmdir()


def identity_of(settings: Mapping[str, Any], choice: Choice, features: Features, contrast: Features | None) -> str:
    """What a fit is made of, for its checkpoints: settings, and every sample."""
    made_of = [dict(settings), choice.priors, choice.weights, choice.residuals, choice.excess]
    digest = hashlib.blake2b(json.dumps(plain(made_of)).encode(), digest_size=32)
    for part in (features, contrast):
        digest.update(b"" if part is None else digest_of_samples(part).encode())
    return digest.hexdigest()
