"""The Gaussian mixture's energy against independent computations, on shapes that bite."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from gmm_reference import by_numpy, cloud, reference, seeded
from heat_ood.energies import GaussianMixture
from heat_ood.energies._gmm import factor, shrinkage_of
from heat_ood.errors import InputError
from heat_ood.features import Features
from peaks import PEAK

# Energy


@pytest.mark.parametrize("frequencies", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "classes", "shrinkage", "normalise"),
    [
        *((300, 6, 4, 0.0, False), (300, 6, 4, 0.3, False), (80, 1, 3, 0.0, False), (50, 5, 1, 0.1, False)),
        *((300, 6, 4, 1e-3, True), (300, 6, 4, 0.3, True), (50, 5, 1, 0.1, True)),  # one channel would be a sign
    ],
)
def test_energy_is_the_negative_log_density(
    n: int, d: int, classes: int, shrinkage: float, normalise: bool, frequencies: bool
) -> None:
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


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-9), (torch.float32, 2e-3)])
def test_the_ready_gradient_is_the_same(normalise: bool, dtype: torch.dtype, rtol: float) -> None:
    train, test = cloud(300, 6, 4), cloud(40, 6, 4, seed=1)
    gmm = GaussianMixture(normalise=normalise, frequencies=True).fit(train)
    z = gmm.space(test)
    expected = gmm.gradient_of(z)
    found = gmm.to(dtype=dtype).ready_gradient()(z.to(dtype)).double()
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol * float(expected.abs().amax()))


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


@pytest.mark.parametrize(("constant", "normalise"), [(0.0, False), (0.0, True), (3.0, False)])
def test_dead_channels_are_dropped(constant: float, normalise: bool) -> None:
    """On the sphere a constant channel varies, unless it is zero."""
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
    script = f"""{PEAK}
import torch
from heat_ood.energies import GaussianMixture
from heat_ood.features import Features
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
z = torch.randn(2000, 2048, generator=g).relu_()
features = Features(avg=z, labels=torch.arange(2000) % 1000)
torch.randn(512, 512) @ torch.randn(512, 512)
base = peak()
gmm = GaussianMixture().fit(features)
fitted = peak()
score = gmm.score(features)
gradient = gmm.gradient_of(gmm.propose(256, g))
most = peak()
assert torch.isfinite(score).all() and torch.isfinite(gradient).all() and gmm.nu.shape == (1000, 2048)
print((fitted - base) / 2**10, (most - fitted) / 2**10)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    fit, score = map(float, out.stdout.split())
    assert fit < 600, f"{fit:.0f} MiB to fit: a 2048² float64 matrix is 32 MiB"
    assert score < 200, f"{score:.0f} MiB to score"
