"""Energies of the logits: the largest logit, GEN, GradNorm and KL matching, against NumPy, SciPy and autograd."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, softmax
from torch import Tensor

from heat_ood.energies import Energy, Gen, GradNorm, KLMatching, MaximumLogit
from heat_ood.energies._head import CHUNK
from heat_ood.errors import InputError
from heat_ood.features import Features


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The largest logit


@pytest.mark.parametrize("classes", [1, 2, 10])
def test_max_logit(classes: int) -> None:
    logits = randn(50, classes)
    np.testing.assert_array_equal(MaximumLogit().score(logits), [-max(row) for row in logits.tolist()])


def test_max_logit_by_hand() -> None:
    assert MaximumLogit().score(torch.tensor([[1.0, -2.0], [-3.0, -7.0]])).tolist() == [-1.0, 3.0]


# GEN


def gen(logits: np.ndarray, gamma: float, top: int) -> list[float]:
    rows = [sorted(row, reverse=True)[:top] for row in softmax(logits, axis=1)]
    return [sum(p**gamma * (1 - p) ** gamma for p in row) for row in rows]


@pytest.mark.parametrize("gamma", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("classes", "top", "summed"), [(2, None, 2), (10, None, 10), (150, None, 100), (10, 3, 3)])
def test_gen_equals_the_paper(gamma: float, classes: int, top: int | None, summed: int) -> None:
    logits = 2 * randn(60, classes)
    score = Gen(gamma, top).fit(Features(logits=logits)).score(logits)
    np.testing.assert_allclose(score, gen(logits.numpy(), gamma, summed), rtol=1e-9)


def test_more_classes_than_there_are_is_all() -> None:
    features = Features(logits=randn(9, 4))
    assert torch.equal(*(Gen(top=top).fit(features).score(features) for top in (4, 99)))


def test_gen_by_hand() -> None:
    features = Features(logits=np.log([[0.8, 0.15, 0.05]]))
    expected = math.sqrt(0.8 * 0.2) + math.sqrt(0.15 * 0.85) + math.sqrt(0.05 * 0.95)
    assert float(Gen(gamma=0.5).fit(features).score(features)) == pytest.approx(expected, rel=1e-12)
    assert float(Gen(gamma=0.5, top=1).fit(features).score(features)) == pytest.approx(0.4, rel=1e-12)


def test_gen_goes_on_falling_where_the_probability_is_one() -> None:
    logits = torch.zeros(40, 5)
    logits[:, 2] = torch.arange(40.0) * 10
    assert (logits.softmax(1).max(1).values == 1).sum() > 30
    score = Gen().fit(Features(logits=logits)).score(logits)
    assert (score.diff() < 0).all()
    rest = np.exp(-np.arange(5.0, 40.0))  # each other class has p = exp(-10 i), and 1 - p of the first is 4 p
    np.testing.assert_allclose(score[5:], 4**0.1 * rest + 4 * rest, rtol=1e-5)


@pytest.mark.parametrize("top", [None, 1, 2])
@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gen_and_its_gradient_are_finite(size: float, classes: int, top: int | None, dtype: torch.dtype) -> None:
    logits = (size * randn(20, classes)).to(dtype)
    energy = Gen(top=top).fit(Features(logits=logits))
    assert torch.isfinite(energy.score(logits)).all()
    assert torch.isfinite(energy.gradient_of(logits)).all()


def test_the_gradient_of_gen_goes_through_the_head() -> None:
    z, weight = randn(20, 6).relu(), randn(4, 6, seed=1)
    energy = Gen().fit(Features(avg=z, head=(weight, None)))
    logits = (z @ weight.T).requires_grad_()
    (inner,) = torch.autograd.grad(
        sum(logits.softmax(1).pow(0.1).mul((1 - logits.softmax(1)).pow(0.1)).flatten()), logits
    )
    torch.testing.assert_close(energy.gradient_of(z), inner @ weight, rtol=1e-8, atol=1e-10)


# GradNorm


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_gradnorm_is_the_gradient_of_the_divergence(temperature: float, classes: int) -> None:
    z = randn(12, 5)
    head = torch.nn.Linear(5, classes).double()
    uniform = torch.full((classes,), 1 / classes, dtype=torch.float64)
    expected = []
    for sample in z:
        head.zero_grad()
        log_p = (head(sample) / temperature).log_softmax(0)
        (uniform * (uniform.log() - log_p)).sum().backward()
        expected.append(-head.weight.grad.abs().sum().item())
    features = Features(avg=z, head=(head.weight, head.bias))
    score = GradNorm(temperature).fit(features).score(features)
    np.testing.assert_allclose(score, expected, rtol=1e-9, atol=1e-14)


def test_gradnorm_by_hand() -> None:
    features = Features(avg=np.array([[1.0, -2.0]]), logits=np.log([[0.7, 0.2, 0.1]]))
    expected = 3 * (abs(0.7 - 1 / 3) + abs(0.2 - 1 / 3) + abs(0.1 - 1 / 3))
    assert float(GradNorm().fit(features).score(features)) == pytest.approx(-expected, rel=1e-12)


def test_gradnorm_reads_given_logits() -> None:
    z, weight = randn(5, 3), randn(2, 3, seed=1)
    given = Features(avg=z, logits=torch.zeros(5, 2, dtype=torch.float64), head=(weight, None))
    assert (GradNorm().fit(given).score(given) == 0).all()


def test_gradnorm_in_half_precision() -> None:
    features = Features(avg=torch.full((1, 5000), 100.0).half(), logits=torch.tensor([[50.0, 0.0]]).half())
    assert GradNorm().fit(features).score(features).tolist() == [-500_000.0]


# KL matching


def divergences(train: np.ndarray, test: np.ndarray) -> list[float]:
    p, q = softmax(train, axis=1), softmax(test, axis=1)
    predicted = train.argmax(1)
    templates = [p[predicted == c].mean(0) for c in range(train.shape[1]) if (predicted == c).any()]
    return [min(rel_entr(row, template).sum() for template in templates) for row in q]


@pytest.mark.parametrize(("n", "classes"), [(200, 5), (CHUNK + 77, 3), (3, 10), (1, 4)])
@pytest.mark.parametrize("size", [0.1, 3.0])
def test_kl_matching_equals_the_paper(n: int, classes: int, size: float) -> None:
    train, test = size * randn(n, classes), size * randn(50, classes, seed=1)
    energy = KLMatching().fit(Features(logits=train))
    np.testing.assert_allclose(energy.score(test), divergences(train.numpy(), test.numpy()), rtol=1e-9, atol=1e-13)


def test_kl_matching_by_hand() -> None:
    train = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]], dtype=torch.float64).log()
    energy = KLMatching().fit(Features(logits=train))
    np.testing.assert_allclose(energy.templates.exp(), [[0.8, 0.2], [0.4, 0.6]], rtol=1e-12)
    half = 0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.6)
    assert float(energy.score(torch.zeros(1, 2).double())) == pytest.approx(half, rel=1e-12)
    assert float(energy.score(torch.tensor([[0.8, 0.2]]).double().log())) == pytest.approx(0, abs=1e-15)


def test_a_class_never_predicted_has_no_template() -> None:
    train = randn(40, 5)
    train[:, 3] = -9
    assert KLMatching().fit(Features(logits=train)).templates.shape == (4, 5)


def test_templates_are_exact_where_probabilities_vanish() -> None:
    train = torch.tensor([[0.0, -2000.0, -5.0], [0.0, -2001.0, -5.0]], dtype=torch.float64)
    energy = KLMatching().fit(Features(logits=train))
    expected = -2000 + math.log((1 + math.exp(-1)) / 2) - math.log1p(math.exp(-5))
    assert float(energy.templates[0, 1]) == pytest.approx(expected, rel=1e-14)
    odd = torch.tensor([[-2000.0, 0.0, -2000.0]]).double()
    assert float(energy.score(odd)) == pytest.approx(-expected, rel=1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-20, 1e6])
def test_kl_matching_is_finite(size: float) -> None:
    logits = (size * randn(30, 4)).float()
    energy = KLMatching().fit(Features(logits=logits))
    assert torch.isfinite(energy.score(logits)).all()
    assert torch.isfinite(energy.score(logits.flip(1))).all()


def test_logits_of_another_classifier_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"logits of 4 classes, and KLMatching was fitted to 3\. Pass logits of the same"
    ):
        KLMatching().fit(Features(logits=randn(9, 3))).score(randn(2, 4))


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(0, 3), torch.ones(2, 3, dtype=torch.long)])
def test_templates_of_another_kind_are_refused(wrong: Tensor) -> None:
    energy = KLMatching().fit(Features(logits=randn(9, 3)))
    energy.templates = wrong
    with pytest.raises(InputError, match="the templates are"):
        energy.validate()


# Settings


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (Gen(gamma=0), "gamma must be positive and at most 1, not 0"),
        (Gen(gamma=2), "gamma .* not 2. The paper takes 0.1"),
        (Gen(top=0), "top is how many classes .* at least 1, not 0"),
        (GradNorm(0), "temperature must be positive, not 0"),
        (GradNorm(-1.0), "temperature must be positive, not -1.0"),
    ],
)
def test_bad_settings(energy: Energy, message: str) -> None:
    with pytest.raises(InputError, match=message):
        energy.fit(Features(avg=randn(9, 3), logits=randn(9, 3)))


@pytest.mark.parametrize(
    ("energy", "shown"),
    [
        (MaximumLogit(), "MaximumLogit()"),
        (Gen(top=2), "Gen(gamma=0.1, top=2, proposals=False)"),
        (Gen(proposals=True), "Gen(gamma=0.1, top=None, proposals=True)"),
        (GradNorm(2.0), "GradNorm(temperature=2.0)"),
        (KLMatching(), "KLMatching()"),
    ],
)
def test_saved_and_loaded(energy: Energy, shown: str, tmp_path: Path) -> None:
    features = Features(avg=randn(60, 5).relu(), head=(randn(3, 5, seed=1), randn(3, seed=2)))
    energy.fit(features).save(tmp_path)
    loaded = Energy.load(tmp_path)
    assert repr(loaded) == f"{shown}  # fitted"
    assert torch.equal(loaded.score(features), energy.score(features))
