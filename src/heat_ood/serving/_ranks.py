"""Ranks of a stream among calibration scores and itself, as p-values that are exactly uniform and independent."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

__all__ = ["Ranks", "generator", "rounded", "uniforms"]

Floats = np.ndarray[Any, Any]

KEPT = 1024
"""So many scores at most are kept one by one; all others are counted between them."""
BITS = 20
"""A score is ranked by so many binary digits: computed in another batch, or elsewhere, its last ones differ."""
CALIBRATION, STREAM = 0, 1
"""What a random number is for."""


class Ranks:
    r"""The p-value of each score of a stream, among the calibration scores and the stream before it.

    .. math:: p_n = \frac{\#\{i < n : s_i > s_n\} + U_n}{n}

    where the :math:`m` calibration scores come first, ties are broken by a random tag of each score, and :math:`U_n` is
    uniform. If all :math:`s_i` are exchangeable, every order of the first :math:`n` is equally likely, so that the rank
    of the last is uniform on :math:`1 … n` whatever the order of those before it: the :math:`p_n` are uniform and
    independent, for ever. P-values against a fixed set are not: they share it, and what is wrong with it.

    This would need the whole stream. So the first ``KEPT`` scores cut the line into cells, and a later one is only
    counted in its cell. A new score can take :math:`n` places in the order of those before, all equally likely; a cell
    with :math:`c_k` counted scores has :math:`g_k = 1 + c_k` of the places. So cell :math:`k` has probability
    :math:`g_k / n`, given all that came before, and

    .. math:: p_n = \Big(\sum_{j > k} g_j + U_n\, g_k\Big) \Big/ n

    is again uniform and independent of the past, exactly; what is lost is where in its cell a score lies. Cells between
    quantiles of the calibration scores that were counted as members, and not as borders, would not have this: they
    hold equally many calibration scores by construction, and not equally many new ones.

    Args:
        calibration: the calibration scores, in any order. Of more than ``KEPT``, evenly spaced ranks are kept.
        seed: of tags and :math:`U_n`, which belong to a score by its number, so that nothing else need be remembered.
    """

    def __init__(self, calibration: Floats, seed: int) -> None:
        self.seed = seed
        self.seen = 0
        self.kept: list[float] = []
        scores = np.sort(rounded(calibration))
        m = len(scores)
        tags = uniforms(generator(seed, CALIBRATION), m)[:, 0]
        order = np.lexsort((tags, scores))
        places = np.arange(m) if m <= KEPT else ((np.arange(KEPT) + 1) * (m + 1) // (KEPT + 1)) - 1
        self._borders = list(zip(scores[order][places].tolist(), tags[order][places].tolist(), strict=True))
        self.places = np.diff(places, prepend=-1, append=m)
        self.total = m + 1
        self._generator = generator(seed, STREAM)

    def add(self, scores: Floats) -> Floats:
        """Take scores in, in their order, and give the p-value of each; small = higher than what came before."""
        draws = uniforms(self._generator, len(scores)).tolist()
        found = np.empty(len(scores))
        for i, (score, (tag, u)) in enumerate(zip(rounded(scores).tolist(), draws, strict=True)):
            found[i] = self._add(score, tag, u)
        return found

    def _add(self, score: float, tag: float, u: float) -> float:
        borders, places = self._borders, self.places
        k = bisect_left(borders, (score, tag))
        p = float(places[k + 1 :].sum() + u * places[k]) / self.total

        if len(borders) < KEPT:
            borders.insert(k, (score, tag))
            self.places = np.ones(len(borders) + 1, dtype=np.int64)
            self.kept.append(score)
        else:
            places[k] += 1
        self.total += 1
        self.seen += 1
        return min(p, 1 - 2**-53)

    def restore(self, seen: int, kept: list[float], places: Floats) -> None:
        """Go on from what an earlier one had: after construction, before any score."""
        tags = uniforms(self._generator, len(kept))[:, 0].tolist()
        self._generator = generator(self.seed, STREAM, seen)
        self._borders = sorted([*self._borders, *zip(kept, tags, strict=True)])
        self.places = places
        self.total += seen
        self.seen, self.kept = seen, kept


def rounded(scores: Floats) -> Floats:
    """Scores to ``BITS`` binary digits: a fixed function, so that what was exchangeable stays so.

    Example:
        >>> rounded(np.array([1.0, 1.0 + 1e-8, 1.001])).tolist()
        [1.0, 1.0, 1.0009994506835938]
    """
    mantissa, exponent = np.frexp(np.clip(np.asarray(scores, dtype=np.float64), -1e300, 1e300))
    found: Floats = np.ldexp(np.rint(np.ldexp(mantissa, BITS)), exponent - BITS)
    return found


def uniforms(generator: np.random.Philox, count: int) -> Floats:
    """Two uniform numbers, within (0, 1), for each of the next samples, (count, 2)."""
    raw = generator.random_raw(4 * count).reshape(count, 4)[:, :2]  # one step of its counter gives four
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def generator(seed: int, purpose: int, first: int = 0) -> np.random.Philox:
    """From sample number ``first`` on."""
    return np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64), counter=first)
