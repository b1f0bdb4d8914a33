"""One way to ask for a verdict, whatever gives it: a guard with its model, or a file that it was exported to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from .. import __version__
from ..energies import Calibration, Energy, columns_of
from ..errors import InputError
from ..features import Features, Guard
from ..files import plain, restored
from ..heat import HEAT
from ..images import Preprocessing

__all__ = ["VERDICTS", "Judge", "Judged", "LiveJudge", "class_name", "columns_judged"]

Floats = np.ndarray[Any, Any]
VERDICTS = {True: "unlike the training data", False: "like the training data"}
"""In words, by whether a sample is out-of-distribution."""


@dataclass(frozen=True)
class Judged:
    """What is said of each sample of a batch.

    Args:
        logits: (n, C); None where the model has none.
        score: (n,), higher = more out-of-distribution.
        p_value: (n,), float64; None before the detector is calibrated. OOD is what has ``p_value <= fpr``.
        energies: every term by its name, as :meth:`HEAT.energies` has them, (n,) each; other methods have none.
    """

    logits: Floats | None
    score: Floats
    p_value: Floats | None
    energies: Mapping[str, Floats] = field(default_factory=dict)


class Judge(Protocol):
    """What judges images or features; ``about`` is what there is to know of it, as JSON can hold it."""

    @property
    def about(self) -> Mapping[str, Any]: ...

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How a decoded image becomes pixels; None where that is not known, or features alone are judged."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, in order."""

    @property
    def calibration(self) -> Calibration | None:
        """The scores of held-out samples."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The features that may be judged, by name; none where images alone are."""

    def judge(self, pixels: Floats) -> Judged:
        """Judge images: (n, height, width, channels), uint8, resized and cropped, not normalised."""

    def judge_features(self, columns: Mapping[str, Floats]) -> Judged:
        """Judge features: (n, width) of each column."""


class LiveJudge:
    """A guard, or a detector alone, in this process; any number of threads may ask it at once.

    Args:
        guard: as :func:`heat_ood.load` opens it; a detector without its model judges features alone.
        preprocessing: how images are prepared, where the guard does not know.
    """

    def __init__(self, guard: Guard | Energy, preprocessing: Preprocessing | None = None) -> None:
        self._given = preprocessing
        self.guard = guard if isinstance(guard, Guard) else None
        self.detector: Energy = guard.detector if isinstance(guard, Guard) else guard
        self.columns = columns_judged(self.detector)
        self.about = about(self.detector)

    @property
    def preprocessing(self) -> Preprocessing | None:
        seen = self.detector.seen_
        if self.guard is None or self._given is not None:
            return None if self.guard is None else self._given
        if seen is None or seen.preprocessing is None:
            return None
        return restored(Preprocessing, dict(seen.preprocessing), "preprocessing")

    @property
    def classes(self) -> tuple[str, ...] | None:
        return None if self.detector.seen_ is None else self.detector.seen_.classes

    @property
    def calibration(self) -> Calibration | None:
        return self.detector.calibration

    @torch.no_grad()
    def judge(self, pixels: Floats) -> Judged:
        preprocessing = self.preprocessing
        if self.guard is None or preprocessing is None:
            raise InputError("This detector judges features, and images were given. Pass features, or use its guard.")
        logits, features = self.guard.read(preprocessing.normalised(pixels))
        return self._judged(features, logits)

    @torch.no_grad()
    def judge_features(self, columns: Mapping[str, Floats]) -> Judged:
        if missing := set(self.columns) - set(columns):
            raise InputError(f"{', '.join(sorted(missing))} is missing. Pass {', '.join(self.columns)}.")
        features = Features.unchecked({name: torch.from_numpy(columns[name]) for name in self.columns})
        return self._judged(features, features.logits)

    def _judged(self, features: Features, logits: torch.Tensor | None) -> Judged:
        detector = self.detector
        energies = detector.energies(features) if isinstance(detector, HEAT) else {"score": detector.score(features)}
        score = energies.pop("score")
        p_value = None
        if detector.calibration is not None:
            classes = logits.argmax(1).cpu() if detector.calibration.per_class and logits is not None else None
            p_value = detector.p_values_of(score, classes).numpy()
        told = None if logits is None else logits.cpu().numpy()
        return Judged(told, score.numpy(), p_value, {name: value.numpy() for name, value in energies.items()})


def columns_judged(detector: Energy) -> tuple[str, ...]:
    """The features that a verdict takes: what is read, and the logits where ranks are those of a predicted class."""
    by_class = detector.calibration is not None and detector.calibration.per_class
    return tuple(dict.fromkeys((*columns_of(detector), *(("logits",) if by_class else ()))))


def about(detector: Energy) -> dict[str, Any]:
    """What there is to know of a detector, as JSON can hold it."""
    seen, calibration = detector.seen_, detector.calibration
    return {
        "method": detector.name,
        "detector": repr(detector),
        "reads": list(columns_judged(detector)),
        "fingerprint": detector.fingerprint,
        "seen": None if seen is None else seen.to_dict(),
        "samples": detector.samples_,
        "calibration": None
        if calibration is None
        else {"samples": len(calibration.scores), "smallest": calibration.smallest, "per_class": calibration.per_class},
        "composition": composition(detector) if isinstance(detector, HEAT) else None,
        "versions": {"heat-ood": __version__, "torch": torch.__version__},
    }


def composition(detector: HEAT) -> dict[str, Any]:
    """How the terms of a score are put together: each standardised, weighted, and composed with beta.

    Those in ``excess`` first become one: of their weighted mean ``e``, ``log(1 + exp((e - centre) / spread))``.
    """
    parts, weights = detector.composition, detector.weights_
    names = list(parts.members)
    shares = [1 / len(names)] * len(names) if weights is None else [w / sum(weights) for w in weights]
    joint, bend = detector.hybrids_.get("joint"), parts.bend
    return {
        "beta": plain(float(parts.beta)),
        "terms": {
            name: {"weight": shares[i], "centre": float(parts.centres[i]), "spread": float(parts.spreads[i])}
            for i, name in enumerate(names)
        },
        "excess": None
        if bend is None
        else {"terms": list(parts.excess), "centre": float(bend[0]), "spread": float(bend[1])},
        "temperature": None if joint is None else float(joint.temperature),
    }


def class_name(names: Sequence[str] | None, index: int, width: int) -> str:
    """The name of one of ``width`` classes; its number where the names are not known, or are not as many."""
    return names[index] if names is not None and len(names) == width else str(index)
