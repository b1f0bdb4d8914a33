"""HEAT: its terms, its seeds, and what it accepts."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from detector_data import QUICK, THREE, data, fit, same
from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.energies import GaussianMixture, compose
from heat_ood.residual import Hybrid

# Terms


VARIANTS: dict[str, dict[str, Any]] = {
    "one": {"priors": ("gmm",), "residual": QUICK},
    "two": {"priors": ("gmm", "gmm-std"), "residual": QUICK, "beta": -1.0},
    "three": {"priors": THREE, "residual": QUICK},
    "plain": {"priors": THREE, "residual": None, "beta": 2.0},
    "some": {"priors": THREE, "residual": {"gmm": QUICK, "energy": None}, "weights": (1, 0.5, 2)},
    "zero weight": {"priors": THREE, "residual": None, "weights": (1, 0, 2), "beta": math.inf},
    "minimum": {"priors": THREE, "residual": QUICK, "beta": -math.inf},
    "layers": {"priors": ("gmm@block.1", "gmm-std@block.1", "gmm-joint"), "residual": QUICK},
    "ebm": {"priors": ("ebm",), "residual": QUICK},
    "msp": {"priors": ("msp", "gmm"), "residual": {"gmm": QUICK}},
    "paper-like": {"priors": THREE, "residual": Residual(epochs=1, hidden=8, whiten=False, steps=2, batch=128)},
    "chains": {"priors": ("gmm",), "residual": Residual(epochs=1, hidden=8, steps=2, start="persistent")},
    "training": {"priors": THREE, "residual": None, "standardise": "training"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_terms_add_up_to_the_score(variant: str) -> None:
    settings = VARIANTS[variant]
    heat, test = fit(**settings), data(90, seed=1)
    terms, score = heat.energies(test), heat.score(test)

    residual = settings["residual"]
    corrected = {p for p in settings["priors"] if (residual.get(p) if isinstance(residual, dict) else residual)}
    kinds = {p: ("prior", "residual", "hybrid") if p in corrected else ("prior",) for p in settings["priors"]}
    assert list(terms) == [*(f"{kind}/{p}" for p in kinds for kind in kinds[p]), "score"]
    torch.testing.assert_close(terms["score"], score, rtol=0, atol=1e-12)

    train = data()
    fitting, held = heat.split(train)
    standard = []
    for name in settings["priors"]:
        part = heat.composition.members[name]
        if name in corrected:
            hybrid = terms[f"prior/{name}"] / part.temperature + terms[f"residual/{name}"]
            torch.testing.assert_close(terms[f"hybrid/{name}"], hybrid, rtol=0, atol=1e-12)
        else:
            hybrid = terms[f"prior/{name}"]
        reference = part.score(fitting if settings.get("standardise") == "training" else held)
        standard.append((hybrid - reference.mean()) / reference.std(correction=0))
    weights = torch.tensor(settings.get("weights", [1.0] * len(standard)), dtype=torch.float64)
    by_hand = compose(torch.stack(standard, 1), settings.get("beta", 0.0), weights)
    torch.testing.assert_close(score, by_hand, rtol=1e-5, atol=1e-5)


def test_priors_are_those_of_the_energies_alone() -> None:
    heat, test = fit(THREE, residual=None), data(50, seed=1)
    fitting, _ = heat.split(data())
    terms = heat.energies(test)
    torch.testing.assert_close(terms["prior/gmm"], GaussianMixture().fit(fitting).score(test), rtol=0, atol=1e-10)
    torch.testing.assert_close(
        terms["prior/gmm-std"], GaussianMixture(("std",)).fit(fitting).score(test), rtol=0, atol=1e-10
    )
    torch.testing.assert_close(terms["prior/energy"], -test.logits.logsumexp(1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("priors", [("gmm",), THREE])
def test_a_joint_residual_stands_on_the_composition(priors: tuple[str, ...]) -> None:
    joint = Residual(epochs=2, hidden=16, batch=64, lr=1e-3, joint=True)
    heat, test = fit(priors, residual=joint), data(60, seed=1)
    plain = fit(priors, residual=None)
    terms = heat.energies(test)
    assert list(terms) == [*(f"prior/{p}" for p in priors), "prior/joint", "residual/joint", "score"]
    torch.testing.assert_close(terms["prior/joint"], plain.score(test), rtol=0, atol=1e-12)
    by_hand = terms["prior/joint"] / heat.hybrids_["joint"].temperature + terms["residual/joint"]
    torch.testing.assert_close(heat.score(test), by_hand, rtol=0, atol=1e-12)
    assert isinstance(heat.inner, Hybrid)
    assert set(heat.inner.space_.columns) == ({"avg"} if priors == ("gmm",) else {"avg", "std"})


@pytest.mark.parametrize("beta", [-math.inf, -1e3, -1.0, 0.0, 1.0, 1e3, math.inf])
def test_scores_rise_with_beta(beta: float) -> None:
    test = data(50, seed=1)
    score = fit(THREE, residual=None, beta=beta).score(test)
    low, high = (fit(THREE, residual=None, beta=b).score(test) for b in (-math.inf, math.inf))
    assert (low - 1e-9 <= score).all()
    assert (score <= high + 1e-9).all()


def test_an_infinite_lambda_gives_the_prior_back() -> None:
    test = data(200, seed=1)
    for priors in (("gmm",), ("energy",)):
        off = fit(priors, residual=Residual(lam=math.inf, hidden=8))
        plain = fit(priors, residual=None)
        assert torch.equal(off.score(test).argsort(), plain.score(test).argsort())
        assert torch.equal(off.energies(test)[f"residual/{priors[0]}"], torch.zeros(200, dtype=torch.float64))


def test_far_away_is_more_unusual() -> None:
    """The sign convention, on samples that anything should tell: higher = more out-of-distribution."""
    test = data(100, seed=1)
    noise = torch.rand(100, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    far = Features(avg=noise, std=noise[:, :5] ** 3, head=test.head)
    for residual in (None, QUICK):
        heat = fit(("gmm", "gmm-std"), residual=residual)
        assert heat.score(far).median() > heat.score(test).quantile(0.95)


@pytest.mark.parametrize("variant", ["three", "layers", "ebm"])
def test_batch_size_and_order_do_not_matter(variant: str) -> None:
    heat, test = fit(**VARIANTS[variant]), data(64, seed=1)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    score = heat.score(test)
    for size in (1, 7, 1000):
        torch.testing.assert_close(heat.score(test[order], size), score[order], rtol=0, atol=1e-10)
        torch.testing.assert_close(heat.energies(test, size)["score"], score, rtol=0, atol=1e-10)
    assert heat.score(test[:0]).shape == (0,)
    assert heat.energies(test[:0])["score"].shape == (0,)


# Seeds


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_seed_gives_the_same_detector(dtype: torch.dtype) -> None:
    train = data(dtype=dtype)
    one, two, other = (fit(THREE, residual=QUICK, seed=s, on=train) for s in (3, 3, 4))
    assert same(one, two)
    assert not same(one, other)
    assert one.log == two.log
    assert one.score(train).dtype == dtype


def test_the_seed_reaches_the_network() -> None:
    one, other = (fit(("gmm",), residual=QUICK, seed=s, holdout=0.0).state_dict() for s in (0, 1))
    differ = [key for key in one if not torch.equal(one[key], other[key])]
    assert any(".network." in key for key in differ)
    assert not any(".prior." in key for key in differ), "nothing is held out, so the priors are the same"


def test_a_second_fit_is_as_good_as_a_new_detector() -> None:
    heat = fit(residual=QUICK, on=data(seed=5)).calibrate(data(50, seed=2))
    heat.fit(data(), progress=False)
    assert same(heat, fit(residual=QUICK))
    assert not heat.calibrated


def test_a_residual_does_not_depend_on_those_beside_it() -> None:
    own = Residual(**(QUICK.to_dict() | {"shared": False}))
    alone, beside, shared = fit(("gmm",), residual=QUICK), fit(THREE, residual=own), fit(THREE, residual=QUICK)
    test = data(30, seed=1)
    for name in ("gmm", "energy"):
        expected = (alone if name == "gmm" else shared).energies(test)[f"hybrid/{name}"]
        assert torch.equal(beside.energies(test)[f"hybrid/{name}"], expected)


# Priors that the features do not have; what the default does without is in test_detector_default.py


@pytest.mark.parametrize(
    "settings",
    [
        {"priors": ("gmm", "gmm-std")},
        {"priors": ["gmm", "energy", "gmm-std"]},
        {"priors": THREE},
        {"priors": THREE, "weights": (1, 1, 1)},
    ],
)
def test_priors_that_were_asked_for_are_not_left_out(settings: dict[str, Any]) -> None:
    bare = Features(avg=data().avg, labels=data().labels)
    with pytest.raises(InputError, match=r"Some priors cannot be had .*gmm-std reads std.* priors=\('gmm',\)"):
        HEAT(residual=None, **settings).fit(bare)


# What it accepts


@pytest.mark.parametrize("as_numpy", [False, True])
@pytest.mark.parametrize(("prior", "column"), [("gmm", "avg"), ("gmm-std", "std"), ("energy", "logits")])
def test_a_plain_array_of_the_one_column_that_is_read(prior: str, column: str, as_numpy: bool) -> None:
    heat, test = fit((prior,), residual=None).calibrate(data(99, seed=2)), data(20, seed=1)
    array = test.column(column)
    array = array.numpy() if as_numpy else array
    assert np.array_equal(heat.score(array), heat.score(test))
    assert np.array_equal(heat.p_value(array), heat.p_value(test))
    assert np.array_equal(heat.predict(array), heat.predict(test))
    assert isinstance(heat.score(array), type(array))
    assert torch.equal(heat.energies(array)["score"], heat.score(test))


def test_a_plain_array_of_an_earlier_layer() -> None:
    heat, test = fit(("gmm-std@block.1",), residual=QUICK), data(20, seed=1)
    assert torch.equal(heat.score(test.layers["block.1"].std), heat.score(test))


def test_a_plain_array_is_refused_where_several_columns_are_read() -> None:
    with pytest.raises(InputError, match=r"several columns \(avg, std, logits\).* Features\(avg=…, std=…, logits=…\)"):
        fit(THREE, residual=None).score(data().avg)
    with pytest.raises(InputError, match=r"Features\(logits=…, avg=…, std=…, layers=\{'block\.1': \(avg, std\)\}"):
        fit(residual=None).score(data().avg)
    layers = fit(("gmm-joint@block.1", "gmm"), residual=None)
    with pytest.raises(InputError, match=r"Pass Features\(avg=…, layers=\{'block\.1': \(avg, std\)\}\)"):
        layers.score(data().avg)
    with pytest.raises(InputError, match="scores Features, not list"):
        fit(("gmm",), residual=None).score([[1.0] * 6])


def test_features_that_lack_what_is_read() -> None:
    for priors in (THREE, None):
        layers = "" if priors else ", avg@block.1, std@block.1"
        heat = fit(priors, residual=None)
        with pytest.raises(InputError, match=r"reads .*, and .* is missing from Features\(n=400, avg=6\)") as error:
            heat.score(Features(avg=data().avg))
        missing = str(error.value).partition(", and ")[2].partition(" is missing")[0]
        assert set(missing.split(", ")) == set(f"std, logits{layers}".split(", "))


def test_features_of_another_model_are_refused() -> None:
    def of(model: str | None) -> Features:
        return Features(avg=data().avg, std=data().std, labels=data().labels, head=data().head, fingerprint=model)

    heat = fit(residual=None, on=of("model a"))
    heat.score(of("model a"))
    heat.score(of(None))
    for call in (heat.score, heat.energies, heat.calibrate):
        with pytest.raises(InputError, match="two different models"):
            call(of("model b"))
    with pytest.raises(InputError, match="two different models"):
        fit(residual=QUICK, on=of("model a"), contrast=of("model b"))


@pytest.mark.parametrize("priors", [THREE, None])
def test_memory_mapped_features_give_the_same_detector(priors: tuple[str, ...] | None, tmp_path: Path) -> None:
    data().save(tmp_path / "train")
    stored = Features.open(tmp_path / "train")
    on_disk, in_memory = fit(priors, residual=QUICK, on=stored), fit(priors, residual=QUICK)
    assert "joint" not in on_disk.hybrids_
    for (name, a), b in zip(on_disk.state_dict().items(), in_memory.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert torch.equal(on_disk.score(stored), in_memory.score(data()))


def test_contrast_teaches_the_residual() -> None:
    train = data(1200)
    shifted = Features(avg=train.avg.flip(1), std=train.std)
    settings = Residual(epochs=6, hidden=32, batch=64, lr=2e-3, contrast_share=1.0)
    heat = fit(("gmm",), residual=settings, on=train, contrast=shifted)
    taught = heat.energies(shifted)["residual/gmm"].mean() - heat.energies(train)["residual/gmm"].mean()
    assert taught > 0.5 * settings.bound
    assert not same(heat, fit(("gmm",), residual=settings, on=train))


@pytest.mark.parametrize(
    ("contrast", "text"),
    [
        (data().avg, "fit needs Features, not Tensor"),
        (data()[:0], "contrast has no samples"),
        (Features(std=data().std), "avg is missing"),
    ],
)
def test_contrast_that_cannot_be_used(contrast: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        HEAT(("gmm",), residual=QUICK).fit(data(), contrast, progress=False)


@pytest.mark.parametrize(
    ("old", "new", "get"),
    [
        ("used", "priors_", lambda heat: heat.used),
        ("shares", "weights_", lambda heat: heat.shares),
        ("hybrids", "hybrids_", lambda heat: heat.hybrids()),
        ("corrected", "residuals_", lambda heat: dict.fromkeys(THREE, heat.corrected)),
    ],
)
def test_old_names_still_work_and_say_the_new_ones(old: str, new: str, get: Callable[[HEAT], Any]) -> None:
    heat = HEAT(THREE, weights=(1.0, 2.0, 3.0), residual=QUICK).fit(data(), progress=False)
    with pytest.warns(DeprecationWarning, match=rf"HEAT\.{old}.* is called HEAT\.{new}"):
        value = get(heat)
    assert value == getattr(heat, new)


def test_what_is_learned_is_one_value_and_the_arguments_stay() -> None:
    heat = HEAT(THREE, residual=QUICK)
    assert (heat.priors_, heat.weights_, heat.residuals_) == ((), None, {})
    heat.fit(data(), progress=False)
    assert heat.priors == THREE
    assert heat.priors_ == heat.choice_.priors == THREE
    assert heat.residuals_ == dict.fromkeys(THREE, QUICK)
    before = heat.choice_
    assert heat.choose(data()) == before, "to choose changes nothing"
    assert heat.choice_ is before
