"""Conformal calibration: the formula by counting, the guarantee by drawing."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from heat_ood.energies import Calibration, FreeEnergy, GaussianMixture, MaximumSoftmax, _calibration
from heat_ood.errors import InputError, NotFittedError
from heat_ood.features import Features, merge_shards, shard_name


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_counting(calibration: Tensor, scores: Tensor) -> Tensor:
    at_least = (calibration[None, :] >= scores[:, None]).sum(1)
    return (1 + at_least).double() / (len(calibration) + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 100])
@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_p_values_by_counting_ties_included(n: int, levels: int, dtype: torch.dtype) -> None:
    calibration = torch.randint(levels, (n,), generator=seeded(n)).to(dtype)
    scores = torch.cat([torch.arange(-1, levels + 1).to(dtype), torch.arange(levels).to(dtype) + 0.5])
    p = Calibration(calibration).p_value(scores)
    assert p.dtype == torch.float64
    assert torch.equal(p, by_counting(calibration, scores))
    assert (p > 0).all()
    assert (p <= 1).all()


@pytest.mark.parametrize("levels", [2, 1000])
def test_per_class_p_values_by_counting(levels: int) -> None:
    g = seeded()
    calibration, groups = torch.randint(levels, (60,), generator=g).float(), torch.randint(4, (60,), generator=g)
    groups[:4] = torch.arange(4)
    scores, classes = torch.randint(levels, (80,), generator=g).float(), torch.randint(4, (80,), generator=g)
    p = Calibration(calibration, groups, 4).p_value(scores, classes)
    for c in range(4):
        assert torch.equal(p[classes == c], by_counting(calibration[groups == c], scores[classes == c]))


def test_infinite_scores_rank_at_the_ends() -> None:
    calibration = Calibration(torch.tensor([1.0, 2.0, 3.0]))
    assert calibration.p_value(torch.tensor([math.inf, -math.inf])).tolist() == [0.25, 1.0]
    assert calibration.p_value(torch.empty(0)).shape == (0,)


# The guarantee


@pytest.mark.parametrize(("n", "fpr"), [(19, 0.05), (37, 0.1), (99, 0.33)])
@pytest.mark.parametrize("levels", [None, 3])
def test_false_alarms_are_at_most_what_was_asked_for(n: int, fpr: float, levels: int | None) -> None:
    """Over 2,500 splits of exchangeable scores; with heavy ties it can only be fewer."""
    splits, rng = 2500, np.random.default_rng(n)
    scores = rng.standard_normal((splits, n + 1)) if levels is None else rng.integers(levels, size=(splits, n + 1))
    scores = torch.from_numpy(scores).double()
    alarms = [bool(Calibration(s[:n]).p_value(s[n:]) <= fpr) for s in scores]
    rate, expected = float(np.mean(alarms)), math.floor(fpr * (n + 1)) / (n + 1)
    error = math.sqrt(fpr * (1 - fpr) / splits)
    assert rate <= fpr + 3 * error
    if levels is None:
        assert abs(rate - expected) <= 4 * error, "and no fewer than it must be"


@pytest.mark.parametrize("levels", [None, 4])
def test_false_alarms_hold_for_each_predicted_class(levels: int | None) -> None:
    """One class scores higher than the other: ranked together, all alarms would be false ones of that class."""
    splits, n, fpr, rng = 2000, 60, 0.1, np.random.default_rng(0)
    alarms, marginal = [[], []], [[], []]
    for _ in range(splits):
        groups = rng.permutation(np.arange(n + 20) % 4 == 0).astype(int)
        scores = rng.standard_normal(n + 20) if levels is None else rng.integers(levels, size=n + 20).astype(float)
        scores, groups = torch.from_numpy(scores + 5.0 * groups), torch.from_numpy(groups)
        own = Calibration(scores[:n], groups[:n], 2).p_value(scores[n:], groups[n:]) <= fpr
        together = Calibration(scores[:n]).p_value(scores[n:]) <= fpr
        for c in range(2):
            alarms[c] += own[groups[n:] == c].tolist()
            marginal[c] += together[groups[n:] == c].tolist()
    for c in range(2):
        assert np.mean(alarms[c]) <= fpr + 3 * math.sqrt(fpr * (1 - fpr) / splits)
    assert np.mean(marginal[1]) > 2 * fpr, "which the marginal calibration does not promise"


# On an energy


def logits(n: int, seed: int = 0, classes: int = 3) -> Features:
    return Features(logits=torch.randn(n, classes, generator=seeded(seed)).round(decimals=1))


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("fpr", [0.05, 0.1, 0.25, 1 / 3, 0.5, 0.999])
def test_predict_is_exactly_p_value_at_most_fpr(fpr: float, per_class: bool) -> None:
    detector = MaximumSoftmax().fit(logits(10)).calibrate(logits(119), per_class)
    test = logits(500, seed=1)
    p, predicted = detector.p_value(test), detector.predict(test, fpr)
    assert predicted.dtype == torch.bool
    assert torch.equal(predicted, p <= fpr)
    if not per_class:
        assert detector.calibration is not None
        assert torch.equal(p, by_counting(detector.calibration.limits, detector.score(test)))
        assert (p >= by_counting(detector.score(logits(119)), detector.score(test))).all()
        assert torch.equal(p, detector.p_values_of(detector.score(test)))


@pytest.mark.parametrize("n", range(1, 60))
def test_the_finest_false_alarm_rate_is_reached(n: int) -> None:
    calibration = Calibration(torch.arange(float(n)))
    calibration.check(1 / (n + 1))
    assert (calibration.p_value(torch.tensor([n + 1.0])) <= 1 / (n + 1)).all()


@pytest.mark.parametrize("fpr", [1e-16, 1e-308, 5e-324])
def test_a_rate_whose_inverse_is_no_number_is_refused_as_any_other(fpr: float) -> None:
    with pytest.raises(InputError, match=r"needs at least 999,999,999,999,999 calibration samples; there are 1 in all"):
        Calibration(torch.zeros(1)).check(fpr)


@pytest.mark.parametrize("fpr", [*(1 / k for k in range(3, 120)), 0.07, 0.015, 1e-6, math.nextafter(0.5, 0)])
def test_too_fine_a_rate_says_how_many_samples_it_takes(fpr: float) -> None:
    needed = next(n for n in range(math.ceil(1 / fpr) - 3, math.ceil(1 / fpr) + 3) if n >= 0 and fpr >= 1 / (n + 1))
    with pytest.raises(InputError, match=r"needs at least ([\d,]+) calibration samples; there are 1 in all") as error:
        Calibration(torch.zeros(1)).check(fpr)
    assert int(re.search(r"at least ([\d,]+)", str(error.value))[1].replace(",", "")) == needed > 1


@pytest.mark.parametrize("fpr", [1 / 2, math.nextafter(0.5, 1), 0.999])
def test_one_sample_will_do_for_a_half_and_more(fpr: float) -> None:
    calibration = Calibration(torch.zeros(1))
    calibration.check(fpr)
    assert (calibration.p_value(torch.tensor([1.0, 0.0])) <= fpr).tolist() == [True, False]


def test_the_smallest_class_counts() -> None:
    calibration = Calibration(torch.zeros(30), torch.tensor([0] * 25 + [1] * 5), 2)
    calibration.check(1 / 6)
    with pytest.raises(InputError, match=r"19 .* there are 5 in the smallest predicted class.* fpr.* at least 1/6"):
        calibration.check(0.05)


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_rate_is_between_zero_and_one(fpr: float) -> None:
    detector = MaximumSoftmax().fit(logits(10)).calibrate(logits(99))
    with pytest.raises(InputError, match="between 0 and 1"):
        detector.predict(logits(5), fpr)


def test_no_decision_before_calibration() -> None:
    detector = MaximumSoftmax().fit(logits(10))
    assert not detector.calibrated
    for call in (detector.predict, detector.p_value):
        with pytest.raises(NotFittedError, match=r"has not been calibrated\. Call \.calibrate\(held_out\)"):
            call(logits(5))


def test_an_empty_set_does_not_calibrate() -> None:
    with pytest.raises(InputError, match="at least one sample"):
        MaximumSoftmax().calibrate(logits(10)[:0])
    with pytest.raises(InputError, match="at least one score"):
        Calibration(torch.empty(0))


@pytest.mark.parametrize("per_class", [False, True])
def test_an_empty_test_set_has_no_p_values(per_class: bool) -> None:
    detector = MaximumSoftmax().calibrate(logits(99), per_class)
    assert detector.p_value(logits(10)[:0]).shape == (0,)
    assert detector.predict(logits(10)[:0], 0.5).shape == (0,)


def test_every_class_must_be_predicted() -> None:
    held = logits(50)
    held.logits[:, 1] = -9
    with pytest.raises(InputError, match=r"No calibration sample is predicted as class 1\. .* per_class=False"):
        MaximumSoftmax().calibrate(held, per_class=True)


def test_per_class_needs_logits() -> None:
    from heat_ood.energies import GaussianMixture

    features = Features(avg=torch.randn(50, 3, generator=seeded()))
    gmm = GaussianMixture().fit(features)
    with pytest.raises(InputError, match="predicted class needs logits"):
        gmm.calibrate(features, per_class=True)
    both = Features(avg=features.avg, logits=torch.eye(2).repeat(25, 1))
    gmm.calibrate(both, per_class=True)
    with pytest.raises(InputError, match="predicted class needs logits"):
        gmm.p_value(features)
    with pytest.raises(InputError, match="calibrated per predicted class"):
        gmm.p_values_of(gmm.score(features))


def test_a_class_that_was_not_there_is_refused() -> None:
    detector = FreeEnergy().fit(logits(9)).calibrate(logits(99), per_class=True)
    with pytest.raises(InputError, match="Class 4 is predicted, but the detector is calibrated for 3 classes"):
        detector.p_value(Features(logits=torch.eye(5)))


def test_calibrating_again_replaces() -> None:
    detector = MaximumSoftmax().calibrate(logits(99), per_class=True).calibrate(logits(20))
    assert not detector.calibration.per_class
    assert len(detector.calibration.scores) == 20


def test_of_a_large_store_of_shards_a_sample_calibrates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    for number, rows in enumerate(z.split(90)):
        Features(avg=rows).save(tmp_path / shard_name(number))
    store, whole = merge_shards(tmp_path), Features(avg=z)
    detector = GaussianMixture().fit(Features(avg=torch.randn(200, 5, generator=torch.Generator().manual_seed(1))))
    all_scores = detector.calibrate(store).calibration.scores
    assert len(all_scores) == 300
    monkeypatch.setattr(_calibration, "MOST", 80)
    some = detector.calibrate(store).calibration.scores
    assert len(some) == 80
    # Other batches may round otherwise
    assert (some[:, None] - all_scores).abs().min(1).values.max() < 1e-5
    assert torch.equal(detector.calibrate(merge_shards(tmp_path)).calibration.scores, some)  # always the same
    rows = _calibration.bounded(store)._rows
    assert len(torch.unique(rows)) == 80
    assert int(rows.max()) > 240 > 60 > int(rows.min())  # of all shards
    assert len(detector.calibrate(whole).calibration.scores) == 300  # what is no store of shards is taken whole
    monkeypatch.setattr(_calibration, "MOST", 299)
    assert len(torch.unique(_calibration.bounded(store)._rows)) == 299
