"""How far the residual may go: one training serves every bound, and unseen distortions judge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from heat_ood import HEAT, Features, Residual
from heat_ood.errors import InputError
from heat_ood.heat._choice import AGAINST_CONTRAST
from heat_ood.metrics import summary
from heat_ood.selection import BOUNDS, Comparison, compare_bounds
from heat_ood.selection._bounds import terms

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in ("The residual:RuntimeWarning", "HEAT uses")]
QUICK = replace(AGAINST_CONTRAST, odds=1.0, epochs=3, hidden=16, depth=3, batch=64, lr=3e-3)
KINDS, CLASSES, D = (0, 1, 4), 4, 6
UNSEEN, CLASS = "unseen distortions", "unseen classes"


def samples(n: int, seed: int, spread: float = 1.0) -> Features:
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % CLASSES
    means = 2 * torch.rand(CLASSES, D, generator=torch.Generator().manual_seed(5))
    z = (1 + means[y] + 0.3 * spread * torch.randn(n, D, generator=g)).relu()
    return Features(z, labels=y, head=(means, None))


def contrast(*spreads: float) -> Features:
    """Three kinds of distortion, in turn: wider or narrower than the data."""
    parts = [samples(120, 10 + k, s) for k, s in enumerate(spreads)]
    labels = torch.tensor(KINDS).repeat_interleave(120)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    avg = torch.cat([part.avg for part in parts])
    return Features(avg[order], labels=labels[order], head=parts[0].head)


TRAIN, WIDE = samples(600, 0), contrast(1.5, 2.0, 3.0)


def of_kinds(features: Features, *kinds: int) -> Features:
    return features[torch.isin(features.labels, torch.tensor(kinds))]


def verdicts(found: Comparison) -> dict[str, tuple[float, float]]:
    return {name: (row[UNSEEN].fpr_at_95_id, row[UNSEEN].auroc) for name, row in found.rows.items()}


def mean_of(detectors: dict[int, HEAT]) -> tuple[float, float]:
    """FPR95 and AUROC, over the kinds, of the detector that judges each."""
    found = [
        summary(detector.score(detector.split(TRAIN)[1]), detector.score(of_kinds(WIDE, kind)))
        for kind, detector in detectors.items()
    ]
    return float(np.mean([m.fpr_at_95_id for m in found])), float(np.mean([m.auroc for m in found]))


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare_bounds(TRAIN, WIDE, residual=QUICK, bounds=(0.0, QUICK.bound, 2.0), odds=(1.0, 20.0), seed=1)


@pytest.fixture(scope="module")
def by_hand() -> dict[int, HEAT]:
    """For each kind a detector that has not seen it."""
    first, second = (
        HEAT(residual=QUICK, seed=1).fit(TRAIN, of_kinds(WIDE, *kinds), progress=False) for kinds in ((0, 4), (1,))
    )
    return {0: second, 1: first, 4: second}


def test_each_bound_has_a_row(found: Comparison) -> None:
    pairs = [f"bound {b}, odds {o}" for b in (f"{QUICK.bound:g}", 2) for o in (1, 20)]
    assert list(found.rows) == ["bound 0", *pairs]
    assert all(list(row) == [UNSEEN, CLASS] for row in found.rows.values())
    assert found.priors == ("energy", "gmm")
    assert "bound 2, odds 20" in str(found)


def test_bound_zero_is_the_plain_composition(found: Comparison) -> None:
    plain = HEAT(residual=None, seed=1).fit(TRAIN, progress=False)
    assert verdicts(found)["bound 0"] == pytest.approx(mean_of(dict.fromkeys(KINDS, plain)), abs=1e-4)


def test_the_bound_of_the_training_gives_the_detector_s_own_scores(found: Comparison, by_hand: dict[int, HEAT]) -> None:
    row = verdicts(found)
    assert row[f"bound {QUICK.bound:g}, odds 1"] == pytest.approx(mean_of(by_hand), abs=1e-4)
    assert row[f"bound {QUICK.bound:g}, odds 1"] != row["bound 0"]


def test_odds_give_the_scores_of_a_detector_trained_with_them(found: Comparison) -> None:
    rare = replace(QUICK, odds=20.0)
    first, second = (
        HEAT(residual=rare, seed=1).fit(TRAIN, of_kinds(WIDE, *kinds), progress=False) for kinds in ((0, 4), (1,))
    )
    row = verdicts(found)[f"bound {QUICK.bound:g}, odds 20"]
    assert row == pytest.approx(mean_of({0: second, 1: first, 4: second}), abs=1e-4)
    assert row != verdicts(found)[f"bound {QUICK.bound:g}, odds 1"]


def test_classes_that_the_residual_has_not_seen(found: Comparison) -> None:
    """By hand: fit on two of four classes, told from the other two, and the other way round."""
    group = torch.from_numpy(np.random.default_rng(1).permutation(CLASSES) % 2)
    fitting, held = HEAT(seed=1).split(TRAIN)
    weight = TRAIN.head[0]
    guessed = group[(WIDE.avg @ weight.T).argmax(1)]
    results = []
    for fold in (0, 1):
        kept = (group != fold).nonzero().flatten()
        head = (weight[kept], None)
        mine = fitting[group[fitting.labels] != fold]
        labels = torch.searchsorted(kept, mine.labels)
        negatives = Features(WIDE.avg[guessed != fold], head=head)
        known = Features(mine.avg, labels=labels, head=head)
        detector = HEAT(residual=QUICK, seed=1).fit(known, negatives, progress=False)
        real, other = (held[(group[held.labels] == fold) == left].avg for left in (False, True))
        m = summary(*(detector.score(Features(z, head=head)) for z in (real, other)))
        results.append((m.fpr_at_95_id, m.auroc))
    row = found.rows[f"bound {QUICK.bound:g}, odds 1"][CLASS]
    assert (row.fpr_at_95_id, row.auroc) == pytest.approx(np.mean(results, 0), abs=1e-4)


def test_classes_can_be_left_alone(found: Comparison) -> None:
    alone = compare_bounds(TRAIN, WIDE, residual=QUICK, bounds=(2.0,), odds=(20.0,), folds=0, seed=1)
    assert verdicts(alone) == {"bound 2, odds 20": verdicts(found)["bound 2, odds 20"]}
    assert all(list(row) == [UNSEEN] for row in alone.rows.values())


def test_the_terms_add_up_to_the_score(by_hand: dict[int, HEAT]) -> None:
    prior, correction = terms(by_hand[0], WIDE)
    torch.testing.assert_close(prior + QUICK.bound * correction, by_hand[0].score(WIDE).double())
    assert 0.01 < correction.abs().max() <= 1


def test_another_lam_trains_the_same_correction_as_a_share_of_its_bound(found: Comparison) -> None:
    """The bound only scales the loss, which Adam does not feel."""
    other = compare_bounds(
        TRAIN,
        WIDE,
        residual=replace(QUICK, lam=4.0, odds=3.0),
        bounds=(0.0, QUICK.bound, 2.0),
        odds=(1.0, 20.0),
        seed=1,
    )
    for name, pair in verdicts(found).items():
        assert verdicts(other)[name][1] == pytest.approx(pair[1], abs=5e-3)


def test_a_residual_that_learns_what_the_prior_gets_wrong_may_go_far() -> None:
    narrow = contrast(0.3, 0.3, 0.3)
    residual = replace(QUICK, epochs=12, hidden=32)
    even = compare_bounds(TRAIN, narrow, residual=residual, odds=(1.0,), folds=0)
    auroc = {name: pair[1] for name, pair in verdicts(even).items()}
    assert list(auroc) == ["bound 0", *(f"bound {b:g}, odds 1" for b in BOUNDS[1:])]
    assert auroc["bound 0"] < 0.5, "what is narrow has a low energy, though not in the density, which is one-sided"
    assert list(auroc.values()) == sorted(auroc.values())
    assert auroc["bound 2, odds 1"] > auroc["bound 0"] + 0.2


def test_the_same_seed_gives_the_same_verdicts() -> None:
    settings = {"residual": QUICK, "bounds": (1.0,), "odds": (1.0,)}
    runs = [compare_bounds(TRAIN, WIDE, **settings, seed=s, progress=s == 2) for s in (2, 2, 3)]
    assert verdicts(runs[0]) == verdicts(runs[1]) != verdicts(runs[2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contrast": of_kinds(WIDE, 1)}, "have 1 kinds of distortion; judging by unseen ones takes at least 2"),
        ({"contrast": Features(WIDE.avg, head=WIDE.head)}, "have 0 kinds"),
        ({"train": Features(TRAIN.avg, head=TRAIN.head)}, "no labels for folds=2"),
        ({"folds": 3}, "4 classes for folds=3"),
        ({"residual": Residual()}, "Residual(joint=True"),
        ({"residual": replace(QUICK, bounded=False)}, "Residual(joint=True"),
        ({"residual": replace(QUICK, lam=torch.inf)}, "Residual(joint=True"),
    ],
    ids=["one kind", "no kinds", "no labels", "few classes", "not joint", "not bounded", "off"],
)
def test_what_cannot_be_compared(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        compare_bounds(**{"train": TRAIN, "contrast": WIDE, "residual": QUICK, **changes})
    assert message in str(error.value)
