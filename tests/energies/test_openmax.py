"""OpenMax: against the algorithm class by class, with SciPy's Weibull."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import rankdata, weibull_min
from torch import Tensor

from heat_ood.energies import Energy, OpenMax
from heat_ood.energies._head import CHUNK
from heat_ood.energies._openmax import largest, weibull
from heat_ood.errors import InputError
from heat_ood.features import Features


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def classified(n: int = 400, classes: int = 4, spread: float = 1.0) -> Features:
    labels = torch.arange(n) % classes
    return Features(logits=4 * torch.eye(classes).double()[labels] + spread * randn(n, classes), labels=labels)


# The algorithm, one class and one sample after the other


def apart(x: np.ndarray, mean: np.ndarray, kind: str) -> float:
    euclidean = float(np.linalg.norm(x - mean))
    cosine = 1 - float(x @ mean) / float(np.linalg.norm(x) * np.linalg.norm(mean))
    return {"euclidean": euclidean, "cosine": cosine, "eucos": euclidean / 200 + cosine}[kind]


def slope(k: float, t: np.ndarray) -> float:
    """Of the Weibull's log likelihood in its shape, with the best scale: zero at the maximum."""
    return (t**k @ np.log(t)) / (t**k).sum() - 1 / k - np.log(t).mean()


def fitted(f: np.ndarray, labels: np.ndarray, tail: int, kind: str) -> list[tuple[np.ndarray, float, float]]:
    found = []
    for c in range(f.shape[1]):
        own = f[(labels == c) & (f.argmax(1) == c)]
        mean = own.mean(0)
        t = np.array(sorted(apart(x, mean, kind) for x in own)[-tail:])
        shape = brentq(slope, 1e-3, 200, args=(t,), xtol=1e-13)
        found.append((mean, shape, (t**shape).mean() ** (1 / shape)))
    return found


def unknown(f: np.ndarray, models: list[tuple[np.ndarray, float, float]], alpha: int, kind: str) -> np.ndarray:
    """The probabilities of the known classes and, last, of the unknown one."""
    revised, lost = f.copy(), 0.0
    alpha = min(alpha, len(f))
    for i, c in enumerate(np.argsort(-f)[:alpha], start=1):
        mean, shape, scale = models[c]
        w = weibull_min.cdf(apart(f, mean, kind), shape, scale=scale)
        revised[c] = f[c] * (1 - w * (alpha - i + 1) / alpha)
        lost += f[c] - revised[c]
    v = np.append(revised, lost)
    return np.exp(v - v.max()) / np.exp(v - v.max()).sum()


@pytest.mark.parametrize("kind", ["euclidean", "cosine", "eucos"])
@pytest.mark.parametrize(("tail", "alpha"), [(20, 10), (20, 2), (5, 3), (500, 1)])
def test_equals_the_algorithm(tail: int, alpha: int, kind: str) -> None:
    features, test = classified(), 3 * randn(60, 4, seed=3)
    models = fitted(features.logits.numpy(), features.labels.numpy(), tail, kind)
    p = np.array([unknown(f, models, alpha, kind)[-1] for f in test.numpy()])
    score = OpenMax(tail, alpha, kind).fit(features).score(test)
    np.testing.assert_allclose(score, np.log(p / (1 - p)), rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(rankdata(score), rankdata(p))


def test_by_hand() -> None:
    energy = OpenMax(alpha=2).fit(classified(classes=3))
    energy.centres = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [9.0, 9.0, 9.0]]).double()
    energy.shapes = torch.tensor([1.0, 2.0, 1.0]).double()
    energy.log_scales = torch.tensor([2.0, 5.0, 1.0]).double().log()
    # (3, 4, 0): class 1 first, 5 away from its centre, 5 its scale, shape 2; class 0 next, 4 away, scale 2, shape 1
    lost = 4 * (1 - math.exp(-1)), 3 * 0.5 * (1 - math.exp(-2))
    expected = sum(lost) - math.log(math.exp(4 - lost[0]) + math.exp(3 - lost[1]) + 1)
    score = energy.score(torch.tensor([[3.0, 4.0, 0.0]]).double())
    assert float(score) == pytest.approx(expected, rel=1e-12)


