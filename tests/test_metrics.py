"""The metrics against scikit-learn, against brute force, and by hand."""

import gc
import math
import sys
from collections import Counter
from dataclasses import astuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from heat_ood import metrics
from heat_ood.errors import InputError
from heat_ood.metrics import METRICS, Metrics, bootstrap, percentile_intervals, replicates, summary

few = st.lists(st.integers(-3, 3), min_size=1, max_size=45)  # many ties
wide = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=45)
vectors = few | wide


def by_sklearn(s, t):
    scores = np.concatenate([s, t]).astype(float)
    is_ood = np.r_[np.zeros(len(s)), np.ones(len(t))]
    ood_caught = roc_curve(is_ood, scores, drop_intermediate=False)
    id_accepted = roc_curve(1 - is_ood, -scores, drop_intermediate=False)
    return Metrics(
        auroc=roc_auc_score(is_ood, scores),
        aupr_in=average_precision_score(1 - is_ood, -scores),
        aupr_out=average_precision_score(is_ood, scores),
        fpr_at_95_id=id_accepted[0][id_accepted[1] >= 0.95][0],
        fpr_at_95_ood=ood_caught[0][ood_caught[1] >= 0.95][0],
    )


def by_brute_force(s, t):
    """As the definitions read: every pair, every threshold."""
    s, t = np.asarray(s, float), np.asarray(t, float)
    thresholds = sorted(set(s) | set(t))
    accept = min(c for c in thresholds if 20 * (s <= c).sum() >= 19 * len(s))
    catch = max(c for c in thresholds if 20 * (t >= c).sum() >= 19 * len(t))
    return Metrics(
        auroc=np.mean([(b > a) + (b == a) / 2 for a in s for b in t]),
        aupr_in=np.mean([(s <= a).sum() / ((s <= a).sum() + (t <= a).sum()) for a in s]),
        aupr_out=np.mean([(t >= b).sum() / ((s >= b).sum() + (t >= b).sum()) for b in t]),
        fpr_at_95_id=(t <= accept).mean(),
        fpr_at_95_ood=(s >= catch).mean(),
    )


def close(one, other, tolerance=1e-12):
    np.testing.assert_allclose(astuple(one), astuple(other), rtol=0, atol=tolerance)


@given(vectors, vectors)
@settings(max_examples=300, deadline=None)
def test_equals_scikit_learn_and_brute_force(s, t):
    close(summary(s, t), by_sklearn(s, t))
    close(summary(s, t), by_brute_force(s, t))


@pytest.mark.parametrize("sizes", [(1000, 700), (19, 20), (20, 19), (21, 39), (100, 1), (1, 100)])
@pytest.mark.parametrize("decimals", [0, 1, 16])
def test_equals_scikit_learn_on_gaussians(sizes, decimals):
    rng = np.random.default_rng(sizes[0])
    s, t = rng.normal(size=sizes[0]).round(decimals), rng.normal(1, 2, size=sizes[1]).round(decimals)
    close(summary(s, t), by_sklearn(s, t))


def test_by_hand_with_ties():
    # ID 0 1 1 2, OOD 1 2 3. Pairs in the right order: 1→1+2·½, 2→3+½, 3→4, of 12.
    # AUPR-in, lowest first: at 0 1/1, at 1 3/4 (twice), at 2 4/6.
    # AUPR-out, highest first: at 3 1/1, at 2 2/3, at 1 3/6.
    # 95 % of 4 is 4 samples: t = 2, OOD at or below it 2 of 3. 95 % of 3 is 3: t = 1, ID at or above it 3 of 4.
    close(
        summary([0, 1, 1, 2], [1, 2, 3]),
        Metrics(
            auroc=(2 + 3.5 + 4) / 12,
            aupr_in=(1 + 2 * 3 / 4 + 4 / 6) / 4,
            aupr_out=(1 + 2 / 3 + 3 / 6) / 3,
            fpr_at_95_id=2 / 3,
            fpr_at_95_ood=3 / 4,
        ),
    )


