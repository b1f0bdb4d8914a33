"""What a file says of itself: everything around the graph, as JSON, and strictly back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ..energies import Calibration
from ..errors import FormatError, HeatError
from ..files import Format, plain, restored
from ..images import Preprocessing
from ._probe import probe_pixels

__all__ = ["Facts", "Packed", "Probed", "Reduced", "packed"]

Floats = np.ndarray[Any, Any]

FORMAT = Format("heat-ood export", 1)
AGAIN = "Export it again."
LARGEST = 2**27
"""Characters of the largest description that is read."""
KINDS = {"float32": "<f4", "float64": "<f8"}


@dataclass(frozen=True)
class Packed:
    """A calibration: its scores, what they count up to, and where each class begins, as base64 of little-endian bytes.

    Args:
        scores: in order.
        limits: what a score is ranked against.
        offsets: where each group begins, and the end, int64.
        kind: of the scores, ``float32`` or ``float64``.
    """

    scores: str
    limits: str
    offsets: str
    kind: str = "float32"

    @classmethod
    def of(cls, calibration: Calibration) -> Packed:
        kind = str(calibration.scores.dtype).removeprefix("torch.")
        scores, limits, offsets = (
            t.cpu().numpy() for t in (calibration.scores, calibration.limits, calibration.offsets)
        )
        return cls(packed(scores, KINDS[kind]), packed(limits, KINDS[kind]), packed(offsets, "<i8"), kind)

    def calibration(self) -> Calibration:
        """What was packed, checked."""
        if self.kind not in KINDS:
            raise FormatError(f"its calibration is of the kind {self.kind!r:.40}")
        scores, limits = (torch.from_numpy(unpacked(text, KINDS[self.kind])) for text in (self.scores, self.limits))
        offsets = torch.from_numpy(unpacked(self.offsets, "<i8"))
        try:
            found = Calibration(scores)
            found.scores, found.limits, found.offsets = scores, limits, offsets
            found.validate()
        except HeatError as error:
            raise FormatError(f"its calibration cannot be used ({error})") from error
        if not scores.isfinite().all() or limits.isnan().any():
            raise FormatError("its calibration is not finite")
        return found


def packed(values: Floats, code: str) -> str:
    """Numbers as base64 of their bytes."""
    return base64.b64encode(values.astype(code).tobytes()).decode()


def unpacked(text: str, code: str) -> Floats:
    """What :func:`packed` was given."""
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), dtype=code)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"its numbers are no base64 of {code} ({error})") from error
    return values.astype(values.dtype.newbyteorder("="))


@dataclass(frozen=True)
class Probed:
    """What was said, when the file was made, of a few samples that everybody can make again.

    Args:
        scores: of the samples, in order.
        p_values: theirs.
        tolerance: how far a score may be off, in spreads of the calibration scores.
        samples: where features are taken, the samples: all columns side by side, as base64 of little-endian float32.
    """

    scores: tuple[float, ...]
    p_values: tuple[float, ...]
    tolerance: float
    samples: str | None = None


@dataclass(frozen=True)
class Reduced:
    """How far a file with weights of less precision is from the guard that it was made of, on images that were given.

    Args:
        how: ``half`` or ``quantised``.
        images: how many were compared, ID and OOD.
        largest: difference of scores, in spreads of the calibration scores.
        usual: what 95 % of the differences do not exceed.
        changed: share of the decisions that are others.
        auroc: of the guard itself.
        auroc_reduced: of this file.
    """

    how: str
    images: int
    largest: float
    usual: float
    changed: float
    auroc: float
    auroc_reduced: float

    def __str__(self) -> str:
        return (
            f"{self.how}: scores differ by up to {self.largest:.3g} spreads, 95 % by at most {self.usual:.3g}; "
            f"{self.changed:.2%} of the decisions change; AUROC {100 * self.auroc:.2f} % becomes "
            f"{100 * self.auroc_reduced:.2f} % (measured on {self.images:,} images)"
        )


@dataclass(frozen=True)
class Facts:
    """Everything around the graph.

    Args:
        takes: ``pixels`` or ``features``.
        columns: the features that are taken, by name; none where pixels are.
        widths: of each column.
        outputs: what comes out, by name.
        energies: the terms of the score, in the order of the output of that name.
        fpr: the false-alarm rate where none is given.
        classes: their names, in order.
        preprocessing: from a decoded image to pixels and, in the graph, to what the model takes.
        about: what there is to know of the detector.
        calibration: its scores.
        probe: what was said of a few samples.
        versions: of what made the file.
        reduced: where weights have less precision, what that changed.
    """

    takes: str
    columns: tuple[str, ...]
    widths: tuple[int, ...]
    outputs: tuple[str, ...]
    energies: tuple[str, ...]
    fpr: float
    classes: tuple[str, ...] | None
    preprocessing: Preprocessing | None
    about: Mapping[str, Any]
    calibration: Packed
    probe: Probed
    versions: Mapping[str, str]
    reduced: Reduced | None = None

    def to_json(self) -> str:
        """As the file holds it."""
        return json.dumps(FORMAT.stamp(plain(asdict(self))), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, what: object) -> Facts:
        """What :meth:`to_json` gave, checked."""
        if len(text) > LARGEST:
            raise FormatError(f"{what} describes itself in {len(text):,} characters, more than can be meant. {AGAIN}")
        content = FORMAT.parse(text, what, "Pass a file that heat-ood export wrote.", AGAIN)
        try:
            facts = restored(cls, FORMAT.unstamp(content), "export")
            facts.check()
        except HeatError as error:
            raise FormatError(f"{what} is damaged: {error}. {AGAIN}") from error
        return facts

    def check(self) -> None:
        """Refuse what does not fit together."""
        pixels = self.takes == "pixels"
        wanted = {"score", "p_value", "ood", *(["energies"] if self.energies else [])}
        if self.takes not in ("pixels", "features") or pixels == bool(self.columns):
            raise FormatError(f"it takes {self.takes!r:.40} and {len(self.columns)} columns")
        if pixels != (self.preprocessing is not None) or (self.preprocessing and self.preprocessing.size is None):
            raise FormatError("it does not know the size of its images")
        if len(self.columns) != len(self.widths) or not all(0 < width < 2**24 for width in self.widths):
            raise FormatError("its columns have no such widths")
        if set(self.outputs) - {"logits"} != wanted or len(set(self.outputs)) < len(self.outputs):
            raise FormatError(f"its outputs are {', '.join(self.outputs)[:80]}")
        if not self.probe.scores or len(self.probe.scores) != len(self.probe.p_values):
            raise FormatError("its probe is of two lengths")
        if not 0 < self.probe.tolerance < 1e3 or not 0 < self.fpr < 1:
            raise FormatError(f"its fpr is {self.fpr}, its tolerance {self.probe.tolerance}")
        self.calibration.calibration()
        self.samples()

    def samples(self) -> dict[str, Floats]:
        """The probe: what to give to the graph, by name."""
        known, count = self.preprocessing, len(self.probe.scores)
        if known is not None and known.size is not None:
            return {"pixels": probe_pixels(*known.size, len(known.mean))}
        values = unpacked(self.probe.samples or "", "<f4")
        if len(values) != count * sum(self.widths):
            raise FormatError(f"its probe has {len(values)} numbers")
        parts = np.split(values.reshape(count, -1), np.cumsum(self.widths)[:-1], axis=1)
        return dict(zip(self.columns, parts, strict=True))
