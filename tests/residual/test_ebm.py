"""The energy-based model without a prior: an energy like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from heat_ood import HEAT, Energy, Features, InputError, Residual, create
from heat_ood.energies import Flat
from heat_ood.energies._methods import create_prior

QUICK = Residual(epochs=4, hidden=32, batch=64, lr=2e-3)
pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


def ring(n: int, seed: int = 0) -> Features:
    """A ring in the plane, beside a constant: one Gaussian thinks its hole likely."""
    g = torch.Generator().manual_seed(seed)
    angle = 6.2832 * torch.rand(n, generator=g, dtype=torch.float64)
    noise = 0.05 * torch.randn(n, 2, generator=g, dtype=torch.float64)
    return Features(avg=torch.stack([angle.cos(), angle.sin()], 1) + noise)


def test_it_learns_where_data_are() -> None:
    ebm = create("ebm", normalise=False, residual=QUICK, seed=1).fit(ring(4000))
    hole, data = ebm.score(torch.zeros(1, 2, dtype=torch.float64)), ebm.score(ring(300, seed=5))
    assert hole.item() > data.mean().item() + 0.1
    assert ebm.score(torch.tensor([[2.5, 2.5]], dtype=torch.float64)).item() > data.mean().item()


def test_its_energy_is_its_network() -> None:
    features = ring(300)
    ebm = create("ebm", residual=QUICK).fit(features)
    z = torch.nn.functional.normalize(features.avg)
    torch.testing.assert_close(ebm.score(features), ebm.network(z))


def test_save_load_seed_and_repr(tmp_path: Path) -> None:
    train, test = ring(300), ring(50, seed=1)
    ebm, same, other = (create("ebm", residual=QUICK, seed=s).fit(train).calibrate(test) for s in (0, 0, 1))
    ebm.save(tmp_path / "ebm")
    again = Energy.load(tmp_path / "ebm")
    assert repr(again) == repr(ebm)
    assert "ebm" in again.name
    for other_score in (again.score(test), same.score(test)):
        assert torch.equal(ebm.score(test), other_score)
    assert not torch.equal(ebm.score(test), other.score(test))


def test_it_needs_neither_labels_nor_logits_and_reads_earlier_layers() -> None:
    z = ring(300).avg
    ebm = create("ebm@layer2", residual=QUICK).fit(Features(layers={"layer2": (z, None)}))
    assert ebm.reads == ("avg@layer2",)


def test_inside_heat_its_prior_is_flat() -> None:
    assert isinstance(create_prior("ebm"), Flat)
    heat = HEAT((create_prior("ebm", normalise=False),), residual=QUICK).fit(ring(4000))
    terms = heat.energies(ring(20))
    assert (terms["prior/flat[avg]"] == 0).all()
    assert terms["residual/flat[avg]"].std() > 0


def test_it_is_not_corrected_again() -> None:
    with pytest.raises(InputError, match="cannot be corrected: it is a network already"):
        HEAT((create("ebm"),)).fit(ring(300))
