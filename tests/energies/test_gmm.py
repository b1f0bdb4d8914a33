"""The Gaussian mixture: against torch.distributions and numpy, on shapes that bite."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from heat_ood.energies import GaussianMixture
from heat_ood.energies.gmm import CHUNK, factor, mixture_of, shrinkage_of
from heat_ood.errors import InputError, NotFittedError
from heat_ood.features import Features, Space


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cloud(n: int = 300, d: int = 6, classes: int = 4, seed: int = 0, relu: bool = False) -> Features:
    """Correlated classes of unequal size, in float64."""
    g = seeded(seed)
    y = (torch.rand(n, generator=g).square() * classes).long()
    y[:classes] = torch.arange(classes)
    y[-classes:] = torch.arange(classes)
    mix = torch.randn(d, d, generator=g, dtype=torch.float64) / math.sqrt(d)
    centres = 2 * torch.randn(classes, d, generator=g, dtype=torch.float64)
    z = centres[y] + torch.randn(n, d, generator=g, dtype=torch.float64) @ mix
    return Features(avg=z.relu() if relu else z, labels=y)


def by_numpy(features: Features, normalise: bool, shrinkage: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class means, shrunk pooled covariance and class shares, the long way."""
    z, y = features.avg.numpy(), features.labels.numpy()
    z = z / np.linalg.norm(z, axis=1, keepdims=True) if normalise else z
    classes = y.max() + 1
    means = np.stack([z[y == c].mean(0) for c in range(classes)])
    covariance = (z - means[y]).T @ (z - means[y]) / len(z)
    d = len(covariance)
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    return means, covariance, np.bincount(y) / len(y)


def reference(features: Features, normalise: bool, shrinkage: float, frequencies: bool) -> MixtureSameFamily:
    means, covariance, shares = (torch.from_numpy(a) for a in by_numpy(features, normalise, shrinkage))
    weights = shares if frequencies else torch.ones_like(shares)
    return MixtureSameFamily(Categorical(weights), MultivariateNormal(means, covariance.expand(len(means), -1, -1)))


# Energy


