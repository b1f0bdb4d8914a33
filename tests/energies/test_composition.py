"""Composition: against arbitrary precision, for every beta."""

from __future__ import annotations

import math
from typing import Self

import mpmath
import pytest
import torch
from torch import Tensor

from heat_ood.energies import Composition, Energy, FreeEnergy, GaussianMixture, MaximumSoftmax, compose
from heat_ood.errors import InputError
from heat_ood.features import Features

BETAS = (-math.inf, -1e3, -1.0, -1e-6, 0.0, 1e-6, 1.0, 1e3, math.inf)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(row: list[float], beta: float, weights: list[float]) -> float:
    """The formula in enough digits to see exp(1e-300) - 1."""
    with mpmath.workdps(650 if 0 < abs(beta) < 1e-30 else 60):
        total = mpmath.fsum(weights)
        used = [(mpmath.mpf(e), mpmath.mpf(w) / total) for e, w in zip(row, weights, strict=True) if w > 0]
        if beta == 0:
            return float(mpmath.fsum(w * e for e, w in used))
        if math.isinf(beta):
            return float((max if beta > 0 else min)(e for e, _ in used))
        return float(mpmath.log(mpmath.fsum(w * mpmath.exp(beta * e) for e, w in used)) / beta)


@pytest.mark.parametrize("beta", [*BETAS, -1e-300, 1e-300, 0.3, -37.0, 1e300])
@pytest.mark.parametrize("weights", [None, [1.0, 1.0, 1.0], [2.0, 0.5, 1.5], [1e-8, 1.0, 1e-3], [1.0, 0.0, 3.0]])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_equals_the_formula_in_high_precision(beta: float, weights: list[float] | None, scale: float) -> None:
    energies = scale * randn(20, 3)
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    expected = [exact(row, beta, weights or [1.0] * 3) for row in energies.tolist()]
    found = compose(energies, beta, given)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-12 * scale)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("beta", BETAS)
def test_equal_energies_stay_what_they_are(k: int, beta: float) -> None:
    energies = randn(10, 1).expand(10, k)
    torch.testing.assert_close(compose(energies, beta), energies[:, 0], rtol=0, atol=1e-13)


def test_continuous_at_zero() -> None:
    energies = randn(50, 3)
    middle, variance = compose(energies, 0.0), energies.var(1, correction=0)
    for beta in (1e-12, 1e-9, 1e-6, 1e-3):
        for sign in (1, -1):
            first_order = middle + sign * beta / 2 * variance
            torch.testing.assert_close(compose(energies, sign * beta), first_order, rtol=0, atol=2 * beta**2 + 1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_monotone_in_beta(dtype: torch.dtype) -> None:
    energies = 3 * randn(200, 4).to(dtype)
    magnitudes = [10.0**e for e in range(-12, 13)]
    betas = [-math.inf, *(-b for b in reversed(magnitudes)), 0.0, *magnitudes, math.inf]
    path = torch.stack([compose(energies, beta) for beta in betas])
    assert (path.diff(dim=0) >= -20 * torch.finfo(dtype).eps).all()
    assert torch.equal(path[-1], energies.amax(1))
    assert torch.equal(path[0], energies.amin(1))


@pytest.mark.parametrize("beta", BETAS)
def test_monotone_in_each_energy(beta: float) -> None:
    energies = randn(100, 3)
    for k in range(3):
        higher = energies.clone()
        higher[:, k] += 0.5
        rise = compose(higher, beta) - compose(energies, beta)
        assert (rise >= -1e-14).all()
        assert (rise <= 0.5 + 1e-14).all()
        assert rise.max() > 0


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("bad", [1e30, -1e30, math.inf, -math.inf, math.nan])
def test_a_zero_weight_drops_a_member(beta: float, bad: float) -> None:
    energies = randn(10, 3)
    energies[:, 1] = bad
    found = compose(energies, beta, torch.tensor([1.0, 0.0, 2.0]))
    expected = compose(energies[:, [0, 2]], beta, torch.tensor([1.0, 2.0]))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 7.0, 1e6])
