"""Ensembles: against NumPy, and on small networks trained from several seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heat_ood import HEAT, Extractor, Features, create, evaluate
from heat_ood.energies import Composition, Ensemble
from heat_ood.errors import InputError, NotFittedError

KINDS = ("energy", "softmax")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(seed: int, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, classes)).double()


def members(count: int = 3, n: int = 20, classes: int = 4) -> list[Features]:
    return [Features(logits=3 * randn(n, classes, seed=m)) for m in range(count)]


def expected(logits: list[np.ndarray[Any, Any]], kind: str) -> list[float]:
    found = []
    for rows in zip(*logits, strict=True):
        if kind == "energy":
            found.append(float(np.mean([-logsumexp(row) for row in rows])))
        else:
            p = np.mean([softmax(row) for row in rows], axis=0)
            found.append(float(np.log(np.delete(p, p.argmax()).sum() / p.max())))
    return found


# The formulas


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("classes", [2, 10])
def test_equals_numpy(monkeypatch: pytest.MonkeyPatch, kind: str, count: int, classes: int) -> None:
    monkeypatch.setattr("heat_ood.energies._ensemble.CACHE_FRIENDLY", 7)
    parts = members(count, classes=classes)
    found = Ensemble(kind).fit(parts).score(parts)
    np.testing.assert_allclose(found, expected([p.logits.numpy() for p in parts], kind), rtol=1e-9, atol=1e-12)


def test_by_hand() -> None:
    """Probabilities (3/4, 1/4) and (1/4, 3/4), (3/4, 1/4) and (1/2, 1/2): the means are (1/2, 1/2) and (5/8, 3/8)."""
    log3 = math.log(3)
    parts = [Features(logits=torch.tensor(rows).double()) for rows in ([[log3, 0], [log3, 0]], [[0, log3], [1, 1]])]
    energy, odds = (Ensemble(kind).fit(parts).score(parts).tolist() for kind in KINDS)
    assert energy == pytest.approx([-math.log(4), -(math.log(4) + 1 + math.log(2)) / 2])
    assert odds == pytest.approx([0.0, math.log(3 / 5)], abs=1e-7)


def test_ranks_as_the_largest_mean_probability_and_does_not_saturate() -> None:
    parts = members(3, 200, 5)
    p = np.mean([softmax(part.logits.numpy(), axis=1) for part in parts], axis=0).max(1)
    assert (np.argsort(Ensemble("softmax").fit(parts).score(parts).numpy()) == np.argsort(-p)).all()
    sure = [Features(logits=torch.stack([torch.arange(50.0) * 10, torch.zeros(50)], 1)) for _ in range(2)]
    assert (Ensemble("softmax").fit(sure).score(sure).diff() < 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
@pytest.mark.parametrize("classes", [1, 3])
def test_extremes_are_finite(kind: str, scale: float, classes: int) -> None:
    parts = [Features(logits=(scale * randn(9, classes, seed=m)).float()) for m in range(2)]
    assert torch.isfinite(Ensemble(kind).fit(parts).score(parts)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_members_are_as_one_and_their_order_does_not_matter(kind: str) -> None:
    parts = members(3)
    ensemble = Ensemble(kind).fit(parts)
    torch.testing.assert_close(ensemble.score(parts), ensemble.score(parts[::-1]), rtol=1e-12, atol=1e-12)
    alone = create("energy" if kind == "energy" else "msp").fit(parts[0]).score(parts[0])
    torch.testing.assert_close(ensemble.score([parts[0]] * 3), alone, rtol=1e-9, atol=1e-9)


# Models


@pytest.mark.parametrize("kind", KINDS)
def test_models_and_their_features_score_alike(kind: str) -> None:
    models, x = [network(m) for m in range(3)], randn(20, 5)
    extractors = [Extractor(model) for model in models]
    parts = [extractor.extract([x], dtype=torch.float64) for extractor in extractors]
    on_features, on_inputs = Ensemble(kind).fit(parts), Ensemble(kind).attach(*models).fit(list(x.split(6)))
    torch.testing.assert_close(on_inputs.score(x), on_features.score(parts), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(on_features.attach(*extractors[::-1]).score(x), on_inputs.score(x), rtol=1e-9, atol=1e-9)
    assert all(p.grad is None and p.requires_grad for model in models for p in model.parameters())
    assert all(module.training for model in models for module in model.modules())
    on_inputs.calibrate(DataLoader(TensorDataset(x), batch_size=6))
    torch.testing.assert_close(on_inputs.p_value(x), on_features.calibrate(parts).p_value(parts))
    assert on_inputs.predict(x, fpr=0.5).sum() == on_features.predict(parts, fpr=0.5).sum() == 9, (
        "1 + 9 of 21 is under a half"
    )


def test_a_member_that_writes_into_its_input_does_not_reach_the_next() -> None:
    first = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)).double()
    x = randn(9, 5)
    forth = Ensemble().attach(first, network(1)).fit(x).score(x.clone())
    back = Ensemble().attach(network(1), first).fit(x).score(x)
    torch.testing.assert_close(forth, back, rtol=1e-12, atol=1e-12)


def test_calibration_within_the_class_of_the_mean_prediction() -> None:
    parts, test = members(2, 120, 3), [Features(logits=2 * randn(30, 3, seed=m + 9)) for m in range(2)]
    ensemble = Ensemble().fit(parts).calibrate(parts, per_class=True)

    def classes(features: list[Features]) -> Tensor:
        return torch.stack([f.logits.softmax(1) for f in features]).mean(0).argmax(1)

    known, own, scores = classes(parts), classes(test), ensemble.score(test)
    reference = ensemble.score(parts)
    expected = [
        (1 + int((reference[known == c] >= s).sum())) / (1 + int((known == c).sum()))
        for s, c in zip(scores, own, strict=True)
    ]
    assert ensemble.p_value(test).tolist() == pytest.approx(expected)


def test_other_members_are_refused() -> None:
    models, x = [network(m) for m in range(3)], randn(9, 5)
    ensemble = Ensemble().attach(*models).fit(x)
    ensemble.attach(*models[::-1])
    for wrong in ([*models[:2], network(7)], [models[0], models[0], models[1]]):
        with pytest.raises(InputError, match="fitted with another model"):
            ensemble.attach(*wrong)
        with pytest.raises(InputError, match="fitted with another model"):
            ensemble.score([Extractor(model)(x) for model in wrong])
    with pytest.raises(InputError, match=r"fitted with 3 models, not 2\. Pass as many"):
        ensemble.attach(*models[:2])
    with pytest.raises(InputError, match="fitted with 3 models, not 4"):
        ensemble.score(members(4))
    ensemble.score(members(3))  # no fingerprints, so there is nothing to compare


@pytest.mark.parametrize("count", [0, 1])
def test_one_model_is_no_ensemble(count: int) -> None:
    with pytest.raises(InputError, match=f"at least two models, not {count}"):
        Ensemble().attach(*[network(m) for m in range(count)])
    if count:
        with pytest.raises(InputError, match="at least two models, not 1"):
            Ensemble().fit(members(1))


def test_what_does_not_fit_together() -> None:
    with pytest.raises(InputError, match=r"kind is 'energy' or 'softmax', not 'mean'"):
        Ensemble("mean").fit(members())
    with pytest.raises(InputError, match="features are of 20, 19 samples"):
        Ensemble().fit([members()[0], members(n=19)[1]])
    with pytest.raises(InputError, match="features are of 0, 0 samples"):
        Ensemble().fit(members(2, n=0))
    with pytest.raises(InputError, match="The members have 4, 5 classes"):
        Ensemble().fit([members()[0], members(classes=5)[1]])
    with pytest.raises(InputError, match="The members have 3, 4 classes"):
        Ensemble().attach(network(0), network(1, classes=4)).fit(randn(9, 5))
    with pytest.raises(InputError, match="There are no logits"):
        Ensemble().fit([Features(avg=randn(9, 3)), Features(avg=randn(9, 3))])
    for action in (Ensemble().fit, Ensemble().fit(members()).score):
        with pytest.raises(InputError, match="on a list of features, one a model"):
            action(members()[0])


def test_before_a_fit_and_before_models() -> None:
    with pytest.raises(NotFittedError, match=r"Call \.attach\(model1, model2, …\)\.fit\(loader\)"):
        Ensemble().score(members())
    with pytest.raises(NotFittedError, match="reads models, and no model is attached"):
        Ensemble().fit(members()).score(randn(9, 5))
    with pytest.raises(NotFittedError, match="cannot be saved"):
        Ensemble().save("nowhere")


def test_it_cannot_be_composed_corrected_or_guarded() -> None:
    features = Features(avg=randn(60, 4), logits=randn(60, 3, seed=1))
    with pytest.raises(InputError, match="ensemble reads models"):
        Composition({"ensemble": Ensemble().fit(members())}).fit(features)
    with pytest.raises(InputError, match="ensemble reads models"):
        HEAT(priors=("ensemble",), residual=None).fit(features)
    with pytest.raises(InputError, match="ensemble reads models"):
        Extractor(network(0)).guard(Ensemble().fit(members()))


@pytest.mark.parametrize("known", [True, False])
def test_save_and_load(tmp_path: Path, known: bool) -> None:
    models, x = [network(m) for m in range(2)], randn(20, 5)
    parts = [Extractor(model)(x) for model in models] if known else members(2)
    ensemble = Ensemble("softmax").fit(parts).calibrate(parts)
    ensemble.save(tmp_path / "ensemble")
    loaded = Ensemble.load(tmp_path / "ensemble")
    assert torch.equal(loaded.score(parts), ensemble.score(parts))
    assert torch.equal(loaded.p_value(parts), ensemble.p_value(parts))
    assert loaded.settings == {"kind": "softmax"}
    assert repr(loaded) == "Ensemble(kind='softmax')  # fitted, calibrated"
    assert loaded.members_ == ensemble.members_
    with pytest.raises(InputError, match="fitted with 2 models, not 3"):
        loaded.attach(*models, network(2))
    if known:
        with pytest.raises(InputError, match="fitted with another model"):
            loaded.attach(models[0], network(2))
    loaded.attach(*models)


# Trained


@pytest.mark.parametrize("kind", KINDS)
def test_an_ensemble_detects_unseen_digits_better_than_its_members(kind: str) -> None:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    near, far = y < 7, y >= 7
    fitting = torch.arange(len(y)) % 2 == 0
    models = []
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 7))
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(60):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[near & fitting]), y[near & fitting]).backward()
            optimiser.step()
        models.append(model)

    def auroc(detector: Any, test: Any, ood: Any) -> float:
        return evaluate(detector, test, {"unseen": ood}, intervals=False)["unseen"].auroc

    whole = Ensemble(kind).attach(*models).fit(x[near & fitting])
    test, ood = x[near & ~fitting], x[far]
    single = create("energy" if kind == "energy" else "msp")
    each = [auroc(single.fit(Extractor(m)(test)), Extractor(m)(test), Extractor(m)(ood)) for m in models]
    parts = [[Extractor(m)(samples) for m in models] for samples in (test, ood)]
    assert auroc(whole, test, ood) >= np.mean(each)
    assert auroc(whole, list(test.split(50)), DataLoader(TensorDataset(ood), 64)) == auroc(whole, test, ood)
    assert auroc(whole, *parts) == pytest.approx(auroc(whole, test, ood), abs=1e-6)
