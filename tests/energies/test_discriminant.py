"""The class mixture against one Gaussian, in the axes that tell classes apart: against SciPy and the long way."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from gmm_reference import by_numpy, cloud
from heat_ood.energies import Discriminant, Energy, RelativeMixture, create
from heat_ood.errors import InputError
from heat_ood.features import Features, Moments


def with_layers(n: int = 300, seed: int = 0) -> Features:
    one, two, three = (cloud(n, d=d, seed=seed + k) for k, d in enumerate((6, 4, 3)))
    return Features(avg=one.avg, labels=cloud(n, seed=seed).labels, layers={"a": two.avg, "b": three.avg})


@pytest.mark.parametrize(
    ("d", "classes", "normalise"),
    [*itertools.product((6,), (1, 4, 9), (False, True)), (1, 3, False)],  # one channel of length one does not vary
)
@pytest.mark.parametrize("shrinkage", [0.01, 0.3])
def test_it_is_the_negative_log_density_ratio(d: int, classes: int, shrinkage: float, normalise: bool) -> None:
    train, test = cloud(d=d, classes=classes), cloud(40, d=d, classes=classes, seed=1)
    means, within, shares = by_numpy(train, normalise, shrinkage)
    mean = shares @ means
    between = (means - mean).T @ np.diag(shares) @ (means - mean)
    z = test.avg.numpy()
    z = z / np.linalg.norm(z, axis=1, keepdims=True) if normalise else z
    each = np.stack([multivariate_normal(m, within).logpdf(z) for m in means], 1)
    expected = multivariate_normal(mean, within + between).logpdf(z) - logsumexp(each, axis=1) + np.log(classes)
    found = Discriminant(normalise=normalise, shrinkage=shrinkage).fit(train)
    np.testing.assert_allclose(found.score(test), expected, rtol=1e-8, atol=1e-8)
    assert len(found.axes) <= min(d, classes - 1)


def test_unshrunk_it_is_the_relative_mixture() -> None:
    train, test = cloud(), cloud(40, seed=1)
    one, other = (method(shrinkage=0.0).fit(train).score(test) for method in (Discriminant, RelativeMixture))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_by_hand() -> None:
    # means 0 and 4, variance within 1, in all 1 + 4 = 5 about 2
    train = Features(avg=torch.tensor([[1.0], [-1.0], [5.0], [3.0]]), labels=[0, 0, 1, 1])
    score = Discriminant(normalise=False, shrinkage=0.0).fit(train).score(torch.tensor([[2.0], [4.0]]))
    at_four = -0.5 * np.log(5) - 0.4 + np.log(2) - np.log1p(np.exp(-8))
    torch.testing.assert_close(score, torch.tensor([2 - 0.5 * np.log(5), at_four], dtype=torch.float32))


def test_what_does_not_tell_classes_apart_is_nothing_to_it() -> None:
    """A shift by what is uncorrelated with the class moves the density and not the ratio."""
    train = cloud()
    found = Discriminant(normalise=False).fit(train)
    _, _, free = torch.linalg.svd(found.axes)
    away = train.avg + 100 * free[-1]
    torch.testing.assert_close(found.score(away), found.score(train.avg), rtol=1e-9, atol=1e-9)


def test_one_class_is_no_different_from_everything() -> None:
    found = Discriminant().fit(cloud(classes=1))
    assert len(found.axes) == 0
    assert torch.equal(found.score(cloud(40, seed=1)), torch.zeros(40, dtype=torch.float64))


def test_layers_side_by_side() -> None:
    train, test = with_layers(), with_layers(40, seed=7)
    for name, columns in (("discriminant+a+b", ("avg", "avg@a", "avg@b")), ("discriminant@a+b", ("avg@a", "avg@b"))):
        found = create(name).fit(train)
        assert found.reads == columns
        assert torch.equal(found.score(test), Discriminant(columns).fit(train).score(test))
    with pytest.raises(InputError, match=r"needs avg@c"):
        create("discriminant+c").fit(train)
    with pytest.raises(InputError, match="msp does not read earlier layers"):
        create("msp+a")


def test_from_moments_it_is_that_of_the_samples() -> None:
    train = cloud()
    z, labels = Discriminant().space(train), train.labels
    assert labels is not None
    halves = [Moments.of([(z[rows], labels[rows])], 4) for rows in (slice(0, 150), slice(150, None))]
    merged = Discriminant().from_moments(halves[0] + halves[1], (6,), torch.float64)
    whole = Discriminant().fit(train)
    torch.testing.assert_close(merged.energy(train), whole.energy(train), rtol=1e-9, atol=1e-9)


def test_a_class_without_samples_is_refused() -> None:
    train = cloud()
    labels = torch.where(train.labels == 2, 1, train.labels)
    with pytest.raises(InputError, match="class 2 has no samples among 300"):
        Discriminant().fit(Features(avg=train.avg, labels=labels))
    with pytest.raises(InputError, match="it needs labels"):
        Discriminant().fit(Features(avg=train.avg))


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    found = create("discriminant+a+b").fit(with_layers())
    found.save(tmp_path / "d")
    loaded = Energy.load(tmp_path / "d")
    assert torch.equal(loaded.score(with_layers(40, seed=7)), found.score(with_layers(40, seed=7)))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("shift", torch.zeros(2, dtype=torch.float64), "disagree"),
        ("means", torch.zeros(4, 2, dtype=torch.float64), "disagree"),
        ("shares", torch.zeros(3), "disagree"),
        ("axes", torch.zeros(3, dtype=torch.float64), "dimensions"),
        ("level", torch.tensor(torch.nan, dtype=torch.float64), "not finite: level"),
    ],
)
def test_tensors_that_do_not_fit_together_are_refused(name: str, value: torch.Tensor, said: str) -> None:
    found = Discriminant().fit(cloud())
    setattr(found, name, value)
    with pytest.raises(InputError, match=said):
        found.validate()
