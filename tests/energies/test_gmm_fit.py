"""Fitting the Gaussian mixture and proposing from it: labels, clusters, shrinkage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.covariance import oas

from gmm_reference import by_numpy, cloud, seeded
from heat_ood.energies import GaussianMixture
from heat_ood.energies._gmm import CHUNK, mixture_of, shrinkage_of
from heat_ood.errors import InputError, NotFittedError
from heat_ood.features import Features, Space

# Labels, or none


def test_without_labels_k_means_finds_the_classes() -> None:
    g = seeded()
    y = torch.arange(600) % 3
    z = 10 * torch.eye(3, 5, dtype=torch.float64)[y] + torch.randn(600, 5, generator=g, dtype=torch.float64)
    by_labels = GaussianMixture(normalise=False).fit(Features(avg=z, labels=y))
    for unlabelled in (
        GaussianMixture(normalise=False).fit(Features(avg=z, head=(torch.ones(3, 5), None))),
        GaussianMixture(normalise=False, clusters=3).fit(Features(avg=z, labels=torch.zeros(600, dtype=torch.long))),
    ):
        torch.testing.assert_close(unlabelled.score(z), by_labels.score(z), rtol=0, atol=1e-6)


def test_without_labels_or_classifier_there_are_ten_clusters() -> None:
    train = Features(avg=torch.randn(500, 4, generator=seeded()))
    assert len(GaussianMixture().fit(train).nu) == 10
    assert torch.equal(GaussianMixture(seed=3).fit(train).nu, GaussianMixture(seed=3).fit(train).nu)
    assert not torch.equal(GaussianMixture(seed=3).fit(train).nu, GaussianMixture(seed=4).fit(train).nu)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 19])
def test_few_samples_without_labels(n: int) -> None:
    z = torch.randn(n, 4, generator=seeded(n), dtype=torch.float64)
    assert torch.isfinite(GaussianMixture().fit(Features(avg=z)).score(z)).all()


def test_fewer_distinct_samples_than_clusters(recwarn: pytest.WarningsRecorder) -> None:
    z = torch.randn(3, 4, generator=seeded()).repeat(20, 1)
    with pytest.raises(InputError, match="no feature varies"):
        GaussianMixture(clusters=8).fit(Features(avg=z))
    assert torch.isfinite(GaussianMixture(clusters=2).fit(Features(avg=z)).score(z)).all()
    assert not recwarn.list, "that k-means finds fewer clusters is no news"


def test_an_empty_class_is_named() -> None:
    train = cloud(1203, classes=10)
    y = train.labels.clone()
    y[y == 7] = 6
    with pytest.raises(
        InputError, match=r"GaussianMixture cannot be fitted: class 7 has no samples among 1,203\. Pass"
    ):
        GaussianMixture().fit(Features(avg=train.avg, labels=y))
    with pytest.raises(InputError, match=r"class 10, 11, 12, 13, 14… has no samples"):
        GaussianMixture().fit(Features(avg=train.avg, labels=train.labels, head=(torch.ones(20, 6), None)))
    with pytest.raises(InputError, match=r"class 10, 11 has no samples"):
        GaussianMixture().fit(Features(avg=train.avg, labels=train.labels, logits=torch.zeros(1203, 12)))


@pytest.mark.parametrize("n", [0, 1])
def test_a_covariance_needs_two_samples(n: int) -> None:
    with pytest.raises(InputError, match=f"cannot be fitted to {n} sample"):
        GaussianMixture().fit(cloud()[:n])


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1, math.nan])
def test_shrinkage_is_a_share(shrinkage: float) -> None:
    with pytest.raises(InputError, match="shrinkage is a share"):
        GaussianMixture(shrinkage=shrinkage).fit(cloud())


def test_not_fitted_and_other_widths_are_refused() -> None:
    with pytest.raises(NotFittedError, match="has not been fitted"):
        GaussianMixture().score(cloud())
    with pytest.raises(InputError, match="avg has 5 features, and GaussianMixture was fitted to 6"):
        GaussianMixture().fit(cloud()).score(cloud(d=5))


def test_fitting_again_forgets_the_calibration() -> None:
    gmm = GaussianMixture().fit(cloud()).calibrate(cloud(seed=1))
    assert gmm.calibrated
    assert not gmm.fit(cloud(seed=2)).calibrated


def test_a_fit_reads_no_more_than_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of chosen rows is materialised by whatever asks for a whole column; nothing may."""
    n = 3 * CHUNK
    features = Features(avg=torch.rand(n, 3), std=torch.rand(n, 3), labels=torch.arange(n) % 3)
    view = features.subset(torch.arange(0, n - 1))
    read: list[tuple[int, int]] = []
    take = Features.__getitem__

    def spy(self: Features, index: object) -> Features:
        found = take(self, index)
        read.append((len(found), len(found.columns)))
        return found

    monkeypatch.setattr(Features, "__getitem__", spy)
    GaussianMixture().fit(view).score(view)
    assert max(read) == (CHUNK, 1), "one column, a chunk at a time"


