"""Free energies of a changed head or of changed features: DICE, ReAct, SCALE and ASH, against NumPy and autograd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import Tensor

from heat_ood.energies import Ash, Dice, Energy, React, Scale
from heat_ood.energies._head import HeadPrior
from heat_ood.errors import InputError
from heat_ood.features import Features

METHODS = (Dice, React, Scale, Ash)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_head(n: int = 90, d: int = 20, classes: int = 4, relu: bool = True) -> Features:
    z = randn(n, d, seed=n) + 0.3
    return Features(avg=z.relu() if relu else z, head=(randn(classes, d, seed=7), randn(classes, seed=8)))


def free(z: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return -logsumexp(z @ weight.T + bias, axis=1)


def arrays(features: Features) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return features.avg.numpy(), features.head.weight.numpy(), features.head.bias.numpy()


def autograd(energy: HeadPrior, z: Tensor) -> Tensor:
    z = z.clone().requires_grad_()
    return torch.autograd.grad(energy.energy_of(z).sum(), z)[0]


# Independent computations, from the papers


def dice(features: Features, x: np.ndarray, sparsity: float) -> np.ndarray:
    z, weight, bias = arrays(features)
    contribution = np.array([[row[j] * z[:, j].mean() for j in range(z.shape[1])] for row in weight])
    return free(x, np.where(contribution > np.quantile(contribution, sparsity), weight, 0), bias)


def react(features: Features, x: np.ndarray, quantile: float) -> np.ndarray:
    z, weight, bias = arrays(features)
    return free(np.minimum(x, np.quantile(z, quantile)), weight, bias)


def top(row: np.ndarray, percentile: float) -> list[int]:
    count = max(1, round((1 - percentile) * len(row)))
    return sorted(range(len(row)), key=lambda j: -row[j])[:count]


def scale(features: Features, x: np.ndarray, percentile: float) -> np.ndarray:
    changed = []
    for row in x:
        positive = np.maximum(row, 0)
        changed.append(row * np.exp(positive.sum() / positive[top(row, percentile)].sum()))
    return free(np.array(changed), *arrays(features)[1:])


def ash(features: Features, x: np.ndarray, percentile: float, variant: str) -> np.ndarray:
    changed = []
    for row in x:
        chosen = top(row, percentile)
        pruned = np.zeros_like(row)
        pruned[chosen] = row[chosen]
        before, after = np.maximum(row, 0).sum(), np.maximum(pruned, 0).sum()
        if variant == "s":
            pruned = pruned * np.exp(before / after)
        if variant == "b":
            pruned[chosen] = before / len(chosen)
        changed.append(pruned)
    return free(np.array(changed), *arrays(features)[1:])


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("relu", [True, False])
def test_dice_equals_the_paper(sparsity: float, relu: bool) -> None:
    features, test = with_head(relu=relu), with_head(33, relu=relu)
    score = Dice(sparsity).fit(features).score(test)
    np.testing.assert_allclose(score, dice(features, test.avg.numpy(), sparsity), rtol=1e-9)


@pytest.mark.parametrize("quantile", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("relu", [True, False])
def test_react_equals_the_paper(quantile: float, relu: bool) -> None:
    features, test = with_head(relu=relu), with_head(33, relu=relu)
    energy = React(quantile).fit(features)
    assert float(energy.ceiling) == pytest.approx(np.quantile(features.avg.numpy(), quantile), rel=1e-14)
    np.testing.assert_allclose(energy.score(test), react(features, test.avg.numpy(), quantile), rtol=1e-9)


@pytest.mark.parametrize("percentile", [0.0, 0.5, 0.85])
@pytest.mark.parametrize("relu", [True, False])
def test_scale_equals_the_paper(percentile: float, relu: bool) -> None:
    features, test = with_head(relu=relu), with_head(33, relu=relu)
    score = Scale(percentile).fit(features).score(test)
    np.testing.assert_allclose(score, scale(features, test.avg.numpy(), percentile), rtol=1e-9)


@pytest.mark.parametrize("variant", ["s", "b", "p"])
@pytest.mark.parametrize("percentile", [0.7, 0.9])
@pytest.mark.parametrize("relu", [True, False])
def test_ash_equals_the_paper(percentile: float, variant: str, relu: bool) -> None:
    features, test = with_head(relu=relu), with_head(33, relu=relu)
    score = Ash(percentile, variant).fit(features).score(test)
    np.testing.assert_allclose(score, ash(features, test.avg.numpy(), percentile, variant), rtol=1e-9)


# By hand


HAND = Features(
    avg=[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]] @ np.eye(3), head=(np.array([[1.0, 0.5, -1.0]]), np.array([0.5]))
)
POINT = torch.tensor([[4.0, 0.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("energy", "expected"),
    [
        (Dice(0.5), -4.5),  # V = 2, 1, -2: only the first is above the median; 4 + 0.5
        (React(0.5), -(2 - 1 + 0.5)),  # the median of 1, 2, 3, 3, 2, 1 is 2
        (Scale(0.5), -(np.exp(5 / 5) * 3 + 0.5)),  # k = 2: 4 and 1 are all there is
        (Scale(0.7), -(np.exp(5 / 4) * 3 + 0.5)),  # k = 1
        (Ash(0.7, "s"), -(np.exp(5 / 4) * 4 + 0.5)),
        (Ash(0.7, "b"), -(5.0 + 0.5)),
        (Ash(0.7, "p"), -(4.0 + 0.5)),
        (Ash(0.5, "b"), -(2.5 - 2.5 + 0.5)),
    ],
    ids=repr,
)
def test_by_hand(energy: HeadPrior, expected: float) -> None:
    assert float(energy.fit(HAND).score(POINT)) == pytest.approx(expected, rel=1e-12)


# Gradients


@pytest.mark.parametrize("energy", [Dice(), Dice(0.3), React(), React(0.4)], ids=repr)
def test_the_gradient_is_that_of_autograd(energy: HeadPrior) -> None:
    energy.fit(with_head(relu=False))
    z = randn(40, 20, seed=3)
    torch.testing.assert_close(energy.gradient_of(z), autograd(energy, z), rtol=1e-10, atol=1e-12)
    assert energy.gradient_of(z).abs().sum() > 0


def test_the_gradient_is_zero_where_clipped() -> None:
    energy = React(0.5).fit(with_head())
    z = randn(40, 20, seed=3)
    assert (energy.gradient_of(z)[z > energy.ceiling] == 0).all()
    assert (energy.gradient_of(z)[z < energy.ceiling] != 0).all()


@pytest.mark.parametrize("energy", [Scale(), Ash(variant="s"), Ash(variant="b"), Ash(variant="p")], ids=repr)
def test_the_gradient_is_that_of_small_steps(energy: HeadPrior) -> None:
    energy.fit(with_head())
    z, step = randn(6, 20, seed=3), 1e-6 * torch.eye(20, dtype=torch.float64)
    moved = [(energy.energy_of(z + s) - energy.energy_of(z - s)) / 2e-6 for s in step]
    torch.testing.assert_close(energy.gradient_of(z), torch.stack(moved, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("energy", [m() for m in METHODS], ids=repr)
@pytest.mark.parametrize("point", [torch.zeros(2, 20), torch.ones(2, 20), -torch.ones(2, 20)], ids=["0", "1", "-1"])
def test_the_gradient_is_finite_where_features_tie(energy: HeadPrior, point: Tensor) -> None:
    energy.fit(with_head())
    assert torch.isfinite(energy.gradient_of(point.double())).all()


# Edges


VARIANTS: list[Callable[[], HeadPrior]] = [Dice, React, Scale, Ash, lambda: Ash(variant="b"), lambda: Ash(variant="p")]


@pytest.mark.parametrize("make", VARIANTS)
@pytest.mark.parametrize("shape", [(1, 5, 3), (2, 30, 2), (9, 1, 3), (9, 4, 1)], ids=str)
def test_small_shapes(make: Callable[[], HeadPrior], shape: tuple[int, int, int]) -> None:
    features = with_head(*shape)
    energy = make().fit(features)
    extremes = [torch.zeros(1, shape[1]), torch.ones(1, shape[1]), features.avg * 1e6, features.avg * 1e-20]
    for z in extremes:
        assert torch.isfinite(energy.score(z.float())).all()


@pytest.mark.parametrize("make", VARIANTS)
def test_a_zero_vector_has_the_free_energy_of_the_bias(make: Callable[[], HeadPrior]) -> None:
    features = with_head()
    score = make().fit(features).score(torch.zeros(1, 20, dtype=torch.float64))
    np.testing.assert_allclose(score, -logsumexp(features.head.bias.numpy()), rtol=1e-12)


def test_dice_drops_a_dead_channel() -> None:
    z = randn(50, 6).relu()
    z[:, 2] = 0
    energy = Dice(0.1).fit(Features(avg=z, head=(randn(3, 6, seed=1).abs(), None)))
    assert (energy.weight[:, 2] == 0).all()
    assert (energy.weight[:, [0, 1, 3, 4, 5]] > 0).all()


def test_dice_masks_the_given_share() -> None:
    energy = Dice(0.7).fit(with_head(d=50, classes=10))
    assert int((energy.weight == 0).sum()) == 350


def test_the_top_is_never_empty() -> None:
    features = with_head(d=3)
    z = torch.tensor([[1.0, 5.0, 2.0]]).double()
    torch.testing.assert_close(Ash(0.99, "p").fit(features).shaped(z), torch.tensor([[0.0, 5.0, 0.0]]).double())


def test_ties_are_all_kept() -> None:
    z = torch.tensor([[2.0, 2.0, 2.0, 1.0]])
    energy = Ash(0.5, "b").fit(Features(avg=z, head=(torch.ones(1, 4), None)))
    torch.testing.assert_close(energy.shaped(z), torch.tensor([[7 / 3, 7 / 3, 7 / 3, 0.0]]))


@pytest.mark.parametrize("energy", [Scale(0.999), Ash(0.999)], ids=repr)
def test_a_flat_vector_does_not_overflow(energy: HeadPrior) -> None:
    z = torch.ones(3, 2000) - torch.arange(2000) * 1e-5
    assert torch.isfinite(energy.fit(Features(avg=z, head=(torch.ones(2, 2000), None))).score(z)).all()


# Settings


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (Dice(0.0), "share of weights to drop, between 0 and 1, not 0.0"),
        (Dice(90), "sparsity .* not 90. Divide a percentage by 100"),
        (React(0), "quantile .* not 0"),
        (React(90), "quantile .* not 90. Divide a percentage by 100"),
        (Scale(85), "percentile .* not 85. Divide a percentage by 100"),
        (Scale(1.0), "percentile .* less than 1, not 1.0"),
        (Ash(-0.1), "percentile .* not -0.1"),
        (Ash(variant="x"), 'no ASH variant \'x\'. Choose "s", "b" or "p"'),
    ],
)
def test_bad_settings(energy: HeadPrior, message: str) -> None:
    with pytest.raises(InputError, match=message):
        energy.fit(with_head())
    assert not energy.fitted


@pytest.mark.parametrize("method", [Dice, React])
def test_features_that_are_not_finite_are_named(method: type[HeadPrior]) -> None:
    features = with_head()
    features.avg[31, 2] = np.nan
    with pytest.raises(InputError, match="avg is not finite in sample 31"):
        method().fit(features)


@pytest.mark.parametrize("method", METHODS)
def test_a_head_is_needed(method: type[HeadPrior]) -> None:
    with pytest.raises(InputError, match=r"needs head, .* Pass head=\(W, b\)"):
        method().fit(Features(avg=randn(9, 3)))


@pytest.mark.parametrize(
    ("energy", "shown"),
    [
        (Dice(0.7), "Dice(sparsity=0.7, proposals=False)"),
        (React(0.8), "React(quantile=0.8, proposals=False)"),
        (Scale(), "Scale(percentile=0.85, proposals=False)"),
        (Ash(variant="b"), "Ash(percentile=0.9, variant='b', proposals=False)"),
        (React(proposals=True), "React(quantile=0.9, proposals=True)"),
    ],
)
def test_saved_and_loaded(energy: HeadPrior, shown: str, tmp_path: Path) -> None:
    features = with_head()
    assert repr(energy) == f"{shown}  # not fitted"
    energy.fit(features).save(tmp_path)
    loaded = Energy.load(tmp_path)
    assert repr(loaded) == f"{shown}  # fitted"
    assert torch.equal(loaded.score(features), energy.score(features))


@pytest.mark.parametrize("wrong", [torch.zeros(1), torch.zeros(()), torch.tensor(3)])
def test_a_threshold_of_another_kind_is_refused(wrong: Tensor) -> None:
    energy = React().fit(with_head())
    energy.ceiling = wrong
    with pytest.raises(InputError, match="the threshold is"):
        energy.validate()
