"""What users of numpy and scikit-learn expect of a detector, and what it refuses to be calibrated on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from heat_ood import HEAT, Energy, Features, InputError, create
from heat_ood.energies import Calibration
from heat_ood.features import Seen
from method_data import samples

PREPARED = {"size": [32, 32], "mean": [0.5, 0.5, 0.5]}


def ready(name: str = "gmm", **settings: Any) -> Energy:
    return create(name, **settings).fit(samples()).calibrate(samples(100, seed=1))


# Arrays


def test_numpy_in_numpy_out() -> None:
    detector, test = ready(), samples(20, seed=2)
    for method in (detector.score, detector.p_value, detector.predict):
        given = method(test.avg.numpy())
        assert isinstance(given, np.ndarray)
        assert np.array_equal(given, method(test.avg).numpy())
        assert isinstance(method(test), torch.Tensor)


# Thresholds


@pytest.mark.parametrize("n", [19, 20, 100, 999])
@pytest.mark.parametrize("fpr", [0.05, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("ties", [False, True])
def test_above_the_threshold_is_what_predict_flags(n: int, fpr: float, ties: bool) -> None:
    g = torch.Generator().manual_seed(n)
    held, new = (torch.randn(k, generator=g, dtype=torch.float64) for k in (n, 500))
    if ties:
        held, new = (x.mul(4).round().div(4) for x in (held, new))
    calibration = Calibration(held)
    assert torch.equal(new > calibration.threshold(fpr), calibration.p_value(new) <= fpr)


def test_the_threshold_of_a_detector() -> None:
    detector, test = ready(), samples(200, seed=2)
    assert torch.equal(detector.score(test) > detector.threshold(0.1), detector.predict(test, 0.1))
    detector.calibrate(samples(400, seed=1), per_class=True)
    limits = detector.threshold(0.2)
    assert limits.shape == (4,)
    assert torch.equal(detector.score(test) > limits[test.logits.argmax(1)], detector.predict(test, 0.2))
    with pytest.raises(InputError, match="needs at least"):
        detector.threshold(1e-4)


# Scikit-learn


def test_settings_as_scikit_learn_asks_for_them() -> None:
    knn = create("knn", k=7)
    assert knn.get_params()["k"] == 7
    assert clone(knn).get_params() == knn.get_params()
    assert not ready("knn", k=7).set_params(k=9).fitted
    assert knn.set_params(k=9).settings["k"] == 9
    with pytest.raises(InputError, match=r"no setting 'kk'. It has columns, normalise, k"):
        knn.set_params(kk=1)
    assert torch.equal(ready().decision_function(samples(5)), ready().score(samples(5)))


# What it was fitted to


@pytest.mark.parametrize("make", [lambda: create("gmm"), lambda: create("energy"), lambda: HEAT(residual=None)])
def test_calibrating_on_the_fitted_samples_is_refused(make: Any, tmp_path: Any) -> None:
    train = samples(3000)
    detector = make().fit(train)
    detector.save(tmp_path / "it")
    noisy = Features(avg=train.avg * (1 + 1e-6), std=train.std, head=train.head, layers=train.layers)
    for energy in (detector, Energy.load(tmp_path / "it")):
        for seen in (train, train[:600], train.subset(torch.arange(0, 3000, 3)), noisy):
            with pytest.raises(InputError, match=r"are among those that \w+ was fitted to"):
                energy.calibrate(seen)
        energy.calibrate(samples(500, seed=1))
    mixed = Features.concatenate([train[:20], samples(980, seed=1)])
    detector.calibrate(mixed)  # a few duplicates are no mistake


def test_samples_prepared_otherwise_are_refused_with_both_sides(tmp_path: Any) -> None:
    train, test = samples(), samples(20, seed=2)
    train.seen = Seen(model="timm:resnet18", preprocessing=PREPARED, classes=("a", "b", "c", "d"))
    detector = create("gmm").fit(train)
    detector.save(tmp_path / "it")
    test.seen = Seen(preprocessing={**PREPARED, "size": [64, 64]})
    for energy in (detector, Energy.load(tmp_path / "it")):
        assert energy.seen_ == train.seen
        for act in (energy.score, energy.calibrate):
            with pytest.raises(InputError, match=r"size \[64, 64\] instead of \[32, 32\]"):
                act(test)
    test.seen = None
    detector.score(test)  # what is not known passes