# Shrinkage


@pytest.mark.parametrize(("n", "d"), [(40, 5), (100, 30), (30, 60), (1000, 10)])
def test_shrinkage_is_that_of_chen_et_al(n: int, d: int) -> None:
    x = np.random.default_rng(0).standard_normal((n, d)) * np.linspace(1, 3, d)
    S = np.cov(x.T, bias=True)
    trace, square = np.trace(S), np.trace(S @ S)
    rho = ((1 - 2 / d) * square + trace**2) / ((n + 1 - 2 / d) * (square - trace**2 / d))
    assert shrinkage_of(torch.from_numpy(S), n) == pytest.approx(min(rho, 1), rel=1e-12)
    # scikit-learn leaves out the two terms 2/d, as its documentation says
    _, theirs = oas(x)
    mu = trace / d
    assert theirs == pytest.approx(min(1, (square / d**2 + mu**2) / ((n + 1) * (square / d**2 - mu**2 / d))), rel=1e-9)
    assert shrinkage_of(torch.from_numpy(S), n) == pytest.approx(theirs, rel=3 / d)


@pytest.mark.parametrize("d", [1, 4])
def test_a_multiple_of_the_identity_is_shrunk_to_itself(d: int) -> None:
    assert shrinkage_of(2 * torch.eye(d, dtype=torch.float64), 100) == 1.0


# Proposals


def test_proposals_have_the_fitted_moments() -> None:
    train = cloud(4000)
    gmm = GaussianMixture(normalise=False, shrinkage=0.0, frequencies=True).fit(train)
    assert gmm.lower.isinf().all(), "features of both signs are not clipped"
    z = gmm.propose(200_000, seeded())
    _, _, shares = by_numpy(train, False, 0.0)
    total = np.cov(train.avg.numpy().T, bias=True)
    np.testing.assert_allclose(z.mean(0), train.avg.mean(0), rtol=0, atol=0.03)
    np.testing.assert_allclose(np.cov(z.numpy().T), total, rtol=0, atol=0.03 * np.trace(total) / 6)

    y = (gmm.whiten(z) @ gmm.nu.T - 0.5 * gmm.nu.square().sum(1) + gmm.log_weights).argmax(1)
    real = (gmm.whiten(train.avg) @ gmm.nu.T - 0.5 * gmm.nu.square().sum(1) + gmm.log_weights).argmax(1)
    np.testing.assert_allclose(np.bincount(y) / len(y), np.bincount(real) / len(real), rtol=0, atol=0.02)
    assert abs(shares - 0.25).max() > 0.1, "the shares are unequal, so the test can see them"


def test_one_class_proposals_have_the_fitted_covariance() -> None:
    gmm = GaussianMixture(normalise=False, shrinkage=0.0).fit(cloud(classes=1))
    y = gmm.whiten(gmm.propose(100_000, seeded()))
    torch.testing.assert_close(y.mean(0), torch.zeros(6, dtype=torch.float64), rtol=0, atol=0.02)
    torch.testing.assert_close(torch.cov(y.T), torch.eye(6, dtype=torch.float64), rtol=0, atol=0.02)


