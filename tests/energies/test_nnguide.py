"""Nearest-neighbour guidance: against plain NumPy, by hand, on shapes that bite."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from gmm_reference import cloud, seeded
from heat_ood.energies import Energy, NNGuide
from heat_ood.energies import _neighbours as neighbours
from heat_ood.errors import InputError
from heat_ood.features import Features


def with_logits(n: int, seed: int = 0) -> Features:
    return Features(avg=cloud(n, seed=seed).avg, logits=3 * cloud(n, d=4, seed=seed + 5).avg)


@pytest.mark.parametrize("chunk", [7, 8192])
@pytest.mark.parametrize("k", [1, 10, 60])
def test_equals_the_formula(k: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "CHUNK", chunk)
    train, test = with_logits(60), with_logits(40, seed=1)
    bank = [logsumexp(f) * z / np.linalg.norm(z) for z, f in zip(train.avg.numpy(), train.logits.numpy(), strict=True)]
    expected = []
    for z, f in zip(test.avg.numpy(), test.logits.numpy(), strict=True):
        products = sorted((z @ b / np.linalg.norm(z) for b in bank), reverse=True)
        expected.append(-logsumexp(f) * np.mean(products[:k]))
    np.testing.assert_allclose(NNGuide(k).fit(train).score(test), expected, rtol=1e-9)


def test_by_hand() -> None:
    train = Features(
        avg=torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]]), logits=torch.tensor([[1.0], [2.0], [9.0]])
    )
    test = Features(avg=torch.tensor([[3.0, 4.0]]), logits=torch.tensor([[10.0]]))
    # cosines 0.6, 0.8, -0.6 times 1, 2, 9
    torch.testing.assert_close(NNGuide(k=1).fit(train).score(test), torch.tensor([-16.0]))
    torch.testing.assert_close(NNGuide(k=2).fit(train).score(test), torch.tensor([-11.0]))


def test_logits_may_follow_from_the_head() -> None:
    head = (torch.randn(3, 6, generator=seeded(), dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    train, test = (Features(avg=cloud(n, seed=n).avg, head=head) for n in (60, 20))
    plain = NNGuide(5).fit(Features(avg=train.avg, logits=train.logits))
    expected = plain.score(Features(avg=test.avg, logits=test.logits))
    assert torch.equal(NNGuide(5).fit(train).score(test), expected)


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_extreme_features_and_logits(scale: float) -> None:
    train = with_logits(60).to(torch.float32)
    test = Features(avg=scale * train.avg, logits=scale * train.logits)
    assert torch.isfinite(NNGuide().fit(train).score(test)).all()
    assert torch.isfinite(NNGuide().fit(test).score(train)).all()


def test_one_sample() -> None:
    one = Features(avg=torch.tensor([[0.0, 2.0]]), logits=torch.tensor([[3.0]]))
    torch.testing.assert_close(NNGuide(k=1).fit(one).score(one), torch.tensor([-9.0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "at least 1, not 0"),
        ({"k": 61}, "NNGuide cannot be fitted: it asks for 61 neighbours, and 60"),
        ({"k": 7, "limit": 0.1}, "7 neighbours, and 6 samples are stored"),
        ({"limit": 0.0}, "a share of them"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NNGuide(**settings).fit(with_logits(60))


@pytest.mark.parametrize("column", ["avg", "logits"])
def test_samples_that_are_not_finite_are_named(column: str) -> None:
    train = with_logits(60)
    train.column(column)[31, 1] = math.nan
    with pytest.raises(InputError, match="sample 31 are not finite"):
        NNGuide().fit(train)


def test_features_of_another_width() -> None:
    with pytest.raises(InputError, match="has 5 features, and NNGuide was fitted to 6"):
        NNGuide().fit(with_logits(60)).score(Features(avg=torch.ones(2, 5), logits=torch.ones(2, 4)))


def test_saved_and_loaded(tmp_path: Path) -> None:
    guide = NNGuide(k=3, limit=30, seed=2).fit(with_logits(60))
    guide.save(tmp_path / "guide")
    loaded = Energy.load(tmp_path / "guide")
    assert torch.equal(loaded.score(with_logits(20, seed=1)), guide.score(with_logits(20, seed=1)))
    assert repr(loaded) == repr(guide) == "NNGuide(k=3, limit=30, seed=2)  # fitted"
    loaded.bank = loaded.bank[:2]
    with pytest.raises(InputError, match="3 neighbours, and 2"):
        loaded.validate()
