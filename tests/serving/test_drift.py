"""The watch on a stream: exact ranks, fair bets, Ville's bound, and a state that survives."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from heat_ood import InputError
from heat_ood.serving import Drift, _betting, _ranks
from heat_ood.serving._betting import BETTORS, Bets, Onset, log_bets, waiting
from heat_ood.serving._ranks import Ranks, rounded

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import drift as simulated

SIZES = (50, 200, 2000)


def normal(size: int | tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=size)


# Ranks


@pytest.mark.parametrize("calibration", [1, 2, 4])
@pytest.mark.parametrize("values", [(0, 1, 2, 3, 4, 5), (0, 1, 1, 1, 2, 2), (7, 7, 7, 7, 7, 7)])
def test_p_values_are_exactly_uniform_and_independent(
    monkeypatch: pytest.MonkeyPatch, calibration: int, values: tuple[int, ...]
) -> None:
    """The joint density, over all orders of scores and tags, is one everywhere; three scores are kept of six."""
    monkeypatch.setattr(_ranks, "KEPT", 3)
    order = [(value, (i + 0.5) / 6) for i, value in enumerate(values)]
    points = np.random.default_rng(0).uniform(size=(40, 6 - calibration))
    density = np.zeros(len(points))
    for tried in itertools.permutations(order):
        first, stream = tried[:calibration], tried[calibration:]
        sides = []
        for u in (0.0, 1.0):
            tags = np.array(sorted(first))[:, 1:]
            monkeypatch.setattr(_ranks, "uniforms", lambda generator, count, tags=tags: tags)
            ranks = Ranks(np.array([score for score, _ in first], dtype=float), 0)
            sides.append([ranks._add(score, tag, u) for score, tag in stream])
        low, high = np.array(sides)
        density += ((points > low) & (points <= high)).all(1) / (high - low).prod()
    np.testing.assert_allclose(density / math.factorial(6), 1, rtol=1e-9)


def test_cells_that_count_calibration_as_members_would_not_be_uniform() -> None:
    """Borders at the calibration scores, each counted in the cell below it: the first p-value is small too often."""
    calibration, new = np.sort(normal((20_000, 20)), axis=1), normal((20_000, 1), 1)
    cell = (calibration < new).sum(1)
    u = np.random.default_rng(2).uniform(size=20_000)
    assert stats.kstest((np.maximum(19 - cell, 0) + u * (1 + (cell < 20))) / 21, "uniform").pvalue < 1e-6
    ours = [Ranks(calibration[i], i).add(new[i]) for i in range(1500)]
    assert stats.kstest(np.concatenate(ours), "uniform").pvalue > 1e-3


def test_until_scores_are_only_counted_it_is_the_formula() -> None:
    calibration, stream = np.round(normal(40), 1), np.round(normal(300, 1), 1)
    found = Ranks(calibration, 3).add(stream)
    known = list(calibration)
    for score, p in zip(stream, found, strict=True):
        above = sum(other > score for other in known)
        equal = 1 + sum(other == score for other in known)
        assert above / (len(known) + 1) < p < (above + equal) / (len(known) + 1)
        known.append(score)


def test_later_the_place_within_a_cell_is_all_that_is_lost() -> None:
    calibration, stream = normal(200), normal(6000, 1)
    found = Ranks(calibration, 0).add(stream)
    known = np.concatenate([calibration, stream])
    exact = [(known[: 200 + i] > score).sum() / (201 + i) for i, score in enumerate(stream)]
    assert np.abs(found - exact).max() < 0.01
    assert np.abs(found - exact).mean() < 0.001


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", simulated.KINDS)
def test_a_long_stream_is_uniform_and_independent(size: int, kind: str) -> None:
    rng = np.random.default_rng(size)
    draw = simulated.KINDS[kind]
    p = Ranks(draw(rng, (1, size))[0], 0).add(draw(rng, (1, 8000))[0])
    assert stats.kstest(p, "uniform").pvalue > 1e-3
    for lag in (1, 2, 10):
        assert abs(stats.spearmanr(p[:-lag], p[lag:]).statistic) < 4 / math.sqrt(8000)


@pytest.mark.parametrize("size", [1, 50, 1024, 1025, 2000])
@pytest.mark.parametrize("step", [None, 0.5])
def test_simulated_ranks_are_those_of_the_class(size: int, step: float | None) -> None:
    calibration, stream = normal(size), normal(2500, 1)
    if step is not None:
        calibration, stream = (np.round(values / step) * step for values in (calibration, stream))
    assert (simulated.ranks(calibration, stream, 7) == Ranks(calibration, 7).add(stream)).all()


def test_last_digits_do_not_make_an_order_among_equals() -> None:
    calibration, stream = np.round(8 * normal(100)) / 8, np.round(8 * normal(2000, 1)) / 8
    noisy = stream * (1 + 1e-7 * np.abs(normal(2000, 2)))
    assert (noisy != stream).mean() > 0.8
    assert (Ranks(calibration, 0).add(stream) == Ranks(calibration, 0).add(noisy)).all()


def test_any_finite_score_can_be_ranked() -> None:
    largest = np.finfo(float).max
    scores = np.array([-largest, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.001, largest])
    assert np.isfinite(rounded(scores)).all()
    assert (np.diff(rounded(scores)) >= 0).all()


# Bets


@pytest.mark.parametrize("bettor", range(BETTORS))
def test_every_bet_is_fair(bettor: int) -> None:
    z = np.linspace(-8, 20, 20_001)  # below -8, p is 1
    total = integrate.trapezoid(np.exp(log_bets(stats.norm.sf(z))[:, bettor]) * stats.norm.pdf(z), z)
    assert total == pytest.approx(1, abs=1e-4)


def test_bets_are_the_densities_that_they_say() -> None:
    p = np.array([1e-6, 0.01, 0.3, 0.9])
    z, found = stats.norm.isf(p), np.exp(log_bets(p))
    np.testing.assert_allclose(found[:, 1], stats.norm.pdf(z, 1) / stats.norm.pdf(z))
    np.testing.assert_allclose(found[:, 7], stats.norm.pdf(z, -0.5) / stats.norm.pdf(z))
    np.testing.assert_allclose(found[:, 10], stats.norm.pdf(z, 0, 2) / stats.norm.pdf(z))
    np.testing.assert_allclose(found[:, 12], 0.8 + 0.2 * stats.beta(_betting.POWER, 1).pdf(p))


def slow_evidence(p: np.ndarray[Any, Any], first: int) -> float:
    """Each start by itself, in plain numbers: the money of those who start then, moved by a matrix and bet."""
    shifts = [*_betting.SHIFTS, *(-shift for shift in _betting.SHIFTS)]
    weights = np.array([0.1] * 5 + [0.025] * 5 + [0.0625] * 2 + [0.125] * 2)
    total = 1 / (1 + math.log(1 + len(p) / 100))
    for start in range(len(p)):
        money = weights * (1 / (1 + math.log(1 + start / 100)) - 1 / (1 + math.log(1 + (start + 1) / 100)))
        for i in range(start, len(p)):
            moving = np.eye(BETTORS)
            for k, shift in enumerate(shifts):
                if shift / 2 in shifts:
                    share = 1 / (first + i)
                    moving[k, k] = 1 - share
                    moving[shifts.index(shift / 2), k] = share
            money = np.exp(log_bets(p[i])) * (moving @ money)
        total += money.sum()
    return total


@pytest.mark.parametrize("kind", ["uniform", "low", "high"])
def test_the_evidence_is_that_of_all_starts_together(kind: str) -> None:
    p = np.random.default_rng(4).uniform(size=60)
    p = {"uniform": p, "low": p**3, "high": 1 - p**2}[kind]
    found = Bets().add(log_bets(p), 51)
    for n in (1, 2, 30, 60):
        assert np.exp(found[n - 1]) == pytest.approx(slow_evidence(p[:n], 51), rel=1e-9)


def test_the_evidence_is_a_martingale() -> None:
    """Over all p-values that may come next, the mean of the evidence is the evidence."""
    nodes = np.linspace(-8, 16, 4001)
    p = np.random.default_rng(0).uniform(size=40) ** 2
    before = Bets()
    now = before.add(log_bets(p), 51)[-1]
    after = Bets((len(nodes),))
    after.shares, after.samples = np.tile(before.shares, (len(nodes), 1)), 40
    after.log_total = np.tile(before.log_total, len(nodes))
    following = after.add(log_bets(stats.norm.sf(nodes))[None], 91)[0]
    assert np.exp(now) != pytest.approx(1, abs=0.1)
    mean = integrate.trapezoid(np.exp(following) * stats.norm.pdf(nodes), nodes)
    assert mean == pytest.approx(np.exp(now), rel=1e-4)


def test_all_money_enters_once_and_no_more() -> None:
    assert waiting(0) == 1
    bets = Bets()
    bets.add(np.zeros((1000, BETTORS)), 51)
    assert np.exp(bets.log_total) + waiting(1000) == pytest.approx(1, rel=1e-12)
    assert bets.shares.sum() == pytest.approx(1, rel=1e-12)


def test_the_onset_is_the_best_start_of_the_best_bet() -> None:
    bets = log_bets(np.concatenate([np.random.default_rng(0).uniform(size=150), np.full(30, 0.02)]))
    found = Onset().add(bets)
    for n in (1, 40, 150, 165, 180):
        sums = np.stack([bets[start:n].sum(0) for start in range(n)])
        assert found[n - 1] == np.unravel_index(sums.argmax(), sums.shape)[0] + 1
    assert abs(found[-1] - 151) <= 3


# The bound, and what breaks it


def test_ville_holds_and_fails_for_p_values_that_share_one_set() -> None:
    streams, length = 150, 3000
    calibration, stream = normal((streams, 50)), normal((streams, length), 1)
    assert np.isfinite(simulated.alarms(calibration, stream)).sum() <= stats.binom.ppf(0.9999, streams, 0.01)
    naive = simulated.alarms(calibration, stream, simulated.against_calibration_alone)
    assert np.isfinite(naive).mean() > 0.3


@pytest.mark.parametrize("size", SIZES)
def test_a_shift_of_one_spread_is_found_in_time(size: int) -> None:
    stream = normal((60, 1300), size)
    stream[:, 1000:] += 1
    found = simulated.alarms(normal((60, size), 1), stream)
    assert ((found > 1000) & (found <= 1300)).mean() >= 0.95


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x + 1.5,
        lambda x: x - 1.5,
        lambda x: 3 * x,
        lambda x: x / 5,
        lambda x: np.full_like(x, 0.3),
        lambda x: np.where(np.arange(len(x)) % 8 == 0, 8.0, x),
    ],
    ids=["up", "down", "wider", "narrower", "constant", "one in eight far out"],
)
def test_whatever_changes_is_found_and_dated(change: Any) -> None:
    drift = Drift(normal(200))
    drift.update(normal(1000, 1))
    assert not drift.report()["alarm"]
    drift.update(change(normal(600, 2)))
    report = drift.report()
    assert report["alarm"]
    assert 1000 < report["alarm_after_samples"] <= 1400
    assert abs(report["likely_start"] - 1001) < 60


def test_what_was_never_like_calibration_is_found_too() -> None:
    drift = Drift(normal(200))
    drift.update(normal(300, 1) + 1)
    assert drift.report()["alarm_after_samples"] < 100
    assert drift.report()["likely_start"] < 20


@pytest.mark.parametrize("calibration", [np.full(50, 2.0), np.array([2.0]), np.arange(4000) % 3])
def test_ties_alone_are_no_evidence(calibration: np.ndarray[Any, Any]) -> None:
    drift = Drift(calibration)
    drift.update(np.random.default_rng(0).permutation(np.resize(calibration, 3000)))
    assert drift.report()["largest_log10_evidence"] < 1


# What it says


def test_a_fresh_one_says_nothing() -> None:
    report = Drift(normal(20)).report()
    assert report.pop("started") > 1e9
    assert report == {
        **{"samples": 0, "evidence": 1.0, "log10_evidence": 0.0, "largest_log10_evidence": 0.0, "alarm": False},
        **{"alarm_at": 100.0, "alarm_since": None, "alarm_after_samples": None, "likely_start": None},
        **{"calibration_samples": 20, "p_values": []},
    }


def test_the_alarm_stays_until_it_is_reset() -> None:
    drift = Drift(normal(50))
    drift.update(normal(200, 1) + 3)
    on = drift.report()
    assert on["alarm"]
    drift.update(normal(20_000, 2) + 3)
    later = drift.report()
    assert later["evidence"] < 1 < later["largest_log10_evidence"], "the change is part of the stream by now"
    assert {key: later[key] for key in on if "alarm" in key} == {key: on[key] for key in on if "alarm" in key}
    drift.reset()
    again = drift.report()
    assert (again["samples"], again["alarm"], again["likely_start"], again["evidence"]) == (0, False, None, 1.0)


def test_evidence_beyond_all_numbers_is_still_json() -> None:
    drift = Drift(normal(2000))
    drift.update(normal(3000, 1))
    drift.update(normal(3000, 2) + 6)
    report = drift.report()
    assert report["log10_evidence"] > 300
    assert json.loads(json.dumps(report, allow_nan=False))["evidence"] == 1e300
    assert len(report["p_values"]) == 50


@pytest.mark.parametrize("scores", [[1.0, math.nan], [math.inf], [[1.0]], ["1"], 3.0, [None], [True]])
def test_what_is_no_score_is_refused_and_changes_nothing(scores: Any) -> None:
    drift, same = Drift(normal(20)), Drift(normal(20))
    with pytest.raises(InputError, match=r"Leave them out|list of numbers"):
        drift.update(scores)
    with pytest.raises(InputError, match=r"Leave them out|list of numbers"):
        Drift(scores)
    drift.update([])
    drift.update(normal(5, 1))
    same.update(normal(5, 1))
    assert drift.report()["p_values"] == same.report()["p_values"]


def test_settings_that_cannot_be_meant() -> None:
    with pytest.raises(InputError, match="at least one calibration score"):
        Drift([])
    for seed in (-1, 2**64, 1.5, True):
        with pytest.raises(InputError, match="seed"):
            Drift([1.0], seed=seed)  # type: ignore[arg-type]
    assert Drift([1.0], seed=2**64 - 1).seed == 2**64 - 1