def test_weights_matter_up_to_a_factor(factor: float) -> None:
    energies, weights = randn(10, 3), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(compose(energies, 1.0, weights * factor), compose(energies, 1.0, weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [*BETAS, 1e30, -1e30, 1e300, -1e300])
@pytest.mark.parametrize("size", [1e3, 1e10, 1e37])
def test_large_energies_do_not_overflow(beta: float, size: float, dtype: torch.dtype) -> None:
    energies = (size * torch.tensor([[1.0, -1.0, 0.5], [-1.0, -0.9, -0.8]])).to(dtype)
    found = compose(energies, beta)
    expected = torch.tensor([exact(row, beta, [1.0] * 3) for row in energies.tolist()]).to(dtype)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=size * 1e-6)


# The energy


class Given(Energy):
    """The first column of avg, as it is."""

    name = "given"

    def __init__(self, column: int = 0) -> None:
        super().__init__()
        self.column = column

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg",)

    def fit(self, features: Features) -> Self:
        self.begin(features)
        return self

    def energy(self, features: Features) -> Tensor:
        return features.avg[:, self.column]


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("weights", [None, (1.0, 3.0), (0.1, 0.2)])
def test_standardised_by_the_given_samples(beta: float, weights: tuple[float, float] | None) -> None:
    scale, shift = torch.tensor([3.0, 1e3]), torch.tensor([-7.0, 1e4])
    held, test = (Features(avg=randn(n, 2, seed=n) * scale + shift) for n in (500, 40))
    both = Composition({"a": Given(0), "b": Given(1)}, beta, weights).standardise(held)
    standard = (test.avg - held.avg.mean(0)) / held.avg.std(0, correction=0)
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    torch.testing.assert_close(both.score(test), compose(standard, beta, given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -12345.678, 3e37, 1e-30])
def test_an_energy_without_spread_is_only_centred(value: float, dtype: torch.dtype) -> None:
    z = torch.cat([torch.full((333, 1), value, dtype=dtype), randn(333, 1).to(dtype)], 1)
    both = Composition({"flat": Given(0), "other": Given(1)}).standardise(Features(avg=z))
    assert both.spreads[0] == 1
    alone = Composition({"other": Given(1)}).standardise(Features(avg=z))
    found = both.score(Features(avg=z)) - alone.score(Features(avg=z)) / 2
    torch.testing.assert_close(found, found[:1].expand(333), rtol=0, atol=1e-6 + 1e-7 * abs(value))


def test_rounding_is_no_spread() -> None:
    z = torch.full((333, 1), 1234.5)
    z[::2] = torch.nextafter(z[::2], torch.tensor(torch.inf))
    flat = Composition({"flat": Given(0)}).standardise(Features(avg=z))
    assert flat.score(Features(avg=z)).abs().max() < 1e-3


def test_one_sample_has_no_spread() -> None:
    both = Composition({"a": Given(0), "b": Given(1)}).standardise(Features(avg=torch.tensor([[2.0, 5.0]])))
    assert both.score(torch.tensor([[3.0, 7.0]])).tolist() == [1.5]


def test_fit_fits_what_is_not_fitted() -> None:
    train = Features(avg=randn(100, 4), logits=randn(100, 3, seed=1), labels=torch.arange(100) % 3)
    ready = GaussianMixture().fit(train[:50])
    before = ready.score(train)
    both = Composition({"ready": ready, "raw": GaussianMixture(), "msp": MaximumSoftmax()})
    assert not both.fitted
    both.fit(train)
    assert both.fitted
    assert torch.equal(ready.score(train), before)
    assert both.reads == ("avg", "logits")
    assert "GaussianMixture" in repr(both)


def test_names_with_dots_are_kept() -> None:
    both = Composition({"gmm@layer1.0": Given(0), "b": Given(1)})
    assert list(both.members) == ["gmm@layer1.0", "b"]


def test_parts_of_two_precisions_compose() -> None:
    train = Features(avg=randn(100, 4), logits=randn(100, 3, seed=1).float(), labels=torch.arange(100) % 3)
    both = Composition({"gmm": GaussianMixture(), "energy": FreeEnergy()}).fit(train)
    assert torch.isfinite(both.score(train)).all()


