"""What a guard's folder says of its model: how it is made again, for each detector that may stand beside it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..energies import read_manifest
from ..errors import FormatError
from ..features import Extractor
from ..files import Format, part_of, restored, write

__all__ = ["DETECTOR", "GUARD_FILE", "Record", "Records", "belongs", "fingerprint_in", "is_weights", "read_record"]

FORMAT = Format("heat-ood guard", 2)
GUARD_FILE, WEIGHTS, DETECTOR = "guard.json", "model.safetensors", "detector"
OTHER_WEIGHTS = re.compile(r"model-[0-9a-f]{16}\.safetensors")
FOLDERS = (DETECTOR, "features", "checkpoint")
AGAIN = "Protect the model again."


@dataclass(frozen=True)
class Record:
    """How a guard's model is made again, and how its features are read.

    Args:
        model: its name, for :func:`heat_ood.models.load_model`; None where it has none, and must be passed.
        weights: the file in the folder that holds its weights; None where there is none.
        layers: as :class:`Extractor` was given them.
        stages: whether ``layers="stages"`` was given instead.
        head: the head's name, where one was given.
        headless: whether it was said that there is none.
    """

    model: str | None = None
    weights: str | None = None
    layers: tuple[str, ...] = ()
    stages: bool = False
    head: str | None = None
    headless: bool = False

    @classmethod
    def of(cls, extractor: Extractor, weights: str | None) -> Record:
        """What is needed to make an extractor again."""
        given = extractor.layers
        named = () if given is None or given == "stages" else (given,) if isinstance(given, str) else tuple(given)
        head = extractor.head if isinstance(extractor.head, str) else None
        return cls(extractor.name, weights, named, given == "stages", head, extractor.head is False)


@dataclass(frozen=True)
class _Content:
    """What the file holds."""

    models: Mapping[str, Record]


class Records:
    """The records of a folder by the fingerprint of the detector that each belongs to.

    There is one, but while a guard is replaced by one of another model: then there are both, so that whichever
    detector a reader, or a kill, finds has its own.
    """

    def __init__(self, by_fingerprint: Mapping[str, Record] | None = None) -> None:
        self.by_fingerprint = dict(by_fingerprint or {})

    @classmethod
    def read(cls, folder: Path) -> Records:
        """What the folder says; the one record of version 1 is that of the detector that is there."""
        file = folder / GUARD_FILE
        content = FORMAT.read(file, "Pass a folder that heat_ood.protect wrote.", AGAIN)
        try:
            if content["version"] == 1:
                data = FORMAT.unstamp(content)
                data["weights"] = WEIGHTS if restored(bool, data.get("weights", False), "guard.weights") else None
                return cls({fingerprint_in(folder): restored(Record, data, "guard")})
            found = restored(_Content, FORMAT.unstamp(content), "guard").models
            if strange := [r.weights for r in found.values() if r.weights is not None and not is_weights(r.weights)]:
                raise FormatError(f"it names the weights {strange[0]!r}")
        except FormatError as error:
            raise FormatError(f"{file} is damaged: {error}. {AGAIN}") from error
        return cls(found)

    @classmethod
    def before(cls, folder: Path) -> Records:
        """Those that are about to be replaced; none where they cannot be read."""
        try:
            return cls.read(folder)
        except (FormatError, OSError):
            return cls()

    def write(self, folder: Path) -> None:
        """Replace what the folder says."""
        models = {fingerprint: asdict(record) for fingerprint, record in self.by_fingerprint.items()}
        write(folder / GUARD_FILE, json.dumps(FORMAT.stamp({"models": models}), indent=1) + "\n", durable=True)

    def with_(self, fingerprint: str, record: Record) -> Records:
        """The same and one more."""
        return Records({**self.by_fingerprint, fingerprint: record})

    def place_for(self, fingerprint: str) -> str:
        """The file for a model's weights: where they are, or one that no other model's weights are in."""
        own = self.by_fingerprint.get(fingerprint, Record()).weights
        taken = {record.weights for other, record in self.by_fingerprint.items() if other != fingerprint}
        if own is not None and own not in taken:
            return own
        return f"model-{hashlib.sha256(fingerprint.encode()).hexdigest()[:16]}.safetensors" if taken else WEIGHTS


def fingerprint_in(folder: Path) -> str:
    """That of the model of the detector that is in a guard's folder."""
    found: Any = read_manifest(folder / DETECTOR).get("fingerprint")
    return found if isinstance(found, str) else ""


def read_record(folder: Path) -> Record:
    """What the folder says of the model that its detector was fitted with."""
    found = Records.read(folder).by_fingerprint.get(fingerprint_in(folder))
    if found is None:
        raise FormatError(f"{folder / GUARD_FILE} does not know the model of the detector beside it. {AGAIN}")
    return found


def is_weights(name: str) -> bool:
    """Whether a file holds the weights of a guard's model, by its name."""
    return name == WEIGHTS or OTHER_WEIGHTS.fullmatch(name) is not None


def belongs(name: str) -> bool:
    """Whether a guard's folder has a file or folder of this name.

    Example:
        >>> [belongs(name) for name in ("guard.json", "detector", "model.safetensors", "thesis.tex")]
        [True, True, True, False]
    """
    own = part_of(name) or name
    return own in (GUARD_FILE, *FOLDERS) or is_weights(own)
