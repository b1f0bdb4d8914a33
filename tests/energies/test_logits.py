"""Energies of the logits: against scipy and autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from torch import Tensor

from heat_ood.energies import FreeEnergy, MaximumSoftmax
from heat_ood.errors import InputError
from heat_ood.features import Features


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def with_head(n: int = 80, d: int = 5, classes: int = 3, **more: Tensor) -> Features:
    z = randn(n, d, seed=n).relu()
    labels = torch.arange(n) % classes
    return Features(avg=z, labels=labels, head=(randn(classes, d, seed=7), randn(classes, seed=8)), **more)


# Free energy


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("classes", [1, 2, 10])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_energy_equals_scipy(temperature: float, classes: int, scale: float) -> None:
    logits = scale * randn(50, classes)
    expected = -temperature * logsumexp(logits.numpy() / temperature, axis=1)
    energy = FreeEnergy(temperature).fit(Features(logits=logits))
    np.testing.assert_allclose(energy.score(logits), expected, rtol=1e-12)
    np.testing.assert_allclose(energy.score(Features(logits=logits)), expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_gradient_goes_through_the_head(temperature: float) -> None:
    features = with_head()
    energy = FreeEnergy(temperature).fit(features)
    assert energy.space.columns == ("avg",)
    z = features.avg.clone().requires_grad_()
    (auto,) = torch.autograd.grad(energy.energy_of(z).sum(), z)
    torch.testing.assert_close(energy.gradient_of(features.avg), auto, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(energy.energy_of(features.avg), energy.score(features), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_logits_alone_are_their_own_space(temperature: float) -> None:
    features = Features(logits=randn(80, 3), labels=torch.arange(80) % 3)
    energy = FreeEnergy(temperature, proposals=True).fit(features)
    assert energy.space.columns == ("logits",)
    z = features.logits.clone().requires_grad_()
    (auto,) = torch.autograd.grad(energy.energy_of(z).sum(), z)
    torch.testing.assert_close(energy.gradient_of(features.logits), auto, rtol=1e-10, atol=1e-12)
    assert energy.propose(10, seeded()).shape == (10, 3)


def test_proposals_are_features_that_the_head_reads() -> None:
    features = with_head()
    z = FreeEnergy(proposals=True).fit(features).propose(200, seeded())
    assert z.shape == (200, 5)
    assert (z >= 0).all()
    norms = features.avg.norm(dim=1)
    assert z.norm(dim=1).min() >= norms.min() - 1e-9
    assert z.norm(dim=1).max() <= norms.max() + 1e-9


def test_without_proposals_it_refuses_to_propose() -> None:
    with pytest.raises(InputError, match="proposals=True"):
        FreeEnergy().fit(with_head()).propose(3)


def test_given_logits_are_scored_as_they_are() -> None:
    features = with_head(logits=randn(80, 3))
    expected = -logsumexp(features.logits.numpy(), axis=1)
    np.testing.assert_allclose(FreeEnergy().fit(features).score(features), expected, rtol=1e-12)


def test_a_second_fit_forgets_the_first_head() -> None:
    energy = FreeEnergy().fit(with_head())
    energy.fit(Features(logits=randn(80, 3)))
    assert energy.space.columns == ("logits",)
    assert energy.weight is None


def test_half_precision_is_computed_in_float32() -> None:
    logits = 100 * randn(50, 10)
    score = FreeEnergy().fit(Features(logits=logits.half())).score(Features(logits=logits.half()))
    assert score.dtype == torch.float32
    np.testing.assert_allclose(score, -logsumexp(logits.half().double().numpy(), axis=1), rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_is_positive(temperature: float) -> None:
    with pytest.raises(InputError, match="temperature must be positive"):
        FreeEnergy(temperature).fit(with_head())


@pytest.mark.parametrize("method", [FreeEnergy, MaximumSoftmax])
def test_no_logits(method: type) -> None:
    features = Features(avg=randn(10, 3))
    with pytest.raises(InputError, match=r"needs logits|logits is missing"):
        method().fit(features).score(features)


@pytest.mark.parametrize("energy", [FreeEnergy(), MaximumSoftmax()])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_named(energy: FreeEnergy | MaximumSoftmax, value: float) -> None:
    logits = randn(50, 3)
    logits[31, 1] = value
    with pytest.raises(
        InputError, match=r"1 samples have no finite score, the first is sample 31: logits is not finite"
    ):
        energy.fit(Features(logits=randn(50, 3))).score(logits, batch_size=10)


# Maximum softmax probability


@pytest.mark.parametrize("classes", [2, 3, 100])
def test_msp_ranks_as_the_largest_probability(classes: int) -> None:
    logits = randn(300, classes)
    confidence = softmax(logits.numpy(), axis=1).max(1)
    score = MaximumSoftmax().score(logits).numpy()
    assert (np.argsort(-confidence) == np.argsort(score)).all()
    np.testing.assert_allclose(score, np.log((1 - confidence) / confidence), rtol=0, atol=1e-9)


def test_msp_does_not_saturate() -> None:
    logits = torch.zeros(50, 4)
    logits[:, 2] = torch.arange(50.0) * 10
    score = MaximumSoftmax().score(logits)
    assert (softmax(logits.numpy(), axis=1).max(1) == 1).sum() > 30, "the probability does"
    assert (score.diff() < 0).all()


def test_msp_of_one_class_is_the_same_for_all() -> None:
    score = MaximumSoftmax().score(torch.tensor([[1.0], [-5.0], [100.0]]))
    assert torch.isfinite(score).all()
    assert (score == score[0]).all()


def test_msp_of_masked_classes() -> None:
    logits = torch.tensor([[1.0, 3.0, -math.inf], [0.0, 1.0, -math.inf]])
    torch.testing.assert_close(MaximumSoftmax().score(logits), torch.tensor([-2.0, -1.0]))
