"""Which rule does best by ID data alone: the numbers, the tasks that are there, and cases with a known winner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from heat_ood import HEAT, Features
from heat_ood.energies._methods import create_prior
from heat_ood.energies._tasks import left_out_tasks
from heat_ood.errors import InputError
from heat_ood.metrics import fpr_at_95_id
from heat_ood.selection import RULES, Comparison, Verdict, compare
from heat_ood.selection._rules import by_family, weighted

CLASSES, D = 6, 8
PRIORS = ("energy", "relative-gmm", "gmm@early")


def draw(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def samples(n: int = 1200, seed: int = 0, useless: str = "", kinds: int = 0) -> Features:
    """Samples of classes or, if there are ``kinds``, of none; what is useless says the same of both."""
    y = torch.arange(n) % CLASSES
    centres = {
        "energy": 2 * torch.eye(CLASSES, dtype=torch.float64),
        "relative": 1.3 * draw(CLASSES, D, 1000),
        "densities": 0.8 * draw(CLASSES, D, 1001),
    }
    logits, last, early = (
        draw(n, centre.shape[1], 10 * seed + i) + (0.0 if kinds or family == useless else 1.0) * centre[y]
        for i, (family, centre) in enumerate(centres.items())
    )
    return Features(last, logits=logits, labels=y % kinds if kinds else y, layers={"early": early})


def test_each_rule_and_each_prior_alone_has_a_row_with_both_tasks() -> None:
    found = compare(samples(), samples(90, 1, kinds=3), priors=PRIORS, folds=3)
    assert found.priors == PRIORS
    assert list(found.rows) == [*RULES, *(f"{name} alone" for name in PRIORS)]
    assert all(list(row) == ["classes", "distortions"] for row in found.rows.values())
    assert found.best in RULES


def test_the_verdict_on_distortions_is_the_mean_over_their_kinds() -> None:
    train, contrast = samples(), samples(90, 1, kinds=3)
    fitting, held = HEAT(seed=4).split(train)
    prior = create_prior("relative-gmm").fit(fitting)
    real, others = prior.score(held), [prior.score(contrast[contrast.labels == kind]) for kind in range(3)]
    truth = np.repeat([0, 1], [len(held), 30])
    auroc = [roc_auc_score(truth, torch.cat([real, other])) for other in others]
    verdict = compare(train, contrast, priors=PRIORS, folds=0, seed=4).rows["relative-gmm alone"]["distortions"]
    assert verdict.auroc == pytest.approx(np.mean(auroc), abs=1e-12)
    assert verdict.fpr_at_95_id == pytest.approx(np.mean([fpr_at_95_id(real, other) for other in others]))
    assert max(auroc) > min(auroc)


def test_the_verdict_on_classes_is_the_mean_over_the_groups_of_standardised_sums() -> None:
    tasks = left_out_tasks(PRIORS, *HEAT(seed=4).split(samples()), folds=3, seed=4)
    auroc = []
    for task in tasks:
        real, other = ((e - task.real.mean(0)) / task.real.std(0) for e in (task.real, task.other))
        truth = np.repeat([0, 1], [len(real), len(other)])
        auroc.append(roc_auc_score(truth, torch.cat([real, other]).mean(1)))
    found = compare(samples(), priors=PRIORS, folds=3, seed=4)
    assert found.rows["equal weights"]["classes"].auroc == pytest.approx(np.mean(auroc), abs=1e-3)


@pytest.mark.parametrize(
    ("contrast", "folds", "tasks"),
    [
        (None, 2, ["classes"]),
        (samples(60, 1, kinds=2), 0, ["distortions"]),
        (samples(60, 1, kinds=2), 2, ["classes", "distortions"]),
    ],
    ids=["no contrast", "no folds", "both"],
)
def test_a_task_that_is_not_asked_for_is_not_there(contrast: Features | None, folds: int, tasks: list[str]) -> None:
    found = compare(samples(300), contrast, folds=folds)
    assert all(list(row) == tasks for row in found.rows.values())
    assert found.table[0][1:-2] == tasks


def test_without_a_task_there_is_nothing_to_judge_by() -> None:
    with pytest.raises(InputError, match="nothing to judge by: pass contrast=…, folds=…, or both"):
        compare(samples(300), folds=0)


def test_the_priors_are_the_default_s_if_none_are_named() -> None:
    given = samples(300)
    assert compare(given, folds=2).priors == ("energy", "relative-gmm", "gmm@early", "gmm")
    assert compare(given, priors=["gmm"], folds=2).priors == ("gmm",)


def test_rules_of_one_s_own() -> None:
    def lowest(names: Any, real: Tensor) -> Any:
        assert names == PRIORS
        return lambda energies: energies.amin(1)

    found = compare(samples(300), priors=PRIORS, rules={"lowest": lowest}, folds=2)
    assert list(found.rows) == ["lowest", "energy alone", "relative-gmm alone", "gmm@early alone"]


@pytest.mark.parametrize(
    ("useless", "shares"), [("energy", (0, 1, 1)), ("relative", (1, 0, 1)), ("densities", (1, 1, 0))]
)
def test_the_rule_that_ignores_a_useless_family_wins(useless: str, shares: tuple[int, int, int]) -> None:
    rules = {f"{e}:{r}:{d}": weighted(by_family(e, r, d)) for e, r, d in ((1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0))}
    train, contrast = samples(useless=useless), samples(600, 1, useless, kinds=2)
    found = compare(train, contrast, priors=PRIORS, rules=rules, folds=3)
    alone = dict(zip(("energy", "relative", "densities"), (f"{name} alone" for name in PRIORS), strict=True))
    assert found.mean[alone[useless]] == pytest.approx(0.5, abs=0.07)
    assert all(found.mean[name] > 0.65 for family, name in alone.items() if family != useless)
    assert found.best == ":".join(map(str, shares))
    assert found.mean[found.best] > found.mean["1:1:1"] + 0.01
    assert all(found.rows[found.best][t].auroc > found.rows["1:1:1"][t].auroc for t in ("classes", "distortions"))


def made() -> Comparison:
    numbers = {
        "a": {"near": (0.5, 0.9), "far": (0.25, 0.7)},
        "bee": {"near": (0.4, 0.8), "far": (0.0, 1.0)},
        "c": {"near": (1.0, 0.6), "far": (0.125, 0.95)},
    }
    rows = {name: {t: Verdict(*pair) for t, pair in row.items()} for name, row in numbers.items()}
    return Comparison(("gmm",), rows)


def test_mean_worst_and_best() -> None:
    assert made().mean == pytest.approx({"a": 0.8, "bee": 0.9, "c": 0.775})
    assert made().worst == pytest.approx({"a": 0.3, "bee": 0.1, "c": 0.3})
    assert made().best == "bee"


def test_the_table_and_its_text() -> None:
    header, *lines = made().table
    assert header == ["FPR95 / AUROC in %", "near", "far", "mean AUROC", "behind the best"]
    assert lines[1] == ["bee", "40.0 / 80.00", "0.0 / 100.00", "90.00", "10.00"]
    text = str(made()).splitlines()
    assert len(text) == 4
    assert len({len(line) for line in text}) == 1, "columns are flush"
    assert text[1].split() == ["a", "50.0", "/", "90.00", "25.0", "/", "70.00", "80.00", "30.00"]
    for column in ("near", "far"):
        end = text[0].index(column) + len(column)
        assert all(line[end - 1] != " " and line[end] == " " for line in text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priors": ("gmm", "gmm")}, "Each prior may stand once"),
        ({"priors": ("gmm-std",)}, "gmm-std reads std"),
        ({"priors": ()}, "at least one prior"),
        ({"priors": ("knn",)}, "knn cannot be judged by classes that are left out"),
        ({"contrast": samples(60, kinds=2)[:0]}, "contrast has no samples"),
        ({"contrast": Features(samples(60).avg, fingerprint="another")}, "two different models"),
        (
            {"contrast": Features(samples(60).avg, logits=samples(60).logits, layers={"early": samples(60).avg})},
            "which distortion",
        ),
        ({"folds": 4}, "two classes for each; there are 6 classes for folds=4"),
    ],
    ids=["twice", "lacking", "none", "cannot", "empty contrast", "another model", "no kinds", "too many folds"],
)
def test_what_cannot_be_compared(changes: dict[str, Any], message: str) -> None:
    train = samples(300)
    train.fingerprint = "one"
    with pytest.raises(InputError) as error:
        compare(train, **{"folds": 2, **changes})
    assert message in str(error.value)


def test_a_prior_that_cannot_leave_classes_out_is_judged_by_distortions() -> None:
    found = compare(samples(300), samples(60, 1, kinds=2), priors=("knn", "gmm"), folds=0)
    assert found.rows["knn alone"]["distortions"].auroc > 0.6


def test_as_a_data_frame() -> None:
    found = Comparison(("gmm",), {"mean": {"classes": Verdict(0.5, 0.75)}})
    frame = found.to_frame()
    assert frame.loc["mean", "classes auroc"] == 0.75
    assert frame.loc["mean", "mean_auroc"] == 0.75
