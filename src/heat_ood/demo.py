"""The demo: a small network learns to read digits, and HEAT tells them from letters, pairs of digits and photographs.

Everything is decided beforehand and nothing is chosen by the result; :mod:`heat_ood.benchmarks.digits` says what the
images are. HEAT is the default: it reads the network's stages, and learns to tell its features from those of the
training images, distorted.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from .benchmarks import digits
from .energies import Energy, create
from .errors import InputError
from .evaluation import Evaluation, compare, evaluate_scores
from .features import CONTRAST, Extractor, Features
from .files import is_part, write
from .heat import HEAT
from .report import panels

__all__ = ["Result", "run"]

_FPR = 0.05
_FILES = ("detector", "results.json", "results.md", "scores.png")


@dataclass(frozen=True)
class Result:
    """What the demo found."""

    seed: int
    samples: dict[str, int]
    accuracy: float
    evaluations: dict[str, Evaluation]
    used: dict[str, float]
    contrast: int
    outcomes: dict[str, str]
    false_alarms: float
    flagged: dict[str, float]
    flagged_by_msp: dict[str, float]
    reloaded_equal: bool
    seconds: float
    out: Path

    def table(self) -> tuple[list[str], list[list[str]]]:
        """A header and rows: FPR95 / AUROC on each OOD set and on average."""
        first = next(iter(self.evaluations.values()))
        rows = [
            [label, *(f"{row.cell('fpr_at_95_id')} / {row.cell('auroc')}" for row in (*evaluation, evaluation.average))]
            for label, evaluation in self.evaluations.items()
        ]
        return ["", *first.names, "average"], rows

    def remarks(self) -> list[str]:
        """What the table does not say, a line each."""
        n = self.samples
        caught = ", ".join(
            f"{100 * share:.1f} % of {name} ({100 * self.flagged_by_msp[name]:.1f} % by MSP)"
            for name, share in self.flagged.items()
        )
        return [
            f"few samples: {n['train']} to train and fit, {n['calibration']} to calibrate, {n['test']} to test; "
            f"one seed ({self.seed}), so differences of a point or two mean nothing",
            f"network: {100 * self.accuracy:.1f} % of the ID test samples are classified correctly",
            f"HEAT uses {', '.join(f'{name} ({weight:g})' for name, weight in self.used.items())}, weighted as in "
            f"brackets, and {self.contrast} training images, each distorted in one of {len(CONTRAST)} ways",
            f"residuals: {', '.join(f'{name} {outcome}' for name, outcome in self.outcomes.items())}",
            f"false alarms: {100 * _FPR:.1f} % asked for, {100 * self.false_alarms:.1f} % measured on the ID test set",
            f"flagged at this rate: {caught}",
            f"saved and loaded again: scores are {'equal' if self.reloaded_equal else 'NOT EQUAL'}",
            f"{self.seconds:.1f} s, {_environment()}",
            f"see {', '.join(str(self.out / name) for name in reversed(_FILES))}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        names = (
            "seed",
            "samples",
            "accuracy",
            "used",
            "outcomes",
            "flagged",
            "flagged_by_msp",
            "reloaded_equal",
            "seconds",
        )
        values = {name: getattr(self, name) for name in names}
        values["contrast"] = {"samples": self.contrast, "kinds": list(CONTRAST)}
        values["environment"] = _environment()
        values["false_alarms"] = {"asked": _FPR, "measured": self.false_alarms}
        return values | {"evaluations": {label: e.to_dict() for label, e in self.evaluations.items()}}

    def to_markdown(self) -> str:
        """The table and the remarks."""
        lines = "\n".join(f"- {line}" for line in self.remarks())
        return f"# heat-ood demo\n\n{compare(self.evaluations)}\n{lines}\n"


def run(
    out: str | PathLike[str] = "heat-ood-demo",
    seed: int = 0,
    say: Callable[[str], None] = print,
    detector: HEAT | None = None,
) -> Result:
    """Train, extract, fit, calibrate, evaluate; write the picture, the results and the detector to a folder.

    Args:
        out: the folder.
        seed: of the split, the network and the detector.
        say: is told what happens.
        detector: unfitted, with residuals; None is the default, ``HEAT(seed=seed)``.
    """
    folder = _prepare(Path(out))
    with _one_thread():
        return _run_in(folder, seed, say, HEAT(seed=seed) if detector is None else detector)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small are no faster on several threads, and far slower where other programs keep the cores busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _run_in(folder: Path, seed: int, say: Callable[[str], None], detector: HEAT) -> Result:
    started = time.perf_counter()
    data = digits.load_data(seed)
    say(f"training a network on {len(data.train[0])} images of handwritten digits")
    model = digits.train(*data.train, seed=seed)
    with torch.inference_mode():
        accuracy = float((model(data.test[0]).argmax(1) == data.test[1]).float().mean())

    say("extracting features, of the training images also distorted")
    extractor = Extractor(model, layers="stages")
    fitting, calibration, test = (_features_of(extractor, *part) for part in (data.train, data.calibration, data.test))
    ood = {name: _features_of(extractor, images) for name, images in data.ood.items()}
    contrast = extractor.contrast(_loader_of(data.train[0]), seed=seed, progress=False)

    say("fitting HEAT")
    detector.fit(fitting, contrast).calibrate(calibration)
    plain = HEAT(**{**detector.settings, "residual": None}).fit(fitting)
    softmax = create("msp").fit(fitting).calibrate(calibration)

    say("evaluating")
    sets = {"": test, **ood}
    terms = {name: detector.energies(features) for name, features in sets.items()}
    scores = {"MSP": {name: softmax.score(features) for name, features in sets.items()}}
    for prior in detector.priors_:
        scores[f"prior {prior}"] = {name: found[f"prior/{prior}"] for name, found in terms.items()}
    scores["priors composed, no residual"] = {name: plain.score(features) for name, features in sets.items()}
    scores["HEAT"] = {name: found["score"] for name, found in terms.items()}
    evaluations = {label: evaluate_scores(found[""], _without_id(found), seed=seed) for label, found in scores.items()}

    detector.save(folder / "detector")
    again = HEAT.load(folder / "detector")
    result = Result(
        seed=seed,
        samples={"train": len(fitting), "calibration": len(calibration), "test": len(test)}
        | {n: len(f) for n, f in ood.items()},
        accuracy=accuracy,
        used=dict(zip(detector.priors_, detector.weights_ or [1.0] * len(detector.priors_), strict=True)),
        contrast=len(contrast),
        evaluations=evaluations,
        outcomes=detector.outcomes,
        false_alarms=float(detector.predict(test, _FPR).float().mean()),
        flagged=_flagged(detector, ood),
        flagged_by_msp=_flagged(softmax, ood),
        reloaded_equal=all(torch.equal(again.score(features), detector.score(features)) for features in sets.values()),
        seconds=time.perf_counter() - started,
        out=folder,
    )
    drawn = {"MSP": softmax, "HEAT": detector}
    panels(
        {label: (scores[label][""], _without_id(scores[label])) for label in drawn},
        folder / "scores.png",
        thresholds={label: float(energy.threshold(_FPR)) for label, energy in drawn.items()},
    )
    write(folder / "results.json", json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    write(folder / "results.md", result.to_markdown())
    return result


def _environment() -> str:
    from . import __version__

    versions = f"Python {platform.python_version()}, torch {torch.__version__}, heat-ood {__version__}"
    return f"{os.cpu_count()} cores ({platform.machine()}), {versions}"


def _prepare(folder: Path) -> Path:
    if folder.exists() and not (folder.is_dir() and all(f.name in _FILES or is_part(f.name) for f in folder.iterdir())):
        raise InputError(f"{folder} holds other things than a demo. Name another folder, so that nothing is lost.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _features_of(extractor: Extractor, images: Tensor, labels: Tensor | None = None) -> Features:
    return extractor.extract(_loader_of(images, labels), progress=False)


def _loader_of(images: Tensor, labels: Tensor | None = None) -> DataLoader[Any]:
    return DataLoader(TensorDataset(images) if labels is None else TensorDataset(images, labels), batch_size=256)


def _flagged(energy: Energy, sets: dict[str, Features]) -> dict[str, float]:
    return {name: float(energy.predict(features, _FPR).float().mean()) for name, features in sets.items()}


def _without_id(scores: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: s for name, s in scores.items() if name}
