"""A ROC curve and two histograms, small enough to keep for every method and set."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..errors import InputError
from ..metrics import Scores, as_scores, at_least_95
from ._limits import check_finite, check_shares

__all__ = ["Curve"]

POINTS, BINS = 101, 40
LONGEST = 10_000
"""Points or bins of a curve that was not made here."""
FARTHEST = 1e300
"""No edge of a histogram lies beyond: the width of the whole must be a number too."""
CENTRAL = (0.5, 99.5)
"""Percentiles of the pooled scores between which the histograms lie."""


@dataclass(frozen=True)
class Curve:
    """The ROC curve and the histograms of one method, one seed and one OOD set.

    Args:
        id_accepted: the share of ID samples accepted, increasing from 0 to 1.
        ood_accepted: the share of OOD samples accepted at the same thresholds.
        edges: of the bins of the histograms, over the central range of all scores.
        id_density: the share of ID samples in each bin; what lies outside is in none.
        ood_density: of OOD samples.
        threshold: the smallest score that accepts at least 95 % of ID; None in files of 0.1.
    """

    id_accepted: tuple[float, ...]
    ood_accepted: tuple[float, ...]
    edges: tuple[float, ...]
    id_density: tuple[float, ...]
    ood_density: tuple[float, ...]
    threshold: float | None = None

    def __post_init__(self) -> None:
        bins = len(self.edges) - 1
        if not (len(self.id_accepted) == len(self.ood_accepted) > 1 and len(self.id_density) == bins >= 1):
            raise InputError("A curve has a share of OOD for each share of ID, and an edge more than it has bins.")
        if len(self.ood_density) != bins:
            raise InputError(f"A curve has {bins} bins for ID and {len(self.ood_density)} for OOD. Use the same.")
        if max(len(self.id_accepted), bins) > LONGEST:
            raise InputError(f"A curve has more than {LONGEST:,} points or bins. Keep fewer.")
        shares = (*self.id_accepted, *self.ood_accepted, *self.id_density, *self.ood_density)
        check_finite("a share of a curve", shares)
        check_shares("a share of a curve", shares)
        check_finite("a score of a curve", self.edges if self.threshold is None else (*self.edges, self.threshold))
        if not all(a <= b for a, b in pairwise(self.edges)):
            raise InputError("The edges of a histogram fall. Make the curve again, with Curve.of.")
        if max(map(abs, self.edges)) > FARTHEST:
            raise InputError(f"The edges of a histogram lie beyond {FARTHEST:g}. Scale the scores.")

    @classmethod
    def of(cls, id_scores: Scores, ood_scores: Scores) -> Curve:
        """From scores, higher = more OOD: thresholds at the percentiles of ID, 40 bins; rounded to save space.

        Example:
            >>> curve = Curve.of([0.0, 1.0, 2.0, 3.0], [2.5, 4.0])
            >>> curve.id_accepted[95], curve.ood_accepted[95]
            (1.0, 0.5)
        """
        s, t = as_scores(id_scores, "the ID set"), as_scores(ood_scores, "the OOD set")
        s, t = np.sort(s), np.sort(t)
        wanted = -(-np.arange(POINTS) * len(s) // (POINTS - 1))
        thresholds = s[np.maximum(wanted, 1) - 1]
        id_accepted, ood_accepted = (np.searchsorted(x, thresholds, side="right") / len(x) for x in (s, t))
        id_accepted[0] = ood_accepted[0] = 0

        low, high = np.percentile(np.concatenate([s, t]), CENTRAL)
        if not high > low:
            low, high = low - 0.5, high + 0.5
        edges = np.linspace(low, high, BINS + 1)
        densities = (np.histogram(x, edges)[0] / len(x) for x in (s, t))
        shares = (tuple(np.round(x, 5).tolist()) for x in (id_accepted, ood_accepted, *densities))
        first, second, third, fourth = shares
        threshold = float(f"{s[at_least_95(len(s)) - 1]:.7g}")
        return cls(first, second, tuple(float(f"{edge:.7g}") for edge in edges), third, fourth, threshold)

    @property
    def accepting_95(self) -> float:
        """The threshold; where it was not kept, read off the histogram: 5 % of ID lie to its right."""
        if self.threshold is not None:
            return self.threshold
        beyond = np.cumsum(self.id_density[::-1])[::-1]
        return float(np.interp(-0.05, -np.append(beyond, 0.0), self.edges))
