"""Virtual-logit matching and its residual: against NumPy, by hand, on shapes that bite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax

from gmm_reference import cloud, seeded
from heat_ood.energies import Energy, SubspaceDistance, VirtualLogit
from heat_ood.energies import _vim as module
from heat_ood.errors import InputError
from heat_ood.features import Features


def with_head(n: int = 90, d: int = 6, classes: int = 4, seed: int = 0) -> Features:
    weight = torch.randn(classes, d, generator=seeded(7), dtype=torch.float64)
    bias = torch.randn(classes, generator=seeded(8), dtype=torch.float64)
    return Features(avg=cloud(n, d, seed=seed).avg + 1, head=(weight, bias))


def outside(train: Features, test: Features, origin: np.ndarray, dimension: int) -> np.ndarray:
    """The norm of the difference between each point and its projection onto the principal space."""
    x = train.avg.numpy() - origin
    values, vectors = np.linalg.eig(x.T @ x / len(x))
    principal = vectors[:, np.argsort(-values)[:dimension]].real
    y = test.avg.numpy() - origin
    return np.linalg.norm(y - y @ principal @ principal.T, axis=1)


def zero_logits(features: Features) -> np.ndarray:
    return -np.linalg.pinv(features.head.weight.numpy()) @ features.head.bias.numpy()


@pytest.mark.parametrize(("dimension", "used"), [(None, 3), (0, 0), (1, 1), (5, 5)])
@pytest.mark.parametrize("classes", [1, 4, 9])
def test_equals_the_formula(dimension: int | None, used: int, classes: int) -> None:
    train, test = with_head(classes=classes), with_head(30, classes=classes, seed=1)
    origin = zero_logits(train)
    alpha = train.logits.numpy().max(1).sum() / outside(train, train, origin, used).sum()
    expected = alpha * outside(train, test, origin, used) - logsumexp(test.logits.numpy(), axis=1)
    vim = VirtualLogit(dimension).fit(train)
    np.testing.assert_allclose(vim.alpha, alpha, rtol=1e-9)
    np.testing.assert_allclose(vim.score(test), expected, rtol=1e-9, atol=1e-9)


def test_ranks_as_the_probability_of_the_virtual_logit() -> None:
    train, test = with_head(), with_head(200, seed=1)
    vim = VirtualLogit().fit(train)
    virtual = float(vim.alpha) * outside(train, test, zero_logits(train), 3)
    probability = softmax(np.column_stack([test.logits.numpy(), virtual]), axis=1)[:, -1]
    score = vim.score(test).numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-score)), probability, rtol=1e-9)
    inner = (probability > 1e-6) & (probability < 1 - 1e-6)
    assert inner.sum() > 50
    assert (np.argsort(score[inner]) == np.argsort(probability[inner])).all()


def test_by_hand() -> None:
    # logits 2 z_1 - 2 vanish at (1, 0); the samples spread along the first axis
    train = Features(avg=torch.tensor([[5.0, 1.0], [3.0, -3.0], [9.0, 2.0]]), head=([[2.0, 0.0]] @ np.eye(2), [-2.0]))
    vim = VirtualLogit(dimension=0).fit(train)
    torch.testing.assert_close(vim.origin, torch.tensor([1.0, 0.0]))
    norms = np.sqrt(17) + np.sqrt(13) + np.sqrt(68)
    assert float(vim.alpha) == pytest.approx((8 + 4 + 16) / norms, rel=1e-6)
    assert float(vim.score(torch.tensor([[4.0, 4.0]]))) == pytest.approx(28 / norms * 5 - 6, rel=1e-6)

    residual = SubspaceDistance(dimension=1).fit(Features(avg=torch.tensor([[0.0, 1.0], [4.0, 1.0]])))
    torch.testing.assert_close(residual.score(torch.tensor([[7.0, 1.0], [0.0, -2.0]])), torch.tensor([0.0, 3.0]))


@pytest.mark.parametrize("dimension", [0, 2, 5])
@pytest.mark.parametrize("method", [VirtualLogit, SubspaceDistance])
def test_gradient_equals_autograd(method: type[VirtualLogit | SubspaceDistance], dimension: int) -> None:
    energy = method(dimension).fit(with_head())
    z = with_head(20, seed=1).avg.requires_grad_()
    (auto,) = torch.autograd.grad(energy.energy_of(z).sum(), z)
    torch.testing.assert_close(energy.gradient_of(z.detach()), auto, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", [VirtualLogit, SubspaceDistance])
def test_gradient_without_a_residual_is_finite(method: type[VirtualLogit | SubspaceDistance]) -> None:
    energy = method().fit(with_head())
    z = energy.origin[None]
    expected = -torch.softmax(energy.logits_at(z), 1) @ energy.weight if method is VirtualLogit else torch.zeros_like(z)
    torch.testing.assert_close(energy.gradient_of(z), expected)


@pytest.mark.parametrize("dimension", [None, 0, 5])
def test_residual_with_and_without_a_head(dimension: int | None) -> None:
    train, test = with_head(), with_head(30, seed=1)
    used = 3 if dimension is None else dimension
    energy = SubspaceDistance(dimension)
    expected = outside(train, test, zero_logits(train), used)
    np.testing.assert_allclose(energy.fit(train).score(test), expected, rtol=1e-9)
    expected = outside(train, test, train.avg.numpy().mean(0), used)
    np.testing.assert_allclose(energy.fit(Features(avg=train.avg)).score(test), expected, rtol=1e-9)


@pytest.mark.parametrize(("d", "kept"), [(1, 1), (6, 3), (7, 4), (767, 384), (768, 256), (2047, 1535), (2048, 1048)])
def test_the_authors_rule(d: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = torch.return_types.linalg_eigh((torch.zeros(d), torch.zeros(d, d)))
    monkeypatch.setattr(module.torch.linalg, "eigh", lambda _: asked)
    moments = module.Moments.of([(torch.ones(2, d), None)])
    assert module.complement_of(moments, moments.mean, None).shape == (d, kept)


def test_one_pass_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = with_head(), with_head(30, seed=1)
    whole = [method().fit(train).score(test) for method in (VirtualLogit, SubspaceDistance)]
    monkeypatch.setattr("heat_ood.energies._head.CHUNK", 7)
    monkeypatch.setattr(module, "CHUNK", 7)
    for method, expected in zip((VirtualLogit, SubspaceDistance), whole, strict=True):
        torch.testing.assert_close(method().fit(train).score(test), expected, rtol=1e-10, atol=1e-10)


def test_more_features_than_samples() -> None:
    train, test = with_head(30, d=50), with_head(20, d=50, seed=1)
    origin = zero_logits(train)
    alpha = train.logits.numpy().max(1).sum() / outside(train, train, origin, 25).sum()
    expected = alpha * outside(train, test, origin, 25) - logsumexp(test.logits.numpy(), axis=1)
    np.testing.assert_allclose(VirtualLogit().fit(train).score(test), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 10])
def test_samples_within_their_principal_directions(n: int, dtype: torch.dtype) -> None:
    train = with_head(90, d=50)[:n].to(dtype)
    with pytest.raises(InputError, match=r"lie within their 25 principal directions.*smaller dimension"):
        VirtualLogit().fit(train)
    residual = SubspaceDistance().fit(train)
    assert residual.score(train).max() < 1e-4
    assert residual.score(with_head(90, d=50)[50:]).min() > 0.1, "others lie outside"


@pytest.mark.parametrize("method", [VirtualLogit, SubspaceDistance])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_extreme_features_and_a_dead_channel(method: type[VirtualLogit | SubspaceDistance], scale: float) -> None:
    train = with_head().to(torch.float32)
    train.avg[:, 2] = 0
    assert torch.isfinite(method().fit(train).score(scale * train.avg)).all()


@pytest.mark.parametrize("method", [VirtualLogit, SubspaceDistance])
@pytest.mark.parametrize("dimension", [-1, 6, 1000])
def test_dimension_leaves_something(method: type[VirtualLogit | SubspaceDistance], dimension: int) -> None:
    with pytest.raises(InputError, match=f"dimension={dimension} of 6 features leaves no residual. Choose one between"):
        method(dimension).fit(with_head())


@pytest.mark.parametrize("method", [VirtualLogit, SubspaceDistance])
def test_features_of_another_width(method: type[VirtualLogit | SubspaceDistance]) -> None:
    with pytest.raises(InputError, match=f"has 5 features, and {method.__name__} was fitted to 6"):
        method().fit(with_head()).score(torch.ones(2, 5))


def test_no_head() -> None:
    with pytest.raises(InputError, match="VirtualLogit cannot be fitted: it needs head"):
        VirtualLogit().fit(Features(avg=cloud().avg))


@pytest.mark.parametrize("proposals", [False, True])
@pytest.mark.parametrize("method", [VirtualLogit, SubspaceDistance])
def test_saved_and_loaded(method: type[VirtualLogit | SubspaceDistance], proposals: bool, tmp_path: Path) -> None:
    energy = method(2, proposals).fit(with_head())
    energy.save(tmp_path / "vim")
    loaded = Energy.load(tmp_path / "vim")
    test = with_head(30, seed=1)
    assert torch.equal(loaded.score(test), energy.score(test))
    assert repr(loaded) == repr(energy) == f"{method.__name__}(dimension=2, proposals={proposals})  # fitted"
    if proposals:
        assert torch.equal(loaded.propose(5, seeded()), energy.propose(5, seeded()))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("origin", (5,)), ("complement", (5, 2)), ("complement", (6, 0)), ("alpha", (1,)), ("bias", (3,))],
)
def test_tensors_that_disagree_are_refused(name: str, shape: tuple[int, ...]) -> None:
    for energy in (VirtualLogit().fit(with_head()), SubspaceDistance().fit(with_head())):
        energy.validate()
        if name in energy._buffers:
            setattr(energy, name, torch.zeros(shape, dtype=torch.float64))
            with pytest.raises(InputError):
                energy.validate()
