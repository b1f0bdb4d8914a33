"""Chains as the paper's released code has them: white noise as a start, starts as negatives, another decay and rate."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.energies import FreeEnergy, GaussianMixture
from heat_ood.residual import Hybrid, Network
from heat_ood.residual._coordinates import Coordinates
from heat_ood.residual._negatives import Negatives


def samples(n: int = 600, d: int = 16) -> Features:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    centre = torch.rand(2, d, generator=generator)
    z = (centre[labels] + 0.5 * torch.randn(n, d, generator=generator)).relu()
    return Features(avg=z, labels=labels, head=(torch.randn(2, d, generator=generator), torch.zeros(2)))


def negatives_of(prior: GaussianMixture | FreeEnergy, settings: Residual) -> Negatives:
    generator = torch.Generator().manual_seed(0)
    return Negatives(prior, Coordinates(prior.mixture, settings.whiten), 1.0, settings, generator, lambda n: None)


CHAINS = Residual(steps=3, step=(0.01, 0.001), noise=(0.01, 0.001), whiten=False)


@pytest.mark.parametrize("normalise", [True, False])
def test_white_noise_starts_where_features_live(normalise: bool) -> None:
    prior = GaussianMixture(normalise=normalise).fit(samples())
    start = negatives_of(prior, replace(CHAINS, start="noise")).white_noise(5000)
    assert (start >= 0).all(), "as the features are"
    if normalise:
        torch.testing.assert_close(start.norm(dim=1), torch.ones(5000))
    else:
        assert (start > 0).float().mean() == pytest.approx(0.5, abs=0.01), "ReLU of a symmetric law"
        assert start.mean() == pytest.approx(1 / math.sqrt(2 * math.pi), abs=0.01)


def test_starts_are_negatives_beside_the_ends() -> None:
    prior = GaussianMixture().fit(samples())
    network = Network(16, 8)
    both = negatives_of(prior, replace(CHAINS, keep_starts=True)).draw(100, network)
    moved = negatives_of(prior, CHAINS).draw(100, network)
    start = negatives_of(prior, CHAINS).propose(100)
    assert torch.equal(both, torch.cat([moved, start])), "the same draws, and their starts"
    assert not torch.equal(moved, start)


@pytest.mark.parametrize("start", ["prior", "persistent", "data", "noise"])
def test_every_start_trains_with_its_starts_kept(start: str) -> None:
    settings = replace(CHAINS, start=start, keep_starts=True, hidden=16, epochs=2, decay="quadratic", patience=1.0)
    detector = HEAT(("gmm", "energy"), residual=settings).fit(samples(), progress=False)
    again = HEAT(("gmm", "energy"), residual=settings).fit(samples(), progress=False)
    assert torch.equal(detector.score(samples()), again.score(samples()))
    assert all(math.isfinite(v) for log in detector.log.values() for e in log for v in e.values())


def test_a_rate_that_drops_and_one_that_is_annealed() -> None:
    dropped = Residual(lr=1e-5, anneal=False, drop_after=10)
    assert [dropped.rate(step, 4, 20) for step in (0, 39, 40, 79)] == pytest.approx([1e-5, 1e-5, 1e-6, 1e-6])
    assert [Residual(lr=1e-5, anneal=False).rate(step, 4, 20) for step in (0, 79)] == [1e-5, 1e-5]
    assert Residual(lr=1.0).rate(40, 4, 20) == pytest.approx(0.5), "half of the way, half of the rate"


def test_adams_betas_are_the_settings() -> None:
    for betas in ((0.0, 0.999), (0.9, 0.99)):
        hybrid = Hybrid(GaussianMixture().fit(samples()), Residual(betas=betas, hidden=8))
        assert hybrid.prepare(samples()).optimiser.param_groups[0]["betas"] == betas


@pytest.mark.parametrize(
    "wrong",
    [
        {"decay": "cubic"},
        {"betas": (0.9, 1.0)},
        {"drop_after": 0, "anneal": False},
        {"drop_after": 5},
        {"keep_starts": True},
    ],
    ids=str,
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"Residual.*{next(iter(wrong))}"):
        Residual(**wrong).check()
