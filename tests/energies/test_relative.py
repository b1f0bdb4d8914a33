"""The relative mixture: against SciPy, by hand, on shapes that bite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from gmm_reference import by_numpy, cloud, seeded
from heat_ood.energies import Energy, Mahalanobis, RelativeMixture, create
from heat_ood.errors import InputError
from heat_ood.features import Features


def parts(train: Features, test: Features, normalise: bool, shrinkage: float) -> tuple[np.ndarray, ...]:
    """Class means, both covariances, the overall mean and the test points."""
    means, within, _ = by_numpy(train, normalise, shrinkage)
    one = Features(avg=train.avg, labels=torch.zeros(len(train), dtype=torch.long))
    overall, total, _ = by_numpy(one, normalise, shrinkage)
    z = test.avg.numpy()
    return means, within, overall[0], total, z / np.linalg.norm(z, axis=1, keepdims=True) if normalise else z


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("shrinkage", [0.01, 0.3])
@pytest.mark.parametrize("classes", [1, 4])
def test_soft_is_the_negative_log_density_ratio(classes: int, shrinkage: float, normalise: bool) -> None:
    train, test = cloud(classes=classes), cloud(40, classes=classes, seed=1)
    means, within, overall, total, z = parts(train, test, normalise, shrinkage)
    each = np.stack([multivariate_normal(mean, within).logpdf(z) for mean in means], 1)
    expected = multivariate_normal(overall, total).logpdf(z) - logsumexp(each, axis=1) + np.log(classes)
    relative = RelativeMixture(normalise=normalise, shrinkage=shrinkage).fit(train)
    np.testing.assert_allclose(relative.score(test), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(relative.energy_of(torch.from_numpy(z)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
@pytest.mark.parametrize(("d", "classes"), [(6, 4), (1, 3)])
def test_hard_is_the_published_distance(d: int, classes: int, shrinkage: float) -> None:
    train, test = cloud(d=d, classes=classes), cloud(40, d=d, classes=classes, seed=1)
    means, within, overall, total, z = parts(train, test, False, shrinkage)
    within, total = np.linalg.inv(within), np.linalg.inv(total)
    expected = [
        min((x - mean) @ within @ (x - mean) for mean in means) - (x - overall) @ total @ (x - overall) for x in z
    ]
    score = RelativeMixture(normalise=False, shrinkage=shrinkage, hard=True).fit(train).score(test)
    np.testing.assert_allclose(score, expected, rtol=1e-9, atol=1e-9)


def test_by_hand() -> None:
    # means 0 and 4, variance within 1, in all 1 + 4 = 5 about 2
    train = Features(avg=torch.tensor([[1.0], [-1.0], [5.0], [3.0]]), labels=[0, 0, 1, 1])
    z = torch.tensor([[2.0], [0.0], [7.0]])
    hard = RelativeMixture(normalise=False, shrinkage=0.0, hard=True).fit(train).score(z)
    torch.testing.assert_close(hard, torch.tensor([4.0, -0.8, 4.0]))
    soft = RelativeMixture(normalise=False, shrinkage=0.0).fit(train).score(z[:1])
    torch.testing.assert_close(soft, torch.tensor([2 - 0.5 * np.log(5)], dtype=torch.float32))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("hard", [False, True])
def test_gradient_equals_autograd(hard: bool, normalise: bool) -> None:
    relative = RelativeMixture(normalise=normalise, hard=hard).fit(cloud())
    z = relative.space(cloud(20, seed=1)).clone().requires_grad_()
    (auto,) = torch.autograd.grad(relative.energy_of(z).sum(), z)
    torch.testing.assert_close(relative.gradient_of(z.detach()), auto, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("hard", [False, True])
def test_one_class_is_no_different_from_everything(hard: bool) -> None:
    relative = RelativeMixture(hard=hard).fit(cloud(classes=1))
    zero = torch.zeros(40, dtype=torch.float64)
    torch.testing.assert_close(relative.score(cloud(40, seed=1)), zero, rtol=0, atol=1e-8)


@pytest.mark.parametrize("hard", [False, True])
def test_channels_constant_within_classes_count_on_neither_side(hard: bool) -> None:
    train, test = cloud(), cloud(40, seed=1)
    plain = RelativeMixture(normalise=False, hard=hard).fit(train)
    one = Features(avg=torch.cat([train.avg, train.labels[:, None].double()], 1), labels=train.labels)
    relative = RelativeMixture(normalise=False, hard=hard).fit(one)
    for value in (0.0, 1e3):
        more = torch.cat([test.avg, torch.full((40, 1), value, dtype=torch.float64)], 1)
        torch.testing.assert_close(relative.score(more), plain.score(test), rtol=1e-8, atol=1e-8)


def test_without_labels_clusters_stand_in() -> None:
    train = cloud()
    relative = RelativeMixture().fit(Features(avg=train.avg))
    assert len(relative.density.nu) == 10
    assert len(relative.background.nu) == 1


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_extreme_features(scale: float, hard: bool) -> None:
    train = cloud().to(torch.float32)
    for normalise in (False, True):
        assert torch.isfinite(RelativeMixture(normalise=normalise, hard=hard).fit(train).score(scale * train.avg)).all()


def test_more_features_than_samples() -> None:
    train, test = cloud(30, 50, 3), cloud(20, 50, 3, seed=1)
    relative = RelativeMixture(normalise=False, shrinkage=0.2, hard=True).fit(train)
    _, _, overall, total, z = parts(train, test, False, 0.2)
    background = np.einsum("ni,ij,nj->n", z - overall, np.linalg.inv(total), z - overall)
    expected = Mahalanobis(shrinkage=0.2).fit(train).score(test).numpy() - background
    np.testing.assert_allclose(relative.score(test), expected, rtol=1e-8)


@pytest.mark.parametrize("normalise", [False, True])
def test_it_proposes_from_the_class_mixture(normalise: bool) -> None:
    train = cloud()
    relative = RelativeMixture(normalise=normalise).fit(train)
    z = relative.propose(5000, seeded())
    assert torch.equal(z, relative.density.propose(5000, seeded()))
    norms = relative.space(train).norm(dim=1)
    assert z.norm(dim=1).min() >= norms.min() - 1e-9
    assert z.norm(dim=1).max() <= norms.max() + 1e-9


def test_what_cannot_be_fitted() -> None:
    train = cloud(classes=3)
    with pytest.raises(InputError, match="class 1 has no samples"):
        RelativeMixture().fit(train[train.labels != 1])
    with pytest.raises(InputError, match="a covariance needs at least two"):
        RelativeMixture().fit(train[:1])
    with pytest.raises(InputError, match="shrinkage is a share"):
        RelativeMixture(shrinkage=-0.1).fit(train)


def test_a_layer_of_its_own() -> None:
    train = cloud()
    layered = Features(layers={"layer3": (train.avg, None)}, labels=train.labels)
    score = create("relative-gmm@layer3").fit(layered).score(layered)
    assert torch.equal(score, create("relative-gmm").fit(train).score(train))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("hard", [False, True])
def test_saved_and_loaded(hard: bool, normalise: bool, tmp_path: Path) -> None:
    relative = RelativeMixture(normalise=normalise, shrinkage=0.1, hard=hard).fit(cloud())
    relative.save(tmp_path / "relative")
    loaded = Energy.load(tmp_path / "relative")
    assert torch.equal(loaded.score(cloud(30, seed=1)), relative.score(cloud(30, seed=1)))
    assert torch.equal(loaded.propose(5, seeded()), relative.propose(5, seeded()))
    assert repr(loaded) == repr(relative)
    assert f"normalise={normalise}, shrinkage=0.1, hard={hard})  # fitted" in repr(relative)
