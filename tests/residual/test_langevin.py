"""Langevin sampling against stationary distributions known in closed form."""

import math

import pytest
import torch

from heat_ood.residual import langevin


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("step", [0.02, 0.1])
def test_reaches_mean_and_covariance_of_a_gaussian(step):
    torch.manual_seed(0)
    d = 3
    root = torch.randn(d, d, dtype=torch.float64)
    precision = root @ root.T / d + torch.eye(d, dtype=torch.float64)
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    x = torch.zeros(20_000, d, dtype=torch.float64)

    x = langevin(x, lambda x: (x - mean) @ precision, 600, (step, step), generator=generator())

    # the chain's own stationary covariance: precision⁻¹ (I - step/4 precision)⁻¹
    exact = torch.linalg.inv(precision - step / 4 * precision @ precision)
    assert torch.allclose(x.mean(0), mean, atol=0.03)
    assert torch.allclose(x.T.cov(), exact, atol=0.03)
    assert torch.allclose(exact, torch.linalg.inv(precision), rtol=0.3)


def test_step_and_noise_decay_linearly_and_apart():
    x = torch.zeros(1, 1, dtype=torch.float64)
    steps = (1.0, 0.2)
    moved = langevin(x, torch.ones_like, 5, steps, (0.0, 0.0))
    assert moved.item() == pytest.approx(-0.5 * (1.0 + 0.8 + 0.6 + 0.4 + 0.2))

    noisy = langevin(torch.zeros(50_000, 1), torch.zeros_like, 3, steps, (0.3, 0.1), generator=generator())
    assert noisy.std().item() == pytest.approx(math.sqrt(0.3**2 + 0.2**2 + 0.1**2), rel=0.02)


def test_a_quadratic_decay_falls_fast_and_then_slowly():
    moved = langevin(
        torch.zeros(1, 1, dtype=torch.float64), torch.ones_like, 5, (1.0, 0.2), (0.0, 0.0), decay="quadratic"
    )
    steps = [0.2 + 0.8 * (1 - t / 4) ** 2 for t in range(5)]
    assert moved.item() == pytest.approx(-0.5 * sum(steps))


def test_projection_holds_after_every_step():
    seen = []

    def project(x):
        seen.append(x)
        return x.clamp(min=0)

    x = langevin(torch.rand(100, 4), lambda x: x, 7, (0.5, 0.1), project=project, generator=generator())
    assert len(seen) == 7
    assert (x >= 0).all()


def test_zero_steps_move_nothing_and_the_seed_decides():
    x = torch.rand(5, 2)
    assert torch.equal(langevin(x, torch.zeros_like, 0, (0.1, 0.1)), x)
    one = langevin(x, torch.zeros_like, 3, (0.1, 0.1), generator=generator(1))
    assert torch.equal(one, langevin(x, torch.zeros_like, 3, (0.1, 0.1), generator=generator(1)))
    assert not torch.equal(one, langevin(x, torch.zeros_like, 3, (0.1, 0.1), generator=generator(2)))