@pytest.mark.parametrize(
    "weights", [(1.0,), (1.0, 2.0, 3.0), (1.0, -1.0), (0.0, 0.0), (1.0, math.nan), (1.0, math.inf)]
)
def test_weights_are_checked(weights: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="weights must be 2 non-negative numbers"):
        Composition({"a": Given(0), "b": Given(1)}, weights=weights).fit(Features(avg=randn(9, 2)))


def test_beta_is_a_number() -> None:
    with pytest.raises(InputError, match="beta is not a number"):
        Composition({"a": Given(0)}, beta=math.nan).fit(Features(avg=randn(9, 2)))


# What exceeds the ordinary


def by_hand(held: Tensor, test: Tensor, weights: list[float], inside: list[int], beta: float) -> Tensor:
    """The formula, term by term, in float64; ``beta`` by high precision."""
    real, new = ((z - held.mean(0)) / held.std(0, correction=0) for z in (held, test))
    own = torch.tensor([weights[i] for i in inside], dtype=torch.float64)
    mean, found = (sum(w * z[:, i] for i, w in zip(inside, own, strict=True)) / own.sum() for z in (real, new))
    beyond = torch.log1p(torch.exp((found - mean.mean()) / mean.std(correction=0) - 0.5))
    others = [i for i in range(held.shape[1]) if i not in inside]
    rows = torch.cat([new[:, others], beyond[:, None]], 1).tolist()
    shares = [*(weights[i] for i in others), float(own.sum())]
    return torch.tensor([exact(row, beta, shares) for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("weights", [None, (6.0, 2.0, 1.0, 3.0), (1.0, 0.0, 0.0, 2.0)])
@pytest.mark.parametrize("inside", [[3], [2, 3], [1, 3], [0, 1, 2]])
def test_parts_in_excess_count_together_and_one_sided(
    beta: float, weights: tuple[float, ...] | None, inside: list[int]
) -> None:
    scale, shift = torch.tensor([3.0, 1e3, 0.1, 1.0]), torch.tensor([-7.0, 1e4, 0.0, 2.0])
    held, test = (randn(n, 4, seed=n) * scale + shift for n in (500, 40))
    names = "abcd"
    parts = {name: Given(i) for i, name in enumerate(names)}
    made = Composition(parts, beta, weights, excess=tuple(names[i] for i in inside)).standardise(Features(avg=held))
    expected = by_hand(held, test, list(weights or [1.0] * 4), inside, beta)
    torch.testing.assert_close(made.score(Features(avg=test)), expected, rtol=1e-5, atol=1e-5)


def test_what_is_typical_in_excess_says_next_to_nothing_and_what_is_not_adds_up() -> None:
    held = Features(avg=randn(5000, 2))
    made = Composition({"view": Given(0), "far": Given(1)}, excess=("far",)).standardise(held)
    z = torch.tensor([[0.0, -9.0], [0.0, -5.0], [0.0, 9.0], [0.0, 10.0]], dtype=torch.float64)
    low, typical, far, farther = (2 * made.score(Features(avg=z))).tolist()
    assert abs(typical - low) < 0.01
    assert farther - far == pytest.approx(1, abs=0.05)


def test_an_excess_without_spread_breaks_nothing() -> None:
    z = torch.cat([randn(50, 1), torch.full((50, 1), 3.0, dtype=torch.float64)], 1)
    made = Composition({"view": Given(0), "flat": Given(1)}, excess=("flat",)).standardise(Features(avg=z))
    alone = Composition({"view": Given(0)}).standardise(Features(avg=z))
    found = made.score(Features(avg=z)) - alone.score(Features(avg=z)) / 2
    torch.testing.assert_close(found, found[:1].expand(50), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("excess", "weights", "text"),
    [
        (("c",), None, "excess names some of a, b, each once"),
        (("b", "b"), None, "excess names some of a, b, each once"),
        ("b", None, "excess names some of a, b, each once|excess"),
        (("a", "b"), None, "Not all priors can count by their excess"),
        (("b",), (1.0, 0.0), "weigh nothing together"),
    ],
)
def test_excess_is_checked(excess: tuple[str, ...], weights: tuple[float, ...] | None, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Composition({"a": Given(0), "b": Given(1)}, weights=weights, excess=excess).fit(Features(avg=randn(9, 2)))