@pytest.mark.parametrize("frequencies", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "classes", "shrinkage"), [(300, 6, 4, 0.0), (300, 6, 4, 0.3), (80, 1, 3, 0.0), (50, 5, 1, 0.1)]
)
def test_energy_is_the_negative_log_density(
    n: int, d: int, classes: int, shrinkage: float, normalise: bool, frequencies: bool
) -> None:
    if normalise and d == 1:
        pytest.skip("one channel on the unit sphere is a sign")
    if normalise and shrinkage == 0:
        shrinkage = 1e-3
    train, test = cloud(n, d, classes), cloud(40, d, classes, seed=1)
    gmm = GaussianMixture(normalise=normalise, shrinkage=shrinkage, frequencies=frequencies).fit(train)
    expected = -reference(train, normalise, shrinkage, frequencies).log_prob(gmm.space(test))
    torch.testing.assert_close(gmm.energy(test), expected, rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(gmm.energy_of(gmm.space(test)), expected, rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(gmm.score(test), expected, rtol=1e-12, atol=1e-9)


def test_more_features_than_samples() -> None:
    train, test = cloud(30, 50, 3), cloud(20, 50, 3, seed=1)
    gmm = GaussianMixture(normalise=False).fit(train)
    d = train.avg.shape[1]
    _, raw, _ = by_numpy(train, False, 0.0)
    rho = shrinkage_of(torch.from_numpy(raw), len(train))
    assert 0 < rho < 1
    expected = -reference(train, False, rho, False).log_prob(test.avg)
    torch.testing.assert_close(gmm.score(test), expected, rtol=0, atol=1e-8)
    assert gmm.white.shape == (d, d)


@pytest.mark.parametrize("d", [5, 40])
def test_a_singular_covariance_is_shrunk_as_little_as_it_takes(d: int) -> None:
    train = cloud(12, d, 3)
    train.avg[:, -1] = train.avg[:, 0] + train.avg[:, 1]
    gmm = GaussianMixture(normalise=False, shrinkage=0.0).fit(train)
    assert torch.isfinite(gmm.score(train)).all()
    _, raw, _ = by_numpy(train, False, 0.0)
    L = gmm.colour
    np.testing.assert_allclose(L @ L.T, raw, rtol=0, atol=1e-8 * np.trace(raw))


def test_factor_gives_up_nowhere() -> None:
    a = -torch.eye(3, dtype=torch.float64)
    a[0, 0] = 100  # far from positive definite: only full shrinkage helps
    L, inverse = factor(a, 0.5)
    torch.testing.assert_close(L @ inverse, torch.eye(3, dtype=torch.float64))
    assert torch.isfinite(L).all()


def test_whitened_samples_have_identity_covariance_within_classes() -> None:
    train = cloud()
    gmm = GaussianMixture(normalise=False, shrinkage=0.0).fit(train)
    y = gmm.coordinates(train)
    means = torch.stack([y[train.labels == c].mean(0) for c in range(4)])
    within = y - means[train.labels]
    eye = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(within.T @ within / len(y), eye, rtol=0, atol=1e-9)
    torch.testing.assert_close(means, gmm.nu, rtol=0, atol=1e-9)
    torch.testing.assert_close(gmm.nu.mean(0), torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(gmm.colour_in(y), train.avg, rtol=0, atol=1e-9)


@pytest.mark.parametrize("normalise", [False, True])
def test_gradient_equals_autograd_and_differences(normalise: bool) -> None:
    gmm = GaussianMixture(normalise=normalise).fit(cloud())
    z = gmm.space(cloud(9, seed=2)).clone().requires_grad_()
    (auto,) = torch.autograd.grad(gmm.energy_of(z).sum(), z)
    gradient = gmm.gradient_of(z.detach())
    torch.testing.assert_close(gradient, auto, rtol=1e-10, atol=1e-10)

    h = 1e-6
    steps = h * torch.eye(6, dtype=torch.float64)
    up, down = (torch.stack([gmm.energy_of(z.detach() + s * e) for e in steps], 1) for s in (1, -1))
    torch.testing.assert_close(gradient, (up - down) / (2 * h), rtol=1e-6, atol=1e-5)


def test_gradient_at_equals_autograd_in_whitened_space() -> None:
    gmm = GaussianMixture(frequencies=True).fit(cloud())
    y = 3 * torch.randn(9, 6, generator=seeded(), dtype=torch.float64)
    y.requires_grad_()
    (auto,) = torch.autograd.grad(gmm.energy_at(y).sum(), y)
    torch.testing.assert_close(gmm.gradient_at(y.detach()), auto, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 1.0])
def test_a_rotation_of_the_features_changes_nothing(shrinkage: float) -> None:
    train, test = cloud(), cloud(50, seed=1)
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=seeded(), dtype=torch.float64)).Q
    turned = [Features(avg=f.avg @ rotation + 5, labels=f.labels) for f in (train, test)]
    one, other = (
        GaussianMixture(normalise=False, shrinkage=shrinkage).fit(a).score(b) for a, b in ((train, test), turned)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_batch_size_and_order_do_not_matter(size: int) -> None:
    train, test = cloud(), cloud(100, seed=1)
    gmm = GaussianMixture().fit(train)
    order = torch.randperm(100, generator=seeded())
    torch.testing.assert_close(gmm.score(test[order], size), gmm.score(test)[order], rtol=0, atol=1e-11)
    shuffled = GaussianMixture().fit(train[torch.randperm(len(train), generator=seeded())])
    torch.testing.assert_close(shuffled.score(test), gmm.score(test), rtol=0, atol=1e-8)


# Shapes that bite


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("constant", [0.0, 3.0])
def test_dead_channels_are_dropped(constant: float, normalise: bool) -> None:
    if normalise and constant:
        pytest.skip("on the sphere a constant channel varies")
    train, test = cloud(), cloud(50, seed=1)

    def with_dead(f: Features) -> Features:
        dead = torch.full((len(f), 2), constant, dtype=torch.float64)
        return Features(avg=torch.cat([f.avg[:, :3], dead, f.avg[:, 3:]], 1), labels=f.labels)

    plain = GaussianMixture(normalise=normalise).fit(train)
    dead = GaussianMixture(normalise=normalise).fit(with_dead(train))
    assert dead.white.shape == (6, 8)
    torch.testing.assert_close(dead.score(with_dead(test)), plain.score(test), rtol=0, atol=1e-9)
    assert torch.equal(dead.gradient_of(dead.space(with_dead(test)))[:, 3:5], torch.zeros(50, 2, dtype=torch.float64))
    proposals = dead.propose(100, seeded())
    torch.testing.assert_close(proposals[:, 3:5], torch.full((100, 2), constant, dtype=torch.float64))


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_a_channel_that_is_constant_within_classes_is_dropped(scale: float, spread: float) -> None:
    train, test = cloud(1000), cloud(50, seed=1)

    def with_constant(f: Features) -> Features:
        label = scale * torch.sin(1.0 + f.labels)[:, None].double()
        return Features(avg=torch.cat([spread * f.avg, label], 1), labels=f.labels)

    gmm = GaussianMixture(normalise=False, shrinkage=0.0).fit(with_constant(train))
    assert gmm.white.shape == (6, 7)
    plain = GaussianMixture(normalise=False, shrinkage=0.0).fit(train)
    difference = gmm.score(with_constant(test)) - plain.score(test)
    torch.testing.assert_close(difference, torch.full_like(difference, 6 * math.log(spread)), rtol=0, atol=1e-6)


def test_no_variation_at_all() -> None:
    with pytest.raises(InputError, match="no feature varies within its class"):
        GaussianMixture().fit(Features(avg=torch.ones(10, 3), labels=torch.zeros(10, dtype=torch.long)))


def test_one_class_is_half_the_squared_mahalanobis_distance() -> None:
    train = cloud(classes=1)
    gmm = GaussianMixture(normalise=False, shrinkage=0.0).fit(train)
    means, covariance, _ = by_numpy(train, False, 0.0)
    x = train.avg.numpy() - means[0]
    distance = np.einsum("ni,ij,nj->n", x, np.linalg.inv(covariance), x) / 2
    constant = 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(gmm.score(train), distance + constant, rtol=0, atol=1e-9)


def test_imbalanced_classes_weigh_alike_or_by_frequency() -> None:
    g = seeded()
    y = torch.zeros(5000, dtype=torch.long)
    y[:5] = 1
    z = torch.randn(5000, 3, generator=g, dtype=torch.float64)
    z[:, 0] += 50 * y
    train = Features(avg=z, labels=y)
    common, rare = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[50.0, 0, 0]], dtype=torch.float64)

    alike = GaussianMixture(normalise=False).fit(train)
    torch.testing.assert_close(alike.score(common), alike.score(rare), rtol=0, atol=1.0)
    shares = GaussianMixture(normalise=False, frequencies=True).fit(train)
    change = (shares.score(rare) - shares.score(common)) - (alike.score(rare) - alike.score(common))
    torch.testing.assert_close(change, torch.tensor([math.log(4995 / 5)], dtype=torch.float64), rtol=0, atol=1e-6)


