"""The gradient in bfloat16 is the gradient but for its rounding, and chains that follow it end where they would."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from detector_data import data
from heat_ood import HEAT
from heat_ood.residual import Network, Residual, langevin
from heat_ood.residual import _negatives as negatives
from heat_ood.residual._coarse import INSTRUCTIONS, CoarseGradient, quick_in_bfloat16
from heat_ood.residual._gradient import InputGradient


def network_of(bound: float | None = None, tied: bool = False, width: int = 64, hidden: int = 128) -> Network:
    generator = torch.Generator().manual_seed(0)
    network = Network(width, hidden, 6, tied, bound, generator)
    with torch.no_grad():
        network.layers[-1].weight.normal_(0, 0.1, generator=generator)
    return network


def points(n: int, width: int = 64) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(1))


def exact(network: Network, x: Tensor) -> Tensor:
    return InputGradient(network.double())(x.double())


@pytest.mark.parametrize("bound", [None, 0.25])
@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_gradient_but_for_rounding(bound: float | None, tied: bool) -> None:
    network, x = network_of(bound, tied), points(500)
    found = CoarseGradient(network)(x)
    assert found.dtype == torch.float32
    right = exact(network, x)
    off = (found - right).norm(dim=1) / right.norm(dim=1)
    # A unit next to its kink may fall on the other side, which moves the gradient of that sample alone.
    assert off.median() < 0.15
    assert off.max() > 1e-4, "nothing was rounded"
    # Over samples the errors cancel: they point nowhere in particular.
    assert (found - right).mean(0).norm() < 0.03 * right.norm(dim=1).mean()


def test_it_follows_the_weights_and_leaves_them_alone() -> None:
    network, x = network_of(), points(20)
    gradient = CoarseGradient(network)
    before = [p.detach().clone() for p in network.parameters()]
    first = gradient(x)
    kept = gradient.rounded
    assert torch.equal(gradient(x), first)
    assert gradient.rounded is kept, "weights that stay are rounded once"
    assert all(torch.equal(p, b) for p, b in zip(network.parameters(), before, strict=True))
    with torch.no_grad():
        network.layers[-1].weight.mul_(-2)
    torch.testing.assert_close(gradient(x), -2 * first)


def test_chains_end_where_they_would() -> None:
    """With the paper's steps and noise: the rounding moves an end by far less than the noise does."""
    network, start = network_of(), torch.nn.functional.normalize(points(400).relu(), dim=1)

    def ends(gradient: object) -> Tensor:
        g = torch.Generator().manual_seed(2)
        return langevin(start, gradient, 20, (1e-4, 1e-5), (5e-3, 5e-4), generator=g)  # type: ignore[arg-type]

    fine, coarse = ends(InputGradient(network)), ends(CoarseGradient(network))
    still = ends(torch.zeros_like)
    moved_by_gradient = (fine - still).norm(dim=1).mean()
    moved_by_rounding = (fine - coarse).norm(dim=1).mean()
    assert 0 < moved_by_rounding < 0.3 * moved_by_gradient
    assert moved_by_rounding < 1e-3 * (fine - start).norm(dim=1).mean()


@pytest.mark.parametrize("asked", INSTRUCTIONS)
def test_only_large_networks_on_processors_that_are_quicker(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in INSTRUCTIONS:
        monkeypatch.setattr(torch.cpu, name, lambda has=name == asked: has, raising=False)
    monkeypatch.setattr("heat_ood.residual._coarse.platform.machine", lambda: "x86_64")
    large = network_of(width=512, hidden=1024)
    assert quick_in_bfloat16(large) == torch.backends.mkldnn.is_available()
    assert not quick_in_bfloat16(network_of())
    assert not quick_in_bfloat16(large.double())
    monkeypatch.setattr(torch.cpu, asked, lambda: False)
    assert not quick_in_bfloat16(network_of(width=512, hidden=1024))


@pytest.mark.filterwarnings("ignore:The residual of gmm:RuntimeWarning")
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("quick", [True, False])
def test_who_asks_for_it_gets_it_where_it_is_quicker(asked: bool, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Network] = []
    monkeypatch.setattr(negatives, "quick_in_bfloat16", lambda network: quick)
    monkeypatch.setattr(negatives, "CoarseGradient", lambda network: made.append(network) or InputGradient(network))
    settings = replace(Residual(steps=2, epochs=1, hidden=8, depth=3), coarse=asked)
    HEAT(("gmm",), residual=settings).fit(data())
    assert bool(made) == (asked and quick)


def test_the_paper_s_presets_ask_for_it() -> None:
    for settings in ("text", "released"):
        residuals = HEAT.paper("cifar10", settings=settings).residual
        assert all(residual.coarse for residual in residuals.values())
    assert not Residual().coarse