@pytest.mark.parametrize(
    ("s", "t", "expected"),
    [
        ([0.0], [1.0], (1, 1, 1, 0, 0)),
        ([1.0], [0.0], (0, 1 / 2, 1 / 2, 1, 1)),
        ([0.0], [-0.0], (1 / 2, 1 / 2, 1 / 2, 1, 1)),
        ([5.0] * 30, [5.0] * 10, (1 / 2, 3 / 4, 1 / 4, 1, 1)),
    ],
    ids=["apart", "reversed", "equal", "all-equal"],
)
def test_smallest_cases(s, t, expected):
    assert astuple(summary(s, t)) == expected


def test_the_share_of_95_percent_is_exact():
    # 19 of 20 is 95 %: one ID outlier may be rejected, of 19 none.
    assert metrics.fpr_at_95_id([0] * 19 + [9], [5]) == 0
    assert metrics.fpr_at_95_id([0] * 18 + [9], [5]) == 1
    assert metrics.fpr_at_95_ood([5], [9] * 19 + [0]) == 0
    assert metrics.fpr_at_95_ood([5], [9] * 18 + [0]) == 1
    for n in range(1, 2000):
        k = metrics.at_least_95(n)
        assert 20 * k >= 19 * n > 20 * (k - 1)


def test_the_two_fpr95_differ_five_fold_on_the_same_scores():
    s = np.r_[np.zeros(90), np.full(10, 5.0)]  # a tenth of ID is odd
    t = np.r_[np.full(60, 4.0), np.full(40, 6.0)]  # OOD lies on both sides of it
    assert metrics.fpr_at_95_id(s, t) == 0.6
    assert metrics.fpr_at_95_ood(s, t) == 0.1


@given(vectors, vectors)
@settings(deadline=None)
def test_swapping_the_roles(s, t):
    forward, back = summary(s, t), summary(t, s)
    assert forward.auroc == pytest.approx(1 - back.auroc, abs=1e-15)
    mirrored = summary(-np.asarray(t), -np.asarray(s))
    close(
        mirrored, Metrics(forward.auroc, forward.aupr_out, forward.aupr_in, forward.fpr_at_95_ood, forward.fpr_at_95_id)
    )


@given(few, few)
@settings(deadline=None)
def test_only_the_order_of_scores_counts(s, t):
    s, t = np.asarray(s, float), np.asarray(t, float)
    for transform in (np.exp, np.arctan, lambda x: 3 * x - 7, lambda x: x**3, lambda x: 1e8 + 1e-6 * x):
        assert summary(transform(s), transform(t)) == summary(s, t)


def test_large_energies_do_not_saturate():
    rng = np.random.default_rng(0)
    s, t = rng.normal(size=400), rng.normal(1, 1, size=300)
    moved = 2.0**-30 * np.round(s * 2**10), 2.0**-30 * np.round(t * 2**10)
    assert summary(1e6 + moved[0], 1e6 + moved[1]) == summary(*moved)
    assert 0.7 < metrics.auroc(1e6 + moved[0], 1e6 + moved[1]) < 0.8


def test_any_kind_of_vector():
    rng = np.random.default_rng(0)
    s, t = rng.integers(0, 9, 50), rng.integers(3, 12, 40)
    expected = summary(s, t)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32):
        assert summary(torch.as_tensor(s).to(dtype), torch.as_tensor(t).to(dtype)) == expected
    assert summary(torch.tensor(s, dtype=torch.float32, requires_grad=True), t.astype(np.float32)) == expected
    assert summary(list(s), tuple(t)) == expected
    assert summary(np.repeat(s, 2)[::2], t[::-1]) == expected


def test_float32_scores_keep_their_ties():
    s = np.float32([1e8, 1e8 + 1])  # equal in float32
    assert metrics.auroc(s, s[:1]) == 0.5


def test_each_metric_by_its_name():
    s, t = [0, 1, 2, 2], [1, 2, 3]
    assert {name: getattr(metrics, name)(s, t) for name in METRICS} == vars(summary(s, t))


@pytest.mark.parametrize("bad", [[], np.zeros((3, 1)), 1.0, [0, np.nan], [np.inf, 0], ["a"], [1j], torch.tensor([1j])])
def test_bad_scores(bad):
    for s, t, name in ((bad, [0.0], "id_scores"), ([0.0], bad, "ood_scores")):
        with pytest.raises(InputError, match=name):
            summary(s, t)
        with pytest.raises(InputError, match=name):
            bootstrap(s, t)