@pytest.mark.parametrize("frequencies", [False, True])
def test_class_shares_follow_the_weights(frequencies: bool) -> None:
    y = (torch.arange(2000) % 10 == 0).long()
    z = torch.randn(2000, 3, generator=seeded(), dtype=torch.float64)
    z[:, 0] += 100 * y
    gmm = GaussianMixture(normalise=False, frequencies=frequencies).fit(Features(avg=z, labels=y))
    share = (gmm.propose(50_000, seeded())[:, 0] > 50).double().mean()
    assert share.item() == pytest.approx(0.1 if frequencies else 0.5, abs=0.01)


def test_proposals_follow_the_seed() -> None:
    gmm = GaussianMixture().fit(cloud())
    assert torch.equal(gmm.propose(50, seeded(1)), gmm.propose(50, seeded(1)))
    assert not torch.equal(gmm.propose(50, seeded(1)), gmm.propose(50, seeded(2)))


def test_widen_scales_the_spread_about_the_class_means() -> None:
    gmm = GaussianMixture(normalise=False, shrinkage=0.0).fit(cloud())
    n = 20_000
    widen = torch.where(torch.arange(n) % 2 == 0, 1.0, 4.0).double()
    narrow, wide = gmm.propose(n, seeded()), gmm.propose(n, seeded(), widen)
    torch.testing.assert_close(narrow[::2], wide[::2])
    still = gmm.propose(n, seeded(), torch.zeros(n, dtype=torch.float64))
    torch.testing.assert_close((wide - still)[1::2], 4 * (narrow - still)[1::2])
    distances = torch.cdist(still, gmm.colour_in(gmm.nu)).amin(1)
    assert distances.max() < 1e-6, "without spread, proposals are the class means"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_proposals_live_where_real_features_do(dtype: torch.dtype) -> None:
    g = seeded()
    z = torch.randn(400, 6, generator=g, dtype=dtype)
    z[:, :4] = z[:, :4].relu()
    train = Features(avg=z, std=2 + torch.rand(400, 3, generator=g, dtype=dtype), labels=torch.arange(400) % 2)
    columns, widths = ("avg", "std"), [6, 3]

    unit = GaussianMixture(columns).fit(train).propose(500, seeded())
    for block in unit.split(widths, 1):
        torch.testing.assert_close(block.norm(dim=1), torch.ones(500, dtype=dtype))
    plain = GaussianMixture(columns, normalise=False).fit(train).propose(500, seeded())
    assert not torch.allclose(plain.norm(dim=1), torch.ones(500, dtype=dtype), atol=0.1)
    for proposals in (unit, plain):
        assert (proposals[:, [0, 1, 2, 3, 6, 7, 8]] >= 0).all()
        assert (proposals[:, :4] == 0).any(), "non-negative channels are clipped"
        assert (proposals[:, 4:6] < 0).float().mean() > 0.2, "channels of both signs are not"


def test_projection_changes_no_real_sample() -> None:
    train = cloud(relu=True)
    for normalise in (False, True):
        gmm = GaussianMixture(normalise=normalise).fit(train)
        z = gmm.space(train)
        torch.testing.assert_close(gmm.project(z), z, rtol=0, atol=1e-12)
        moved = gmm.project(z + torch.randn(z.shape, generator=seeded(), dtype=z.dtype))
        torch.testing.assert_close(gmm.project(moved), moved, rtol=0, atol=1e-12)


@pytest.mark.parametrize("labels", ["all", "gaps", "none"])
def test_a_stand_in_mixture_needs_no_labels(labels: str) -> None:
    train = cloud(classes=4)
    y = {"all": train.labels, "gaps": train.labels.clamp(max=2), "none": None}[labels]
    features = Features(avg=train.avg, labels=y, head=(torch.ones(4, 6), None))
    gmm = mixture_of(features, Space(("avg",), normalise=False))
    assert len(gmm.nu) == 4
    assert torch.isfinite(gmm.propose(10, seeded())).all()


def test_a_stand_in_mixture_proposes_the_norms_of_real_samples() -> None:
    train = cloud(4000)
    features = Features(avg=train.avg * (1 + torch.rand(4000, 1, generator=seeded())), labels=train.labels)
    gmm = mixture_of(features, Space(("avg",), normalise=False))
    norms, real = gmm.propose(4000, seeded()).norm(dim=1).sort().values, features.avg.norm(dim=1).sort().values
    assert (norms - real).abs().max() < 0.05 * real.max()
    assert (norms - real).abs().mean() < 0.002 * real.mean()
