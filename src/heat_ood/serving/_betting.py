"""Betting against uniform p-values: what is won is evidence that they are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri

__all__ = ["BETTORS", "Bets", "Onset", "log_bets", "waiting"]

Floats = np.ndarray[Any, Any]

SHIFTS = (2.0, 1.0, 0.5, 0.25, 0.125)
"""By how many spreads the scores are bet to have moved; each half of the one before."""
SPREADS = (2.0, 0.5)
"""By which factor the spread is bet to have changed."""
SHARES = (0.2, 0.02)
"""Which share of the samples is bet to be far out."""
POWER = 0.25
"""The p-values of those far out are bet to have the density ``POWER * p ** (POWER - 1)``."""
PATIENCE = 100
"""Two fifths of the money bet that a change comes within so many samples, a half within 1.7 times as many."""

UP, DOWN, WIDTH, FEW = len(SHIFTS), len(SHIFTS), len(SPREADS), len(SHARES)
BETTORS = UP + DOWN + WIDTH + FEW
_WEIGHTS = np.repeat(np.array([1 / 2, 1 / 8, 1 / 8, 1 / 4]) / (UP, DOWN, WIDTH, FEW), (UP, DOWN, WIDTH, FEW))
"""Half of the money bets that scores rise, a quarter that some are far out, and a quarter on all else."""
_FROM = np.delete(np.arange(UP + DOWN), [UP - 1, UP + DOWN - 1])
"""The bettors on a shift that has a half, which is the next one."""


_LINEAR = np.array([*SHIFTS, *(-shift for shift in SHIFTS), *(0 for _ in SPREADS)])
_SQUARE = np.array([0] * (UP + DOWN) + [(1 - spread**-2) / 2 for spread in SPREADS])
_CONSTANT = np.array([-(shift**2) / 2 for shift in SHIFTS] * 2 + [-math.log(spread) for spread in SPREADS])
_SHARES = np.array(SHARES)


def log_bets(p: Floats) -> Floats:
    r"""The logarithm of what each bettor has for one unit of money, (…, BETTORS).

    Each bets by a density :math:`f` on (0, 1), so that under uniform p-values the expectation is 1. With
    :math:`z = Φ^{-1}(1 - p)`, the normal score:

    .. math::
        f(p) = \exp(δ z - δ^2 / 2), \quad
        f(p) = \exp\big(\tfrac{1}{2} z^2 (1 - σ^{-2})\big) / σ, \quad
        f(p) = 1 - ε + ε κ p^{κ - 1}

    The first is the likelihood ratio of a normal score that moved by δ, up or down; the second, of one whose spread is
    σ times as large; the third bets that a share ε of the samples is far out.
    """
    z = -ndtri(p)[..., None]
    few = np.log1p(_SHARES * (POWER * p[..., None] ** (POWER - 1) - 1))
    return np.concatenate([_LINEAR * z + _SQUARE * z**2 + _CONSTANT, few], axis=-1)


def waiting(n: int) -> float:
    """The share of the money that has not been bet after ``n`` samples: the whole of it enters, in the end."""
    return 1 / (1 + math.log1p(n / PATIENCE))


class Bets:
    r"""Money that waits, enters the game little by little, and is bet; how much there is, is the evidence.

    The change may begin at any time :math:`τ`, so the money is divided among bettors on each: those on :math:`τ` hold
    :math:`π(τ) = S(τ) - S(τ + 1)`, with :math:`S(n) = 1 / (1 + \ln(1 + n / 100))`, wait so long, and then bet on
    every sample. Those who bet alike share one purse, so this takes one step a sample,

    .. math:: A_θ ← (A_θ + w_θ\, π(n - 1))\, f_θ(p_n), \qquad E_n = \sum_θ A_θ + S(n)

    A change soon becomes part of what new scores are ranked among: after as many samples as there were before, its
    effect is half as large. So a share :math:`1 / r` of the purse on a shift goes to the one on half of it, with
    :math:`r` scores to rank among: what was bet on a shift when there were :math:`r_0` is there still with probability
    :math:`r_0 / r`.

    Money only changes hands, and every bet is fair: :math:`E_n` is a martingale, not negative, and begins at 1. So by
    Ville's inequality :math:`P(\sup_n E_n \ge c) \le 1 / c`.

    Args:
        shape: of how many streams at once; a single one by default.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.shares: Floats = np.zeros((*shape, BETTORS))
        self.log_total: Floats = np.zeros(shape)
        self.samples = 0

    def add(self, log_bets: Floats, first: int) -> Floats:
        """Bet on samples, (n, …, BETTORS), the first of them ranked as one of ``first``; the log evidence, (n, …).

        Each purse is kept as its share of all that is bet, and that as a logarithm: evidence knows no bounds.
        """
        bets, to = np.exp(log_bets), _FROM + 1
        evidence = np.empty(log_bets.shape[:-1])
        shares, log_total = self.shares, self.log_total
        left = waiting(self.samples)
        for i in range(len(bets)):
            before, left = left, waiting(self.samples + 1)
            entering = before * left * math.log1p(1 / (PATIENCE + self.samples))
            shares = shares + np.exp(-log_total)[..., None] * (entering * _WEIGHTS)
            moved = shares[..., _FROM] / (first + i)
            shares[..., _FROM] -= moved
            shares[..., to] += moved
            shares *= bets[i]
            total = shares.sum(-1)
            shares /= total[..., None]
            log_total = log_total + np.log(total)
            evidence[i] = np.logaddexp(log_total, math.log(left))
            self.samples += 1
        self.shares, self.log_total = shares, np.asarray(log_total)
        return evidence


class Onset:
    r"""Since when the evidence grows: the start and the bet with the largest likelihood ratio.

    .. math:: \arg\max_{τ, θ} \sum_{i > τ} \log f_θ(p_i)

    For each bet this is the last time at which its running sum was at its lowest, which takes one step a sample.
    """

    def __init__(self) -> None:
        self.rise: Floats = np.zeros(BETTORS)
        self.start: Floats = np.ones(BETTORS, dtype=np.int64)
        self.samples = 0

    def add(self, log_bets: Floats) -> Floats:
        """Take samples in, (n, BETTORS); after each, the number of the sample (from 1) with which the change began."""
        found = np.empty(len(log_bets), dtype=np.int64)
        for i, bets in enumerate(log_bets):
            self.samples += 1
            lowest = self.rise <= 0
            self.start[lowest] = self.samples
            self.rise = np.where(lowest, 0.0, self.rise) + bets
            found[i] = self.start[self.rise.argmax()]
        return found
