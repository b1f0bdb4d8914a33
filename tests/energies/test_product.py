"""Gaussian mixtures side by side, against the dense computation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from gmm_reference import by_numpy, cloud, seeded
from heat_ood.energies import GaussianMixture
from heat_ood.energies._product import product_of
from heat_ood.errors import InputError
from heat_ood.features import Features

GROUPS = (("avg",), ("std", "avg@deep"), ("std@deep",))
WIDTHS = {"avg": 5, "std": 4, "avg@deep": 3, "std@deep": 6}


def groups(n: int = 400, classes: int = 3, seed: int = 0, spacing: float = 1.0) -> Features:
    """Four columns that vary together within a class, so that one covariance of all of them is not block-diagonal."""
    g = seeded(seed)
    y = torch.arange(n) % classes
    common = torch.randn(n, 3, generator=g, dtype=torch.float64)
    columns = {}
    for name, width in WIDTHS.items():
        mix, centres = (
            torch.randn(k, width, generator=seeded(width + i), dtype=torch.float64) for i, k in enumerate((3, classes))
        )
        own = torch.randn(n, width, generator=g, dtype=torch.float64)
        columns[name] = spacing * centres[y] + common @ mix + 0.5 * own
    layers = {"deep": (columns["avg@deep"], columns["std@deep"])}
    return Features(avg=columns["avg"], std=columns["std"], labels=y, layers=layers)


def mixtures(train: Features, **settings: Any) -> list[GaussianMixture]:
    return [GaussianMixture(group, **settings).fit(train) for group in GROUPS]


def side_by_side(mixture: GaussianMixture, features: Features) -> list[Tensor]:
    """The points of each group."""
    return [part.space(features) for part in (GaussianMixture(g, mixture.normalise) for g in GROUPS)]


def dense(train: Features, normalise: bool, shrinkage: float, frequencies: bool) -> MixtureSameFamily:
    """Class means, and one covariance whose blocks off the diagonal are zero."""
    means, blocks, shares = [], [], torch.empty(0)
    for group in GROUPS:
        z = GaussianMixture(group, normalise).space(train)
        centre, block, count = by_numpy(Features(avg=z, labels=train.labels), False, shrinkage)
        means.append(torch.from_numpy(centre))
        blocks.append(torch.from_numpy(block))
        shares = torch.from_numpy(count)
    mu, sigma = torch.cat(means, 1), torch.block_diag(*blocks)
    weights = shares if frequencies else torch.ones_like(shares)
    return MixtureSameFamily(Categorical(weights), MultivariateNormal(mu, sigma.expand(len(mu), -1, -1)))


# Energy


@pytest.mark.parametrize("frequencies", [False, True])
@pytest.mark.parametrize(("normalise", "shrinkage"), [(False, 0.0), (False, 0.3), (True, 0.01)])
@pytest.mark.parametrize("classes", [1, 3])
def test_energy_is_the_negative_log_density(classes: int, normalise: bool, shrinkage: float, frequencies: bool) -> None:
    train, test = groups(classes=classes), groups(50, classes, seed=1)
    both = product_of(mixtures(train, normalise=normalise, shrinkage=shrinkage, frequencies=frequencies))
    z = torch.cat(side_by_side(both, test), 1)
    expected = -dense(train, normalise, shrinkage, frequencies).log_prob(z)
    torch.testing.assert_close(both.energy(test), expected, rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(both.score(test), expected, rtol=1e-12, atol=1e-9)
    both.validate()


def test_energies_of_one_class_add_up() -> None:
    train, test = groups(classes=1), groups(50, 1, seed=1)
    parts = mixtures(train)
    total = torch.stack([part.energy(test) for part in parts]).sum(0)
    torch.testing.assert_close(product_of(parts).energy(test), total, rtol=0, atol=1e-10)


def test_the_class_ties_the_groups_together() -> None:
    """Of several classes the energies do not add up: a sample has the same class in all groups."""
    train = groups(classes=3, spacing=6.0)
    parts = mixtures(train, normalise=False)
    a, b = train[:1], train[1:2]
    assert a.labels is not None
    assert a.labels != b.labels
    mixed = Features(avg=a.avg, std=b.std, layers={"deep": (b.layers["deep"].avg, b.layers["deep"].std)})
    total = torch.stack([part.energy(mixed) for part in parts]).sum(0)
    assert (product_of(parts).energy(mixed) > total + 10).all()


def test_whitening_is_that_of_the_parts() -> None:
    train, test = groups(), groups(50, seed=1)
    train.avg[:, 2] = test.avg[:, 2] = 0.0  # a channel that never varies
    parts = mixtures(train)
    both = product_of(parts)
    expected = torch.cat([part.coordinates(test) for part in parts], 1)
    torch.testing.assert_close(both.coordinates(test), expected, rtol=0, atol=1e-11)
    assert both.white.shape == (sum(WIDTHS.values()) - 1, sum(WIDTHS.values()))
    assert tuple(both.columns) == tuple(c for group in GROUPS for c in group)
    y = both.coordinates(train)
    assert train.labels is not None
    within = (y - torch.stack([y[train.labels == c].mean(0) for c in range(3)])[train.labels]).T.cov(correction=0)
    start = 0
    for part in parts:
        end = start + len(part.white)
        torch.testing.assert_close(within[start:end, start:end], torch.eye(end - start).double(), rtol=0, atol=0.2)
        start = end


def test_gradient_is_autograds() -> None:
    train = groups()
    both = product_of(mixtures(train))
    z = torch.cat(side_by_side(both, groups(20, seed=1)), 1).requires_grad_()
    (expected,) = torch.autograd.grad(both.energy_of(z).sum(), z)
    torch.testing.assert_close(both.gradient_of(z.detach()), expected, rtol=0, atol=1e-9)


# Proposals


def test_proposals_are_independent_across_groups_and_as_fitted_within() -> None:
    """The data vary together across groups, the proposals do not; within a group they have its covariance."""
    train, n = groups(2000, classes=1), 60_000
    parts = mixtures(train, normalise=False, shrinkage=0.0)
    both = product_of(parts)
    z = both.propose(n, seeded())
    covariance = z.T.cov(correction=0)
    scale = covariance.diagonal().sqrt()
    correlation = covariance / scale / scale[:, None]

    across = torch.ones_like(covariance, dtype=torch.bool)
    start = 0
    for part in parts:
        end = start + part.white.shape[1]
        fitted = part.colour @ part.colour.T
        torch.testing.assert_close(covariance[start:end, start:end], fitted, rtol=0.05, atol=0.03 * fitted.max().item())
        across[start:end, start:end] = False
        start = end
    assert correlation[across].abs().max() < 5 / math.sqrt(n)
    real = torch.cat(side_by_side(both, train), 1).T.corrcoef()
    assert real[across].abs().max() > 0.7, "else independence would be nothing to see"


def test_a_proposal_has_one_class_in_all_groups() -> None:
    train = groups(1200, classes=3, spacing=6.0)
    parts = mixtures(train, normalise=False)
    both = product_of(parts)
    z = both.propose(3000, seeded())
    chosen = [
        part.affinity(part.whiten(block)).argmax(1)
        for part, block in zip(parts, z.split([p.white.shape[1] for p in parts], 1), strict=True)
    ]
    for other in chosen[1:]:
        assert (other == chosen[0]).double().mean() > 0.99
    assert (chosen[0].bincount(minlength=3) > 800).all()


def test_proposals_are_projected_column_by_column() -> None:
    train = groups()
    positive = Features(
        avg=train.avg.relu(), std=train.std.exp(), labels=train.labels, layers={"deep": (train.avg, train.std.relu())}
    )
    both = product_of(mixtures(positive))
    blocks = both.propose(200, seeded()).split([5, 4, 5, 4], 1)
    for block in blocks:
        torch.testing.assert_close(block.norm(dim=1), torch.ones(200).double())
    assert [bool((block >= 0).all()) for block in blocks] == [True, True, False, True]


# What is refused


REFUSED: dict[str, list[dict[str, Any]]] = {
    "the same column twice": [{"columns": ("avg",)}, {"columns": ("avg",)}],
    "overlapping columns": [{"columns": ("avg",)}, {"columns": ("std", "avg")}],
    "other classes": [{"columns": ("avg",)}, {"columns": ("std",), "clusters": 5}],
    "one normalised": [{"columns": ("avg",)}, {"columns": ("std",), "normalise": False}],
    "norms": [{"columns": (c,), "normalise": False, "match_norms": True} for c in ("avg", "std")],
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_product(case: str) -> None:
    parts = [GaussianMixture(**settings).fit(groups()) for settings in REFUSED[case]]
    with pytest.raises(InputError, match=r"have no product.* Fit one mixture to all columns"):
        product_of(parts)


def test_the_parts_stay_as_they_are() -> None:
    parts = mixtures(groups())
    before = [{name: tensor.clone() for name, tensor in part.state_dict().items()} for part in parts]
    product_of(parts).to(torch.float32)
    for part, old in zip(parts, before, strict=True):
        assert all(torch.equal(part.state_dict()[name], tensor) for name, tensor in old.items())


@pytest.mark.parametrize("first", [torch.float32, torch.float64])
def test_parts_of_several_precisions_take_the_firsts(first: torch.dtype) -> None:
    train = groups()
    other = torch.float64 if first == torch.float32 else torch.float32
    mixed = Features(avg=train.avg.to(first), std=train.std.to(other), labels=train.labels)
    both = product_of([GaussianMixture((c,)).fit(mixed) for c in ("avg", "std")])
    both.validate()
    assert both.score(mixed).dtype == first
    exact = product_of([GaussianMixture((c,)).fit(train) for c in ("avg", "std")])
    torch.testing.assert_close(both.score(mixed).double(), exact.score(train), rtol=1e-3, atol=1e-3)


def test_one_part_is_itself() -> None:
    train = cloud()
    gmm = GaussianMixture().fit(train)
    assert torch.equal(product_of([gmm]).energy(train), gmm.energy(train))


def test_groups_are_whitened_apart_as_the_whole_matrix_would() -> None:
    train = groups()
    both = product_of(mixtures(train))
    z = torch.cat([GaussianMixture(group).space(train) for group in GROUPS], 1)
    y = both.whiten(z)
    torch.testing.assert_close(y, GaussianMixture.whiten(both, z))
    torch.testing.assert_close(both.colour_in(y), GaussianMixture.colour_in(both, y))
    torch.testing.assert_close(both.colour_in(y), z)
