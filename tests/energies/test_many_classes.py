"""Many classes with four samples each, as of ImageNet: every method fits, and what cannot be had says what to do."""

from __future__ import annotations

import warnings

import pytest
import torch

from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.energies import create, left_out_tasks
from heat_ood.errors import Notice
from heat_ood.metrics import auroc
from method_data import BEYOND, CASES, Case

CLASSES, EACH, D = 100, 4, 160
"""Fewer samples beyond the class means than both poolings have channels."""


def few(seed: int, each: int = EACH, far: bool = False) -> Features:
    """Four samples a class about class means that a head knows; far ones are about other means."""
    g, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(77)
    means = torch.rand(2, CLASSES, D, generator=fixed)
    labels = torch.arange(CLASSES).repeat(each)
    noise = [0.3 * torch.randn(len(labels), D, generator=g) for _ in range(2)]
    avg, std = ((means[int(far), labels].roll(i, 1) + noise[i]).relu() for i in range(2))
    weight = means[0] - means[0].mean(0)
    return Features(avg=avg, std=std, labels=None if far else labels, head=(8 * weight, None))


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*BEYOND, "heat")])
def test_every_method_fits_and_scores(name: str) -> None:
    train, test, far = few(0), few(1), few(2, far=True)
    method = Case(name).create().fit(train)
    scores = [method.score(features) for features in (test, far)]
    assert all(s.isfinite().all() for s in scores)
    if name in ("gmm", "gmm-std", "gmm-joint", "ssd", "energy", "relative-gmm", "relative-gmm-joint"):
        assert auroc(*scores) > 0.9, "what it is for still holds"


def test_heat_keeps_every_class_and_judges_by_classes_left_out() -> None:
    train = few(0)
    fitting, held = HEAT().split(train)
    assert fitting.labels is not None
    assert len(fitting.labels.unique()) == CLASSES
    (*_, task) = left_out_tasks(["relative-gmm-joint"], fitting, held, 5, 0)
    assert len(task.real) + len(task.other) == len(held)
    small = Residual(joint=True, epochs=1, hidden=8, contrast_share=1.0)
    detector = HEAT(residual=small).fit(train, contrast=few(3, far=True))
    assert auroc(detector.score(few(1)), detector.score(few(2, far=True))) > 0.9


def test_per_class_calibration_says_what_to_do() -> None:
    gmm, held = create("gmm").fit(few(0)), few(1, each=1)
    with pytest.raises(InputError, match=r"No calibration sample is predicted as class .*per_class=False"):
        gmm.calibrate(held.subset(torch.arange(CLASSES - 1)), per_class=True)
    gmm.calibrate(few(1, each=8), per_class=True)
    with pytest.raises(InputError, match=r"needs at least 19 calibration samples; there are 8 in the smallest"):
        gmm.predict(held, fpr=0.05)
    assert gmm.calibrate(held).predict(few(2, far=True), fpr=0.05).float().mean() > 0.9


def test_openmax_says_that_the_samples_are_few() -> None:
    with pytest.warns(Notice, match=r"tail=20 largest distances of a class, and the usual class has 4 samples"):
        create("openmax").fit(few(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create("openmax").fit(few(0, each=20))


def test_more_neighbours_than_a_class_has_samples_says_what_to_do() -> None:
    train, test, far = few(0), few(1), few(2, far=True)
    with pytest.warns(Notice, match=r"400 samples of 100 classes are stored, 4 a class.*Choose k=4 or less"):
        wide = create("knn", k=50).fit(train)
    with pytest.warns(Notice, match="2 a class"):
        create("knn", k=3, limit=200).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = create("knn", k=1).fit(train)
        create("knn", k=50).fit(Features(avg=train.avg))
    assert auroc(near.score(test), near.score(far)) > 0.95 > auroc(wide.score(test), wide.score(far))
    with pytest.raises(InputError, match="it asks for 500 neighbours, and 400 samples are stored"):
        create("knn", k=500).fit(train)