def test_float16_features_score_as_their_float32_copies() -> None:
    train, test = cloud(d=32, relu=True), cloud(100, d=32, seed=1, relu=True)
    half, single, double = (
        GaussianMixture()
        .fit(Features(avg=train.avg.to(t), labels=train.labels))
        .score(Features(avg=test.avg.to(t)))
        .double()
        for t in (torch.float16, torch.float32, torch.float64)
    )
    assert (half - single).abs().max() < 0.02 * double.std()
    assert (single - double).abs().max() < 1e-4 * double.std()


def test_a_thousand_classes_of_2048_dimensions() -> None:
    """In a process of its own: no n × C × d tensor (a batch of 256 would take 2 GiB), no second covariance a class."""
    script = """
import resource, time, torch
from heat_ood.energies import GaussianMixture
from heat_ood.features import Features
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
z = torch.randn(2000, 2048, generator=g).relu_()
features = Features(avg=z, labels=torch.arange(2000) % 1000)
torch.randn(512, 512) @ torch.randn(512, 512)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
gmm = GaussianMixture().fit(features)
fitted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
score = gmm.score(features)
gradient = gmm.gradient_of(gmm.propose(256, g))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert torch.isfinite(score).all() and torch.isfinite(gradient).all() and gmm.nu.shape == (1000, 2048)
print((fitted - base) / 2**10, (peak - fitted) / 2**10, seconds)
"""
    assert resource.RUSAGE_SELF is not None
    start = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    fit, score, _ = map(float, out.stdout.split())
    assert fit < 600, f"{fit:.0f} MiB to fit: a 2048² float64 matrix is 32 MiB"
    assert score < 200, f"{score:.0f} MiB to score"
    assert time.perf_counter() - start < 60


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
