"""The written-out gradient of the network against automatic differentiation, to the bit, and against differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heat_ood.residual import Network
from heat_ood.residual._gradient import InputGradient


def network_of(depth: int, tied: bool, bound: float | None, dtype: torch.dtype) -> Network:
    generator = torch.Generator().manual_seed(0)
    network = Network(12, 20, depth, tied, bound, generator, dtype)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.1, generator=generator))
    return network


def automatic(network: Network, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(network(x).sum(), x)
    return gradient


def points(n: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(n, 12, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [None, 0.25])
@pytest.mark.parametrize(("depth", "tied"), [(2, False), (3, True), (6, False), (6, True)])
def test_is_what_automatic_differentiation_gives(
    depth: int, tied: bool, bound: float | None, dtype: torch.dtype
) -> None:
    network = network_of(depth, tied, bound, dtype)
    gradient = InputGradient(network)
    for n in (7, 64, 64, 1):  # memory is made anew where the number changes
        x = points(n, dtype, seed=n)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-13
        torch.testing.assert_close(gradient(x), automatic(network, x), rtol=tolerance, atol=tolerance / 10)


def test_the_bits_are_those_of_automatic_differentiation() -> None:
    network = network_of(6, False, None, torch.float32)
    x = points(256)
    assert torch.equal(InputGradient(network)(x), automatic(network, x))


def test_is_the_slope_of_the_energy() -> None:
    network = network_of(6, False, 0.5, torch.float64)
    x, h = points(20, torch.float64), 1e-6
    found = InputGradient(network)(x)
    for j in range(12):
        step = torch.zeros(12, dtype=torch.float64)
        step[j] = h
        with torch.no_grad():
            slope = (network(x + step) - network(x - step)) / (2 * h)
        torch.testing.assert_close(found[:, j], slope, rtol=1e-5, atol=1e-7)


def test_follows_the_weights_and_makes_no_new_memory() -> None:
    network = network_of(4, False, None, torch.float32)
    gradient, x = InputGradient(network), points(32)
    places = {tensor.data_ptr() for tensor in (gradient(x), *gradient.hidden, *gradient.pulled)}
    with torch.no_grad():
        network.layers[1].weight.mul_(-2)
    found = gradient(x)
    assert torch.equal(found, automatic(network, x))
    assert {tensor.data_ptr() for tensor in (found, *gradient.hidden, *gradient.pulled)} == places
    assert all(parameter.grad is None for parameter in network.parameters())
