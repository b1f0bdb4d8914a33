"""fDBD: against the distances to the boundaries, one by one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from heat_ood.energies import Energy, FastBoundary
from heat_ood.energies._head import CHUNK
from heat_ood.errors import InputError
from heat_ood.features import Features


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_head(n: int = 60, d: int = 6, classes: int = 4) -> Features:
    return Features(avg=randn(n, d, seed=n).relu(), head=(randn(classes, d, seed=7), randn(classes, seed=8)))


def plain(train: np.ndarray, test: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> list[float]:
    found = []
    for z in test:
        f = weight @ z + bias
        best = int(f.argmax())
        distances = [(f[best] - f[c]) / np.linalg.norm(weight[best] - weight[c]) for c in range(len(bias)) if c != best]
        found.append(-np.mean(distances) / np.linalg.norm(z - train.mean(0)))
    return found


@pytest.mark.parametrize(("n", "d", "classes"), [(60, 6, 4), (CHUNK + 9, 2, 2), (3, 40, 5), (1, 5, 30)])
def test_equals_the_paper(n: int, d: int, classes: int) -> None:
    features, test = with_head(n, d, classes), randn(50, d, seed=5)
    weight, bias = (t.numpy() for t in features.head)
    expected = plain(features.avg.numpy(), test.numpy(), weight, bias)
    np.testing.assert_allclose(FastBoundary().fit(features).score(test), expected, rtol=1e-9)


def test_by_hand() -> None:
    weight, bias = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]), torch.tensor([0.0, 0.0, 3.0])
    energy = FastBoundary().fit(Features(avg=torch.tensor([[0.0, 0.0], [0.0, 2.0]]), head=(weight, bias)))
    score = energy.score(torch.tensor([[4.0, 1.0]]))  # logits 12, 4, 3; weights 5 and 3 apart; 4 from (0, 1)
    assert float(score) == pytest.approx(-((12 - 4) / 5 + (12 - 3) / 3) / 2 / 4, rel=1e-6)


def test_the_distance_is_that_to_the_nearest_point_of_the_boundary() -> None:
    features = with_head(classes=2)
    (w, v), b = features.head.weight, features.head.bias
    energy = FastBoundary().fit(features)
    z = randn(1, 6, seed=9)
    gap = ((w - v) @ z[0] + b[0] - b[1]) / (w - v).norm()
    on_it = z - gap * (w - v) / (w - v).norm()
    assert float(energy.score(on_it)) == pytest.approx(0, abs=1e-12)
    distance = float((z - on_it).norm() / (z - features.avg.mean(0)).norm())
    assert float(energy.score(z)) == pytest.approx(-distance, rel=1e-9)


def test_classes_with_the_same_weights_share_no_boundary() -> None:
    weight = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    bias = torch.tensor([0.0, -5.0, 0.0]).double()
    train = randn(20, 2)
    energy = FastBoundary().fit(Features(avg=train, head=(weight, bias)))
    pair = FastBoundary().fit(Features(avg=train, head=(weight[[0, 2]], bias[[0, 2]])))
    z = torch.tensor([[3.0, 1.0]]).double()
    torch.testing.assert_close(energy.score(z), pair.score(z), rtol=1e-12, atol=0)
    assert (energy.rates.diagonal() == 0).all()


@pytest.mark.parametrize("weight", [torch.ones(1, 3), torch.ones(4, 3), torch.zeros(2, 3)], ids=["1", "same", "zero"])
def test_without_boundaries_the_energy_is_zero(weight: Tensor) -> None:
    energy = FastBoundary().fit(Features(avg=randn(9, 3), head=(weight, None)))
    assert (energy.score(randn(5, 3, seed=1)) == 0).all()


@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_mean_it_is_finite(size: float, dtype: torch.dtype) -> None:
    train = (size * torch.tensor([[1.1, 0.3, 2.7]])).to(dtype).expand(7, 3)
    energy = FastBoundary().fit(Features(avg=train, head=(randn(4, 3), randn(4, seed=1))))
    score = energy.score(train)
    assert torch.isfinite(score).all()
    assert (score <= 0).all()


def test_features_that_are_not_finite_are_named() -> None:
    features = with_head()
    features.avg[31, 2] = math.inf
    with pytest.raises(InputError, match="avg is not finite in channel 2"):
        FastBoundary().fit(features)


def test_another_width_is_refused() -> None:
    with pytest.raises(InputError, match="avg has 5 features, and FastBoundary was fitted to 6"):
        FastBoundary().fit(with_head()).score(randn(3, 5))


def test_saved_and_loaded(tmp_path: Path) -> None:
    features = with_head()
    energy = FastBoundary().fit(features)
    energy.save(tmp_path)
    loaded = Energy.load(tmp_path)
    assert repr(loaded) == "FastBoundary()  # fitted"
    assert torch.equal(loaded.score(features), energy.score(features))


@pytest.mark.parametrize("part", ["mean", "rates", "bias"])
@pytest.mark.parametrize("wrong", [torch.zeros(2).double(), torch.zeros(4, 4)])
def test_parts_that_do_not_fit_are_refused(part: str, wrong: Tensor) -> None:
    energy = FastBoundary().fit(with_head())
    setattr(energy, part, wrong)
    with pytest.raises(InputError, match=r"do not fit together|the head has the shapes"):
        energy.validate()
