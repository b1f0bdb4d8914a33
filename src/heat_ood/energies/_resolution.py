"""How finely scores can be told apart: a sample has other last digits in another batch, and that must not count.

The sums behind a score are added up in an order that depends on the batch, on the processor and on the program that
runs the network. Calibration samples and new ones are scored in different batches, so two equal samples would get
scores that differ, and ranks that mean nothing. Scores nearer than the resolution are therefore held for equal.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from ..features import Features

__all__ = ["least_resolution", "resolution_of"]

CHANGE = 2.0**-14
"""Features are changed by at most this share of their channel's mean size: some ten times what a batch changes."""
LEAST = 2.0**-19
"""No score is finer than this share of its size and of the scores' spread: some thirty times float32's rounding."""
SAMPLES, WINDOW, DRAWS = 256, 9, 2
"""So many samples are changed, so often; a score has the largest resolution of so many around it."""
EACH, MARGIN = 8, 4.0
"""Every so many of them are scored alone, too; the resolution is at least so many times what that changes."""


def resolution_of(score: Callable[[Features], Tensor], features: Features, scores: Tensor) -> Tensor:
    """For each score, how much it moves when features move by more than rounding moves them, or with its batch, (n,).

    Args:
        score: of features.
        features: some ID samples.
        scores: theirs.
    """
    order = scores.argsort(stable=True)
    rows = order[torch.linspace(0, len(order) - 1, min(SAMPLES, len(order)), dtype=torch.float64).round().long()]
    some, before, generator = features[rows], scores[rows], torch.Generator().manual_seed(0)
    moved = torch.zeros_like(before)
    for _ in range(DRAWS):
        moved = torch.maximum(moved, (score(some.changed(CHANGE, generator)) - before).abs())
    for i in range(0, len(rows), EACH):
        moved[i] = torch.maximum(moved[i], MARGIN * (score(some[i])[0] - before[i]).abs())
    around = max_pool1d(moved[None], WINDOW, stride=1, padding=WINDOW // 2)[0]
    above = torch.searchsorted(before, scores).clamp(max=len(rows) - 1)
    resolution = torch.maximum(around[above], around[(above - 1).clamp(min=0)])
    return torch.maximum(resolution, least_resolution(scores))


def least_resolution(scores: Tensor) -> Tensor:
    """For each score, below what a difference is rounding, (n,).

    Example:
        >>> (least_resolution(torch.tensor([-512.0, 0.0, 0.0])) * 2**19).tolist()
        [512.0, 0.0, 0.0]
    """
    spread = (scores - scores.median()).abs().median()
    return LEAST * (scores.abs() + spread)
