"""Where ``heat-ood score`` writes: one table, or one of each shard with a record of what it is."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ._output import note

if TYPE_CHECKING:
    from ..features import Shard
    from ..files import Mirror

__all__ = ["Target", "fetched_scores", "target_of", "write_out"]


UNFINISHED = "unfinished"
"""In the folder of the scores."""


def fetched_scores(url: str) -> Mirror | None:
    """A copy of the scores of all shards below a URL; None where there are none."""
    from ..evaluation import RECORD, TABLES
    from ..features import FEATURES_FILE
    from ..files import Mirror

    mirror = Mirror(url, "scores")
    names = mirror.names()
    records = [name for name in names if RECORD.fullmatch(name)]
    tables = [name for record in records for end in TABLES if (name := record.removesuffix(".json") + end) in names]
    if not tables or FEATURES_FILE in names:
        return None
    for name in (*records, *tables):
        mirror.fetch(name, again=True)
    return mirror


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
        from ..files import Mirror, url_of

        url = url_of(folder)
        self.mirror = None if url is None else Mirror(url, f"shard {shard}")
        self.folder, self.ending, self.shard = folder if self.mirror is None else self.mirror.local, ending, shard
        self.about = {"shard": [shard.number, shard.of], "same": dict(same), "own": own}

    @property
    def work(self) -> Path:
        """Where features of its images are kept until the table is written, so that who is killed can go on."""
        return self.folder / UNFINISHED / self.shard.name

    def clear(self) -> None:
        """Remove what was kept there."""
        for folder in self.work.parent.glob(f"{self.shard.name}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            self.work.parent.rmdir()

    def done(self) -> bool:
        """Whether it is there already, which is said."""
        from ..evaluation import reusable

        for name in () if self.mirror is None else (f"{self.shard.name}.json", f"{self.shard.name}{self.ending}"):
            with suppress(FileNotFoundError):
                self.mirror.fetch(name, again=True)  # type: ignore[union-attr]
        known = None if self.about["own"] is None else reusable(self.folder, self.shard.name, self.ending, self.about)
        if known is not None:
            self.clear()
            note(f"note: the scores of shard {self.shard} are in {self.folder} already, {known['samples']:,} samples")
        return known is not None

    def write(self, columns: Mapping[str, Any], flagged: int | None) -> None:
        from ..evaluation import write_shard

        file = write_shard(self.folder, self.shard.name, self.ending, columns, {**self.about, "flagged": flagged})
        if self.mirror is not None:
            self.mirror.send([file.name, f"{self.shard.name}.json"])
        self.clear()
        note(f"note: the scores of shard {self.shard} are in {file}; heat-ood merge {self.folder} joins all")


def target_of(
    shard: Shard | None, out: Path | None, csv_file: Path | None, detector: Path, features: Path, rate: float | None
) -> Target | None:
    """The place of a shard's scores; None without a shard."""
    from ..energies import DETECTOR_FILE
    from ..features import FEATURES_FILE, copy_of
    from ..files import Mirror, url_of

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
    url = url_of(features)
    same = {"detector": digest_of(judge), "fpr": rate, "features": str(features) if url is None else url}
    stored = features / FEATURES_FILE
    if url is not None and Mirror(url).exists(FEATURES_FILE):
        stored = copy_of(url).local / FEATURES_FILE
    return Target(folder, ending, shard, same, digest_of(stored) if stored.is_file() else None)


def write_out(file: Path, columns: Mapping[str, Any]) -> None:
    """Write one table, here or, by a URL, here first."""
    from ..evaluation import write_table
    from ..files import Mirror, url_of

    url = url_of(file)
    if url is None:
        write_table(file, columns)
        return
    mirror = Mirror(url)
    write_table(mirror.local, columns)
    mirror.send([""])


def digest_of(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
