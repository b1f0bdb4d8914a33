"""Rules that compose energies, each against what numpy, scipy and scikit-learn say."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import combine_pvalues, norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from detector_data import data
from heat_ood import HEAT, Features
from heat_ood.heat._choice import FAMILY_WEIGHTS, ONE_LAYER_WEIGHTS, default_choice
from heat_ood.selection._rules import RULES, by_family, decorrelated, family_weights, tails, weighted

NAMES = ("energy", "relative-gmm-joint", "gmm-joint@early", "gmm-joint")


def energies(n: int = 300, seed: int = 0, share: float = 0.3) -> Tensor:
    """Correlated, of different places and spreads, rounded so that there are ties."""
    g = torch.Generator().manual_seed(seed)
    common, own = (torch.randn(n, k, generator=g, dtype=torch.float64) for k in (1, len(NAMES)))
    scale = torch.tensor([1.0, 20.0, 3.0, 0.5], dtype=torch.float64)
    return ((common * share + own) * scale * 8).round() / 8 + 5 * scale.flip(0)


def outside(n: int = 80) -> Tensor:
    return energies(n, seed=7) + torch.tensor([2.0, 10.0, 0.0, 1.0], dtype=torch.float64)


def standard(e: Tensor) -> np.ndarray:
    real = energies().numpy()
    return (e.numpy() - real.mean(0)) / real.std(0)


def p_values(e: Tensor, real: Tensor) -> np.ndarray:
    return (1 + (real.numpy()[None] >= e.numpy()[:, None]).sum(1)) / (1 + len(real))


def scores(rule: str, e: Tensor) -> np.ndarray:
    return RULES[rule](NAMES, energies())(e).numpy()


def test_tails_count_the_samples_at_least_as_high_and_the_sample_itself() -> None:
    real = torch.tensor([[1.0], [2.0], [2.0], [5.0]], dtype=torch.float64)
    found = tails(real, torch.tensor([[0.0], [1.0], [2.0], [3.0], [5.0], [9.0]], dtype=torch.float64))
    assert (5 * found[:, 0]).tolist() == [5, 5, 4, 2, 2, 1]
    assert found.dtype == torch.float64
    ties = tails(energies(), energies())
    assert len(ties[:, 0].unique()) < len(ties)
    np.testing.assert_allclose(ties, p_values(energies(), energies()), rtol=1e-15)


def test_fisher() -> None:
    p = p_values(outside(), energies())
    expected = [combine_pvalues(row, "fisher").statistic / 2 for row in p]
    np.testing.assert_allclose(scores("Fisher", outside()), expected, rtol=1e-12)


def test_stouffer() -> None:
    p = p_values(outside(), energies())
    inside = (p < 1).all(1)
    assert 0 < inside.sum() < len(inside)
    expected = [combine_pvalues(row, "stouffer").statistic * len(NAMES) ** 0.5 for row in p[inside]]
    found = scores("Stouffer", outside())
    np.testing.assert_allclose(found[inside], expected, rtol=1e-9)
    np.testing.assert_allclose(found, norm.isf(np.minimum(p, 1 - 1e-9)).sum(1), rtol=1e-6)


def test_fisher_decorrelated() -> None:
    real, other = (-np.log(p_values(e, energies())) for e in (energies(), outside()))
    w = np.linalg.solve(np.corrcoef(real.T), np.ones(len(NAMES)))
    assert (w > 0).all()
    expected = (other - real.mean(0)) / real.std(0) @ (w / w.sum())
    np.testing.assert_allclose(scores("Fisher, decorrelated", outside()), expected, rtol=1e-4, atol=1e-5)


def test_decorrelated_is_the_linear_discriminant_of_a_common_shift() -> None:
    real = energies().numpy()
    shifted = np.concatenate([real, real + real.std(0)])
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(shifted, np.repeat([0, 1], len(real)))
    found, expected = scores("decorrelated", outside()), lda.decision_function(outside().numpy())
    assert np.corrcoef(found, scores("equal weights", outside()))[0, 1] < 0.99999
    assert np.corrcoef(found, expected)[0, 1] > 1 - 1e-9


def test_no_weights_tell_a_common_shift_better_than_the_decorrelated() -> None:
    z = torch.from_numpy(standard(energies()))
    w = decorrelated(NAMES, z)
    others = torch.rand(5000, len(NAMES), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert w.sum() == pytest.approx(1)
    assert w.sum() / (z @ w).std() >= (others.sum(1) / (z @ others.T).std(0)).max()


def test_weights_that_would_be_negative_are_zero() -> None:
    g = torch.Generator().manual_seed(0)
    a, b, c = torch.randn(3, 1000, generator=g, dtype=torch.float64)
    real = torch.stack([a, a + b + 0.5 * c, b], 1)
    z = (real - real.mean(0)) / real.std(0, correction=0)
    free = np.linalg.solve(np.corrcoef(z.T.numpy()), np.ones(3))
    assert free.min() < 0
    np.testing.assert_allclose(decorrelated("abc", z), free.clip(0) / free.clip(0).sum(), rtol=1e-3)


@pytest.mark.parametrize(("rule", "beta"), [("β = 1", 1.0), ("β = -1", -1.0)])
def test_beta(rule: str, beta: float) -> None:
    expected = logsumexp(beta * standard(outside()), b=1 / len(NAMES), axis=1) / beta
    np.testing.assert_allclose(scores(rule, outside()), expected, rtol=1e-10)


def test_equal_weights_and_the_maximum() -> None:
    np.testing.assert_allclose(scores("equal weights", outside()), standard(outside()).mean(1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(scores("maximum", outside()), standard(outside()).max(1), rtol=1e-10)


def test_weights_and_beta_together() -> None:
    rule = weighted(by_family(2, 1, 4), beta=0.5)(NAMES, energies())
    expected = 2 * logsumexp(0.5 * standard(outside()), b=np.array([2, 1, 2, 2]) / 7, axis=1)
    np.testing.assert_allclose(rule(outside()), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (NAMES, [6, 2, 2, 2]),
        (("gmm", "energy"), [4, 6]),
        (("relative-gmm", "relative-gmm-joint", "gmm-std@a"), [1, 1, 4]),
        (("knn", "gmm", "energy", "gmm@b", "vim"), [1, 1, 6, 1, 1]),
    ],
)
def test_a_family_shares_its_weight(names: tuple[str, ...], weights: list[float]) -> None:
    assert family_weights(names, {"energy": 6.0, "relative": 2.0, "densities": 4.0}).tolist() == weights


@pytest.mark.parametrize("name", [name for name in RULES if name.startswith("by family")])
def test_a_rule_by_family_does_what_its_name_says(name: str) -> None:
    energy, relative, densities = map(float, name.split()[2].split(":"))
    w = np.array([energy, relative, densities / 2, densities / 2])
    expected = standard(outside()) @ w
    factor = scores(name, outside()) / expected
    np.testing.assert_allclose(factor, factor[0], rtol=1e-8)
    assert factor[0] > 0


@pytest.mark.parametrize("layers", [True, False])
def test_the_rule_of_the_default_gives_the_scores_of_the_detector(
    layers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_layer = {"relative-gmm-joint": 0.9}
    monkeypatch.setattr("heat_ood.heat._choice.unseen_told", lambda *_: last_layer)

    def given(seed: int) -> Features:
        found = data(seed=seed)
        return found if layers else found.only(("avg", "std", "logits"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = HEAT(residual=None).fit(given(0))
    given_weights = FAMILY_WEIGHTS if layers else ONE_LAYER_WEIGHTS
    assert family_weights(detector.priors_, given_weights).tolist() == list(default_choice(given(0)).weights)

    held, test = (
        torch.stack([e.score(f) for e in detector.composition.members.values()], 1)
        for f in (detector.split(given(0))[1], given(1))
    )
    rule = "by family 3:1:2" if layers else "one-sided 3:1:4"
    found = RULES[rule](detector.priors_, held)(test) / sum(given_weights.values())
    torch.testing.assert_close(found, detector.score(given(1)), rtol=1e-5, atol=1e-5)


def test_the_one_sided_rule_gives_the_scores_of_the_detector() -> None:
    priors = ("energy", "relative-gmm-joint", "gmm-joint@block.1", "gmm-joint")
    detector = HEAT(priors, (6, 2, 2, 2), residual=None, excess=priors[2:]).fit(data())
    held, test = (
        torch.stack([e.score(f) for e in detector.composition.members.values()], 1)
        for f in (detector.split(data())[1], data(seed=1))
    )
    found = RULES["one-sided 3:1:2"](priors, held)(test)
    torch.testing.assert_close(found / 6, detector.score(data(seed=1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 3.0])
@pytest.mark.parametrize("name", RULES)
def test_raising_every_energy_never_lowers_a_score(name: str, share: float) -> None:
    score = RULES[name](NAMES, energies(share=share))
    g = torch.Generator().manual_seed(1)
    e = torch.cat([energies(200, 3, share), outside()])
    raised = e + 4 * (torch.rand(e.shape, generator=g, dtype=torch.float64) - 0.3).clamp(min=0)
    assert (score(raised) >= score(e) - 1e-9).all()
    assert (score(e + 1000) > score(e)).float().mean() > 0.9


@pytest.mark.parametrize("name", RULES)
def test_an_energy_that_is_always_the_same_breaks_nothing(name: str) -> None:
    real = energies()
    real[:, 1] = 4.0
    score = RULES[name](NAMES, real)(real)
    assert score.isfinite().all()
    assert score.std() > 0