def test_it_does_not_saturate() -> None:
    energy = OpenMax().fit(classified())
    rays = torch.linspace(10, 2000, 50, dtype=torch.float64)[:, None] * torch.ones(4, dtype=torch.float64)
    assert (energy.score(rays).diff() > 0).all()
    assert (torch.sigmoid(energy.score(rays)) == 1).sum() > 30, "the probability does"


# The Weibull


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.0, 15.0, 300.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("n", [2, 3, 20, 300])
def test_weibull_has_the_largest_likelihood(shape: float, scale: float, n: int) -> None:
    tails = weibull_min.rvs(shape, scale=scale, size=(6, n), random_state=n)
    shapes, log_scales = weibull(torch.from_numpy(tails))
    for t, k, lam in zip(tails, shapes.tolist(), log_scales.exp().tolist(), strict=True):
        s = t / lam
        assert np.mean(s**k) == pytest.approx(1, rel=1e-9)
        assert 1 / k + np.log(s).mean() == pytest.approx(np.mean(s**k * np.log(s)), rel=1e-9, abs=1e-12)


def test_weibull_equals_scipy() -> None:
    tails = weibull_min.rvs(3.0, scale=2.0, size=(8, 20), random_state=0)
    shapes, log_scales = weibull(torch.from_numpy(tails))
    for t, k, lam in zip(tails, shapes.tolist(), log_scales.exp().tolist(), strict=True):
        expected, _, scale = weibull_min.fit(t, floc=0)
        assert (k, lam) == (pytest.approx(expected, rel=1e-4), pytest.approx(scale, rel=1e-4))


def test_weibull_of_rows_of_several_lengths() -> None:
    t = torch.tensor([3.0, 2.0, 1.5, 0.7]).double()
    padded = torch.stack([t, torch.tensor([3.0, 2.0, 0.0, 0.0]).double(), torch.zeros(4).double()])
    whole, part = weibull(t[None]), weibull(t[None, :2])
    shapes, log_scales = weibull(padded)
    torch.testing.assert_close(shapes[:2], torch.cat([whole[0], part[0]]), rtol=1e-12, atol=0)
    torch.testing.assert_close(log_scales[:2], torch.cat([whole[1], part[1]]), rtol=1e-12, atol=0)
    assert shapes[2].isnan()
    assert log_scales[2].isnan()


@pytest.mark.parametrize("row", [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [2.0, 2.0 + 1e-12]])
def test_weibull_of_distances_that_do_not_differ(row: list[float]) -> None:
    shapes, log_scales = weibull(torch.tensor([row]).double())
    assert shapes.isnan().all()
    assert log_scales.isnan().all()


@pytest.mark.parametrize("k", [1, 3, 50])
def test_largest_of_each_class(k: int) -> None:
    distances, classes = randn(200).abs(), torch.randint(5, (200,), generator=torch.Generator().manual_seed(0))
    classes[classes == 3] = 1
    tails = torch.zeros(5, k).double()
    for part, owner in zip(distances.split(7), classes.split(7), strict=True):
        tails = largest(tails, part, owner)
    for c in range(5):
        expected = sorted(distances[classes == c].tolist(), reverse=True)[:k]
        assert tails[c].tolist() == expected + [0.0] * (k - len(expected))


# Edges


def test_the_fit_streams() -> None:
    features = classified(CHUNK + 100)
    shuffled = features[torch.randperm(len(features), generator=torch.Generator().manual_seed(0))]
    one, other = OpenMax().fit(features), OpenMax().fit(shuffled)
    for name in ("centres", "shapes", "log_scales"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-12)


def test_wrong_samples_do_not_count() -> None:
    features = classified(spread=2.5)
    right = features.logits.argmax(1) == features.labels
    assert not right.all()
    one, other = OpenMax().fit(features), OpenMax().fit(features[right])
    assert torch.equal(one.centres, other.centres)
    assert torch.equal(one.shapes, other.shapes)