def test_an_error_counts_and_locates():
    with pytest.raises(InputError, match="2 non-finite among 1,000 scores, the first at index 7"):
        summary(np.where(np.isin(np.arange(1000), [7, 9]), np.nan, 0.0), [0.0])


# Bootstrap


@pytest.mark.parametrize("decimals", [0, 16])
def test_a_replicate_is_the_summary_of_its_resample(decimals):
    rng = np.random.default_rng(1)
    s, t = rng.normal(size=90).round(decimals), rng.normal(1, 1, size=70).round(decimals)
    id_generator, ood_generator = np.random.default_rng([5, 0]), np.random.default_rng([5, 1, 3])
    for replicate in replicates(s, t, n=20, seed=5, stream=3):
        resample = s[id_generator.integers(90, size=90)], t[ood_generator.integers(70, size=70)]
        close(Metrics(*replicate), by_sklearn(*resample))


def test_intervals_are_reproducible_and_hold_the_estimate():
    rng = np.random.default_rng(2)
    s, t = rng.normal(size=500), rng.normal(1, 1, size=300)
    intervals = bootstrap(s, t, seed=3)
    assert intervals == bootstrap(torch.as_tensor(s), t, seed=3)
    assert intervals != bootstrap(s, t, seed=4)
    narrow = bootstrap(s, t, level=0.5, seed=3)
    for name, estimate in vars(summary(s, t)).items():
        low, high = intervals[name]
        assert 0 <= low < narrow[name][0] < narrow[name][1] < high <= 1
        assert low <= estimate <= high


def test_streams_share_the_resamples_of_id():
    s = np.arange(50.0)
    one, other = replicates(s, [20.0] * 5, stream=1), replicates(s, [20.0] * 9, stream=2)
    np.testing.assert_array_equal(one[:, METRICS.index("auroc")], other[:, METRICS.index("auroc")])
    t = np.arange(20.0, 60.0)
    assert not np.array_equal(replicates([30.0], t, stream=1), replicates([30.0], t, stream=2))


def test_one_sample_each_has_no_spread():
    assert bootstrap([0], [1]) == {name: (v, v) for name, v in vars(summary([0], [1])).items()}


def test_percentiles():
    draws = np.tile(np.linspace(0, 1, 101)[:, None], len(METRICS))
    assert percentile_intervals(draws, 0.9)["auroc"] == pytest.approx((0.05, 0.95))


def test_coverage_on_gaussians():
    rng = np.random.default_rng(4)
    truth = 0.5 * (1 + math.erf(1 / 2))  # Φ(1/√2): unit Gaussians one apart
    trials, hits = 300, 0
    for seed in range(trials):
        low, high = bootstrap(rng.normal(size=150), rng.normal(1, 1, size=150), n=100, level=0.9, seed=seed)["auroc"]
        hits += low <= truth <= high
    assert (
        0.84 <= hits / trials <= 0.95
    )  # 0.9 up to three standard errors, and a percentile interval is a little narrow


def calls(function, *args, **settings):
    """How often each Python and each built-in function is called, by name."""
    found, before = Counter(), sys.getprofile()

    def note(frame, event, called):
        if event in ("call", "c_call"):
            found[frame.f_code.co_name if event == "call" else called.__name__] += 1

    gc.disable()  # what it calls is not the function's doing
    sys.setprofile(note)
    try:
        function(*args, **settings)
    finally:
        sys.setprofile(before)
        gc.enable()
    return found


def test_the_bootstrap_sorts_once_and_never_goes_through_samples_one_by_one():
    rng = np.random.default_rng(5)
    small, large = ((rng.normal(size=4 * n), rng.normal(1, 1, size=n)) for n in (10, 2000))
    once, more, most = (calls(replicates, *large, n=n) for n in (2, 12, 22))
    assert sum(most[name] for name in ("sort", "sorted", "argsort", "lexsort", "partition")) <= 1, "both sets together"
    assert most == calls(replicates, *small, n=22), "whatever the number of samples"
    assert most - more == more - once, "a resample costs as much as any other"


@pytest.mark.parametrize("settings", [{"n": 1}, {"level": 0.0}, {"level": 1.0}, {"level": 95}, {"seed": -1}])
def test_bad_settings(settings):
    with pytest.raises(InputError):
        bootstrap([0.0], [1.0], **settings)
