"""A few samples that everybody can make again: by them a file is compared with the guard that it was made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..energies import Calibration
from ..guarding import Judged

__all__ = ["COUNT", "EXACT", "differences", "probe_pixels", "spread_of"]

Floats = np.ndarray[Any, Any]
EXACT = 1e-4
"""How far a score of the file may be off, in spreads of the calibration scores."""
ROUNDING = 1e-5
"""And in shares of its own size, which counts far from all calibration scores."""
COUNT = 6
"""Samples of a probe."""


def probe_pixels(height: int, width: int, channels: int) -> Floats:
    """Noise, coarse noise, a ramp and plain grey, (6, height, width, channels), uint8; NumPy promises to keep them."""
    random = np.random.RandomState(0)
    noise = random.randint(0, 256, (2, height, width, channels))
    coarse = random.randint(0, 256, (2, 4, 4, channels))
    rows, columns = (np.arange(size) * 4 // size for size in (height, width))
    ramp = np.linspace(0, 255, height)[:, None] * np.linspace(0, 1, width)[None]
    grey = np.repeat(np.stack([ramp, np.full_like(ramp, 128)])[..., None], channels, 3)
    return np.concatenate([noise, coarse[:, rows][:, :, columns], grey]).astype(np.uint8)


def spread_of(calibration: Calibration) -> float:
    """The standard deviation of the calibration scores; one where they do not differ."""
    return float(calibration.scores.double().std(correction=0)) or 1.0


def differences(found: Judged, scores: Floats, p_values: Floats, known: Calibration, tolerance: float) -> list[str]:
    """Where a file says something else than it should, in words; none where all is well.

    A score may be off by the tolerance, or by as much as the calibration holds for rounding (its resolution). A p-value
    may be another one where the score is so near to a calibration score that rounding tells which is larger.
    """
    import torch

    if found.p_value is None or found.score.shape != scores.shape:
        return ["other outputs"]
    margin = max(tolerance * spread_of(known), float(known.resolution.max())) + ROUNDING * np.abs(scores)
    off = ~(np.abs(found.score - scores) <= margin)
    wrong = [f"score {found.score[i]:.6g} instead of {scores[i]:.6g}" for i in np.flatnonzero(off)]
    if known.per_class:
        return wrong
    least, most = (known.p_value(torch.from_numpy(scores + sign * margin)).numpy() for sign in (1, -1))
    strange = (found.p_value < np.minimum(least, p_values)) | (found.p_value > np.maximum(most, p_values))
    return wrong + [f"p-value {found.p_value[i]:.6g} instead of {p_values[i]:.6g}" for i in np.flatnonzero(strange)]