def few(samples: int) -> Features:
    """Class 0 has only so many samples."""
    whole = classified(spread=0.5)
    keep = whole.labels != 0
    keep[(~keep).nonzero()[:samples]] = True
    return whole[keep]


@pytest.mark.parametrize("samples", [1, 2])
def test_a_class_with_too_few_samples_takes_the_median(samples: int) -> None:
    energy = OpenMax().fit(few(samples))
    for parameter in (energy.shapes, energy.log_scales):
        assert parameter[0] == parameter[1:].median()
    assert torch.isfinite(energy.score(5 * randn(50, 4))).all()


def test_a_class_without_samples_is_never_revised() -> None:
    energy = OpenMax(alpha=1).fit(few(0))
    f = torch.tensor([[500.0, 1.0, 2.0, 3.0]]).double()
    assert float(energy.score(f)) == pytest.approx(-500)
    assert float(energy.score(f.roll(1, 1))) == pytest.approx(500 - math.log(np.exp([0, 1, 2, 3]).sum()))


def test_where_nothing_can_be_fitted_nothing_is_revised() -> None:
    logits = torch.eye(3).double()
    energy = OpenMax().fit(Features(logits=logits, labels=[0, 1, 2]))
    torch.testing.assert_close(energy.score(7 * logits), -(7 * logits).logsumexp(1))


@pytest.mark.parametrize("kind", ["euclidean", "cosine", "eucos"])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1.0, 1e6])
@pytest.mark.parametrize("classes", [1, 2, 12])
def test_it_is_finite(size: float, classes: int, kind: str) -> None:
    features = classified(100, classes)
    logits = (size * features.logits).float()
    energy = OpenMax(distance=kind).fit(Features(logits=logits, labels=logits.argmax(1)))
    for test in (logits, torch.zeros(1, classes), torch.ones(1, classes), 1e6 * logits.sign()):
        assert torch.isfinite(energy.score(test)).all()


def test_labels_that_never_agree() -> None:
    features = classified(spread=0.1)
    with pytest.raises(InputError, match=r"none of 400 samples is classified correctly\. Pass labels that number"):
        OpenMax().fit(Features(logits=features.logits, labels=(features.labels + 1) % 4))


def test_labels_are_needed_to_fit_and_not_to_score() -> None:
    features = classified()
    with pytest.raises(InputError, match="needs labels"):
        OpenMax().fit(Features(logits=features.logits))
    assert OpenMax().fit(features).score(features.logits).shape == (400,)


def test_logits_of_another_classifier_are_refused() -> None:
    with pytest.raises(InputError, match="logits of 5 classes, and OpenMax was fitted to 4"):
        OpenMax().fit(classified()).score(randn(3, 5))


@pytest.mark.parametrize(
    ("energy", "message"),
    [
        (OpenMax(tail=1), "tail .* at least 2, not 1"),
        (OpenMax(alpha=0), "alpha .* at least 1, not 0"),
        (OpenMax(distance="manhattan"), "no distance 'manhattan'. Choose"),
    ],
)
def test_bad_settings(energy: OpenMax, message: str) -> None:
    with pytest.raises(InputError, match=message):
        energy.fit(classified())


@pytest.mark.parametrize("features", [classified(), few(0)], ids=["all", "unseen"])
def test_saved_and_loaded(features: Features, tmp_path: Path) -> None:
    energy = OpenMax(tail=9, distance="eucos").fit(features)
    energy.save(tmp_path)
    loaded = Energy.load(tmp_path)
    assert repr(loaded) == "OpenMax(tail=9, alpha=10, distance='eucos')  # fitted"
    assert torch.equal(loaded.score(features), energy.score(features))


@pytest.mark.parametrize("part", ["centres", "shapes", "log_scales"])
@pytest.mark.parametrize("wrong", [torch.zeros(2).double(), torch.zeros(4, 4), torch.zeros(4)])
def test_parts_that_do_not_fit_are_refused(part: str, wrong: Tensor) -> None:
    energy = OpenMax().fit(classified())
    setattr(energy, part, wrong)
    with pytest.raises(InputError, match="the classes have tensors"):
        energy.validate()
