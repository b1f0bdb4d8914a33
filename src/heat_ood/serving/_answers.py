"""What a client is told of each sample, and of the judge itself: plain JSON, without NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..energies import Calibration
from ..errors import HeatError
from ..files import plain
from ..guarding import VERDICTS, Judge, Judged, class_name
from ._samples import PIXELS
from ._settings import Settings

__all__ = ["info", "results", "takes"]

RATES = (0.01, 0.05, 0.1)
"""The false-alarm rates whose thresholds are shown."""
BINS = 40
"""Of the histogram of calibration scores."""
CORRECTION, EXCESS = "correction", "excess"


def results(judge: Judge, judged: Judged, names: Sequence[str | None], fpr: float) -> Iterator[dict[str, Any]]:
    """What is said of each sample."""
    composition = judge.about.get("composition")
    energies = {name: values.tolist() for name, values in judged.energies.items()}
    p_values = None if judged.p_value is None else judged.p_value.tolist()
    for i, score in enumerate(judged.score.tolist()):
        p_value = None if p_values is None else p_values[i]
        ood = None if p_value is None else p_value <= fpr
        own = {name: values[i] for name, values in energies.items()}
        yield {
            "name": names[i],
            "score": score,
            "p_value": p_value,
            "ood": ood,
            "verdict": None if ood is None else VERDICTS[ood],
            "class": None if judged.logits is None else predicted(judged.logits[i], judge.classes),
            "energies": {name: finite(value) for name, value in own.items()},
            "terms": terms(own, composition),
        }


def predicted(logits: np.ndarray[Any, Any], names: Sequence[str] | None) -> dict[str, Any] | None:
    """The likeliest class; by its number where the names are not known, or are not as many as the classes."""
    if not len(logits) or not np.isfinite(logits).all():
        return None
    index = int(logits.argmax())
    shifted = np.exp(logits.astype(np.float64) - float(logits[index]))
    return {"index": index, "name": class_name(names, index, len(logits)), "probability": float(1 / shifted.sum())}


def terms(energies: Mapping[str, float], composition: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """The parts that add up to the score, where it is a mean: each prior's, that of those which count by what they
    exceed as one, and the residuals' correction."""
    if composition is None or composition["beta"] != 0:
        return None
    temperature, excess = composition.get("temperature") or 1.0, composition.get("excess")
    together = [] if excess is None else excess["terms"]
    corrected, correction = "residual/joint" in energies, energies.get("residual/joint", 0.0)
    found, weight, total = [], 0.0, 0.0
    for name, how in composition["terms"].items():
        if name in together:
            value = energies.get(f"hybrid/{name}", energies[f"prior/{name}"])
            weight, total = weight + how["weight"], total + how["weight"] * (value - how["centre"]) / how["spread"]
            continue
        scale = how["weight"] / how["spread"] / temperature
        value = energies[f"prior/{name}"]
        if f"residual/{name}" in energies:
            residual = energies[f"residual/{name}"]
            value = energies[f"hybrid/{name}"] - residual
            corrected, correction = True, correction + scale * residual
        found.append((name, scale * (value - how["centre"])))
    if excess is not None:
        beyond = (total / weight - excess["centre"]) / excess["spread"]
        found.append((EXCESS, weight * float(np.logaddexp(0.0, beyond)) / temperature))
    if corrected:
        found.append((CORRECTION, correction))
    if not all(math.isfinite(value) for _, value in found):
        return None
    return [{"name": name, "value": value} for name, value in found]


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# The judge itself


def takes(judge: Judge) -> list[str]:
    """What may be sent."""
    return [*(["images"] if judge.preprocessing is not None else []), *(["features"] if judge.columns else [])]


def info(judge: Judge, settings: Settings) -> dict[str, Any]:
    """What there is to know before the first sample."""
    calibration, classes, preprocessing = judge.calibration, judge.classes, judge.preprocessing
    found: dict[str, Any] = plain(
        {
            "about": dict(judge.about),
            "classes": None if classes is None else list(classes),
            "preprocessing": None if preprocessing is None else preprocessing.to_dict(),
            "columns": [name for name in judge.columns if name != PIXELS],
            "takes": takes(judge),
            "fpr": settings.fpr,
            "limits": settings.shown(),
            "calibration": None if calibration is None else calibrated(calibration, settings.fpr),
            "version": __version__,
        }
    )
    return found


def calibrated(calibration: Calibration, fpr: float) -> dict[str, Any]:
    """The calibration scores as a histogram, and the thresholds that they give; none where each class has its own."""
    scores = calibration.scores.double().cpu().numpy()
    counts, edges = np.histogram(scores, bins=min(BINS, max(1, len(scores))))
    thresholds = {}
    for rate in sorted({*RATES, fpr}):
        try:
            found = calibration.threshold(rate)
        except HeatError:  # too few samples for this rate
            continue
        if not isinstance(found, torch.Tensor) and math.isfinite(found):
            thresholds[f"{rate:g}"] = found
    histogram = {"edges": edges.tolist(), "counts": counts.tolist()}
    return {"samples": len(scores), "histogram": histogram, "thresholds": thresholds}
