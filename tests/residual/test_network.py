"""The residual network: its shape, its start, its count of weights."""

import pytest
import torch
from torch import nn

from heat_ood.residual import Network
from heat_ood.residual._network import SLOPE


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_equals_the_plain_sequence(depth):
    torch.manual_seed(0)
    network = Network(7, 16, depth, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nn.init.normal_(network.layers[-1].weight)
    plain = [m for layer in network.layers for m in (layer, nn.LeakyReLU(SLOPE))][:-1]
    x = torch.randn(5, 7, dtype=torch.float64)
    assert torch.allclose(network(x), nn.Sequential(*plain)(x).squeeze(1), atol=1e-12)


def test_depth_counts_linear_layers_and_tied_ones_share():
    def weights(network):
        return sum(p.numel() for p in network.parameters())

    untied = Network(512, 1024, 6)
    assert len(untied.layers) == 6
    assert weights(untied) == 512 * 1024 + 4 * 1024**2 + 1024 + 5 * 1024 + 1
    # the count of the authors' shared middle layers, from the paper's notes
    assert weights(Network(512, 1024, 6, tied=True)) == pytest.approx(1.58e6, rel=0.01)


def test_tied_middle_is_applied_as_often_as_it_stands_for():
    network = Network(3, 3, 6, tied=True, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nn.init.ones_(network.layers[-1].weight)
    x = torch.randn(4, 3, dtype=torch.float64)
    h = nn.functional.leaky_relu(network.layers[0](x), SLOPE)
    for _ in range(4):
        h = nn.functional.leaky_relu(network.layers[1](h), SLOPE)
    assert torch.allclose(network(x), network.layers[2](h).squeeze(1), atol=1e-12)


def test_starts_at_zero_energy_and_by_its_generator():
    one, two = (Network(4, 8, generator=torch.Generator().manual_seed(s)) for s in (3, 3))
    assert not one(torch.randn(9, 4)).any()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
