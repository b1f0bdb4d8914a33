"""Where ``heat-ood score`` writes: one table, or one of each shard with a record of what it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ._output import note

if TYPE_CHECKING:
    from ..features import Shard

__all__ = ["Target", "target_of"]


class Target:
    """A folder for the scores of one shard; a shard that is there already, of the same, is not made again.

    Args:
        folder: of all shards.
        ending: of the table, ``.parquet`` or ``.csv``.
        shard: which one.
        same: what must be the same in all shards.
        own: what tells the samples of this one, where that is known; then it is made once.
    """

    def __init__(self, folder: Path, ending: str, shard: Shard, same: Mapping[str, Any], own: str | None) -> None:
        self.folder, self.ending, self.shard = folder, ending, shard
        self.about = {"shard": [shard.number, shard.of], "same": dict(same), "own": own}

    def done(self) -> bool:
        """Whether it is there already, which is said."""
        from ..evaluation import reusable

        known = None if self.about["own"] is None else reusable(self.folder, self.shard.name, self.ending, self.about)
        if known is not None:
            note(f"note: the scores of shard {self.shard} are in {self.folder} already, {known['samples']:,} samples")
        return known is not None

    def write(self, columns: Mapping[str, Any], flagged: int | None) -> None:
        from ..evaluation import write_shard

        file = write_shard(self.folder, self.shard.name, self.ending, columns, {**self.about, "flagged": flagged})
        note(f"note: the scores of shard {self.shard} are in {file}; heat-ood merge {self.folder} joins all")


def target_of(
    shard: Shard | None, out: Path | None, csv_file: Path | None, detector: Path, features: Path, rate: float | None
) -> Target | None:
    """The place of a shard's scores; None without a shard."""
    from ..energies import DETECTOR_FILE
    from ..features import FEATURES_FILE

    if shard is None:
        return None
    if (out is None) == (csv_file is None):
        raise typer.BadParameter(
            "a shard is written to a folder: pass --out FOLDER for Parquet, or --csv FOLDER.", param_hint="--shard"
        )
    folder, ending = (out, ".parquet") if out is not None else (csv_file, ".csv")
    assert folder is not None
    if folder.is_file():
        raise typer.BadParameter(f"{folder} is a file; the scores of shards need a folder.", param_hint="--shard")
    judge = detector / DETECTOR_FILE if detector.is_dir() else detector
    same = {"detector": digest_of(judge), "fpr": rate, "features": str(features)}
    stored = features / FEATURES_FILE
    return Target(folder, ending, shard, same, digest_of(stored) if stored.is_file() else None)


def digest_of(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
