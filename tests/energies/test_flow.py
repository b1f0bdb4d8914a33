"""The residual flow: a density, the Gaussian where it starts, better than the Gaussian where data bend."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from heat_ood import Energy, HeatError, InputError, create
from heat_ood.energies._flow import GaussianFlow, identity_flow
from heat_ood.features import Features


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def banana(n: int = 600, seed: int = 0, classes: int = 1) -> Features:
    """A bent cloud for each class."""
    x = torch.randn(n, 2, generator=seeded(seed), dtype=torch.float64)
    labels = torch.arange(n) % classes
    z = torch.stack([x[:, 0], 0.3 * x[:, 1] + x[:, 0].square()], 1) + 8 * labels[:, None]
    return Features(avg=z, labels=labels)


def quick(**changes: object) -> GaussianFlow:
    settings = {"normalise": False, "couplings": 3, "hidden": 16, "epochs": 12, "batch": 64, "lr": 1e-2}
    return GaussianFlow(**settings | changes)


@pytest.mark.parametrize("classes", [1, 3])
def test_it_starts_as_the_gaussian(classes: int) -> None:
    features = banana(classes=classes)
    flow = quick().fit(features)
    flow.flow = identity_flow(2, 3, 16, 0).double()
    gmm = flow.density
    covariance = (gmm.colour @ gmm.colour.T).numpy()
    means = (gmm.centre + gmm.nu @ gmm.colour.T).numpy()
    expected = -np.max([multivariate_normal(m, covariance).logpdf(features.avg.numpy()) for m in means], axis=0)
    np.testing.assert_allclose(flow.score(features), expected, rtol=1e-9)


def test_by_hand() -> None:
    """Four corners: mean 0, unit covariance; the identity flow scores ½‖z‖² + log 2π."""
    corners = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]], dtype=torch.float64)
    flow = quick().fit(Features(avg=corners, labels=torch.zeros(4, dtype=torch.long)))
    flow.flow = identity_flow(2, 1, 4, 0).double()
    assert flow.score(torch.tensor([[3.0, 4.0]], dtype=torch.float64)).item() == pytest.approx(
        12.5 + math.log(2 * math.pi), rel=1e-6
    )


def test_energy_by_change_of_variables() -> None:
    """The log determinant against the Jacobian by autograd."""
    features = banana(200)
    flow = quick().fit(features)
    assert flow.flow is not None
    z = features.avg[:20]
    transform = flow.flow().transform

    def map_of(point: Tensor) -> Tensor:
        return transform(flow.density.deviations(flow.density.whiten(point[None])))[0]

    expected = []
    for point in z:
        jacobian = torch.autograd.functional.jacobian(map_of, point)
        y = map_of(point)
        expected.append(0.5 * y.square().sum() + math.log(2 * math.pi) - torch.linalg.slogdet(jacobian).logabsdet)
    torch.testing.assert_close(flow.score(z), torch.stack(expected), rtol=1e-8, atol=1e-8)


def test_the_density_sums_to_one() -> None:
    flow = quick().fit(banana())
    x, y = torch.linspace(-6, 6, 500, dtype=torch.float64), torch.linspace(-8, 24, 1000, dtype=torch.float64)
    grid = torch.cartesian_prod(x, y)
    mass = (-flow.score(grid)).exp().sum() * (x[1] - x[0]) * (y[1] - y[0])
    assert float(mass) == pytest.approx(1.0, abs=0.02)


def test_training_straightens_what_is_bent() -> None:
    train, test = banana(seed=0), banana(seed=1)
    flow = quick().fit(train)
    gaussian = create("gmm", normalise=False).fit(train)
    assert flow.score(test).mean() < gaussian.score(test).mean() - 0.2
    assert min(e["held_out"] for e in flow.log_) < flow.log_[0]["held_out"]


def test_where_nothing_is_gained_the_gaussian_stays() -> None:
    features = banana(100)
    flow = quick(lr=1e6, epochs=1).fit(features)
    density = create("gmm", normalise=False).fit(features)
    torch.testing.assert_close(flow.score(features), density.score(features))


def test_same_seed_same_flow_and_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    a, b, c = (quick(epochs=1, seed=s).fit(banana()).score(banana(seed=1)) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize("columns", [("avg",), ("std",), ("avg", "std"), ("std@layer3",)])
def test_save_and_load(columns: tuple[str, ...], tmp_path: Path) -> None:
    z = torch.rand(200, 5, generator=seeded())
    features = Features(avg=z, std=z.flip(1), labels=torch.arange(200) % 2, layers={"layer3": (z, z.square())})
    flow = quick(columns=columns, normalise=True, epochs=1).fit(features[:150]).calibrate(features[150:])
    flow.save(tmp_path / "flow")
    again = Energy.load(tmp_path / "flow")
    assert torch.equal(again.p_value(features), flow.p_value(features))
    assert torch.equal(again.score(features), flow.score(features))
    assert repr(again) == repr(flow)
    assert again.log_ == flow.log_


@pytest.mark.parametrize("name", ["couplings", "hidden", "epochs", "batch", "lr"])
def test_settings_are_positive(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be positive"):
        quick(**{name: 0}).fit(banana())


def test_a_single_feature_cannot_be_coupled() -> None:
    with pytest.raises(InputError, match="at least two features that vary"):
        quick().fit(Features(avg=torch.rand(20, 1), labels=torch.zeros(20, dtype=torch.long)))


def test_without_zuko_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko.flows", None)
    with pytest.raises(HeatError, match=r"pip install 'heat-ood\[flow\]'"):
        quick().fit(banana(50))
