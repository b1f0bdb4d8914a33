"""Mahalanobis distance and SSD: against NumPy, by hand, on shapes that bite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gmm_reference import by_numpy, cloud
from heat_ood.energies import SSD, Energy, Mahalanobis, create
from heat_ood.energies._gmm import shrinkage_of
from heat_ood.errors import InputError
from heat_ood.features import Features


def by_loops(train: Features, test: Features, normalise: bool, shrinkage: float) -> np.ndarray:
    means, covariance, _ = by_numpy(train, normalise, shrinkage)
    inverse = np.linalg.inv(covariance)
    z = test.avg.numpy()
    z = z / np.linalg.norm(z, axis=1, keepdims=True) if normalise else z
    return np.array([min((x - mean) @ inverse @ (x - mean) for mean in means) for x in z])


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("n", "d", "classes"), [(300, 6, 4), (80, 2, 3), (50, 5, 1)])
@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
def test_equals_the_formula(n: int, d: int, classes: int, normalise: bool, shrinkage: float) -> None:
    train, test = cloud(n, d, classes), cloud(40, d, classes, seed=1)
    expected = by_loops(train, test, normalise, shrinkage)
    for method in (Mahalanobis, SSD):
        score = method(normalise=normalise, shrinkage=shrinkage).fit(train).score(test)
        np.testing.assert_allclose(score, expected, rtol=1e-9)


def test_more_features_than_samples() -> None:
    train, test = cloud(30, 50, 3), cloud(20, 50, 3, seed=1)
    rho = shrinkage_of(torch.from_numpy(by_numpy(train, False, 0.0)[1]), 30)
    np.testing.assert_allclose(Mahalanobis().fit(train).score(test), by_loops(train, test, False, rho), rtol=1e-8)


def test_by_hand() -> None:
    # means 0 and 10, variance (1 + 1 + 4 + 4) / 4 = 2.5
    train = Features(avg=torch.tensor([[1.0], [-1.0], [12.0], [8.0]]), labels=[0, 0, 1, 1])
    score = Mahalanobis(shrinkage=0.0).fit(train).score(torch.tensor([[5.0], [0.0], [15.0], [-2.5]]))
    torch.testing.assert_close(score, torch.tensor([10.0, 0.0, 10.0, 2.5]))


def test_defaults() -> None:
    train, test = cloud(), cloud(40, seed=1)
    raw, unit = (shrinkage_of(torch.from_numpy(by_numpy(train, n, 0.0)[1]), len(train)) for n in (False, True))
    np.testing.assert_allclose(Mahalanobis().fit(train).score(test), by_loops(train, test, False, raw), rtol=1e-8)
    np.testing.assert_allclose(SSD().fit(train).score(test), by_loops(train, test, True, unit), rtol=1e-8)


def test_ssd_without_labels_is_one_cluster() -> None:
    train, test = cloud(), cloud(40, seed=1)
    one = Features(avg=train.avg, labels=torch.zeros(300, dtype=torch.long))
    bare = SSD(shrinkage=0.01).fit(Features(avg=train.avg))
    np.testing.assert_allclose(bare.score(test), by_loops(one, test, True, 0.01), rtol=1e-8)
    assert bare.clusters is None
    labelled = SSD(shrinkage=0.01).fit(train)
    assert not torch.allclose(labelled.score(test), bare.score(test))


@pytest.mark.parametrize("method", [SSD, Mahalanobis])
@pytest.mark.parametrize("labelled", [False, True])
def test_clusters_replace_the_labels(method: type[Mahalanobis], labelled: bool) -> None:
    centres = torch.tensor([[9.0, 0.0], [0.0, 9.0], [-9.0, -9.0]], dtype=torch.float64)
    group = torch.arange(90) % 3
    avg = centres[group] + torch.randn(90, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train = Features(avg=avg, labels=torch.zeros(90, dtype=torch.long) if labelled else None)
    score = method(clusters=3).fit(train).score(avg)
    expected = method().fit(Features(avg=avg, labels=group)).score(avg)
    torch.testing.assert_close(score, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("constant", [0.0, 3.0])
def test_dead_channels_are_ignored(constant: float) -> None:
    train, test = cloud(), cloud(40, seed=1)

    def with_dead(f: Features) -> Features:
        return Features(avg=torch.cat([f.avg, torch.full((len(f), 1), constant).double()], 1), labels=f.labels)

    expected = Mahalanobis().fit(train).score(test)
    torch.testing.assert_close(Mahalanobis().fit(with_dead(train)).score(with_dead(test)), expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("method", [SSD, Mahalanobis])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e6])
def test_scores_are_finite_and_never_negative(method: type[Mahalanobis], scale: float) -> None:
    train = cloud().to(torch.float32)
    energy = method().fit(train)
    score = energy.score(scale * train.avg)
    assert torch.isfinite(score).all()
    assert (score >= 0).all()


def test_a_class_mean_has_distance_zero_in_float32() -> None:
    train = Features(avg=cloud().avg.float() + 100, labels=cloud().labels)
    means = torch.stack([train.avg[train.labels == c].double().mean(0) for c in range(4)])
    score = Mahalanobis().fit(train).score(means.float())
    assert (score >= 0).all()
    assert score.max() < 1e-5


@pytest.mark.parametrize("method", [SSD, Mahalanobis])
@pytest.mark.parametrize(
    ("settings", "n", "message"),
    [
        ({"clusters": 0}, 300, "clusters must be at least 1, not 0. Pass None"),
        ({"shrinkage": 1.5}, 300, "shrinkage is a share"),
        ({}, 1, "a covariance needs at least two"),
    ],
)
def test_what_cannot_be_fitted(method: type[Mahalanobis], settings: dict[str, float], n: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        method(**settings).fit(cloud()[:n])


def test_a_class_without_samples() -> None:
    train = cloud(classes=3)
    with pytest.raises(InputError, match="class 1 has no samples"):
        Mahalanobis().fit(train[train.labels != 1])
    with pytest.raises(InputError, match="no feature varies"):
        Mahalanobis().fit(Features(avg=torch.ones(9, 2), labels=torch.zeros(9, dtype=torch.long)))


def test_a_layer_of_its_own() -> None:
    train = cloud()
    layered = Features(layers={"layer3": (train.avg, None)}, labels=train.labels)
    for name in ("mahalanobis", "ssd"):
        energy = create(f"{name}@layer3")
        assert energy.reads == ("avg@layer3",)
        assert torch.equal(energy.fit(layered).score(layered), create(name).fit(train).score(train))


@pytest.mark.parametrize("method", [SSD, Mahalanobis])
def test_saved_and_loaded(method: type[Mahalanobis], tmp_path: Path) -> None:
    energy = method(shrinkage=0.1, clusters=2, seed=3).fit(cloud())
    energy.save(tmp_path / "energy")
    loaded = Energy.load(tmp_path / "energy")
    assert type(loaded) is method
    assert torch.equal(loaded.score(cloud(30, seed=1)), energy.score(cloud(30, seed=1)))
    assert repr(loaded) == repr(energy)
    assert f"normalise={method is SSD}, shrinkage=0.1, clusters=2, seed=3)  # fitted" in repr(energy)
    assert "not fitted" in repr(method())
