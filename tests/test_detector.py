"""HEAT as a whole: its terms, its settings, what it does without, what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from heat_ood import HEAT, Features, InputError, NotFittedError, Residual
from heat_ood import detector as detector_module
from heat_ood.energies import EnergyLogits, GaussianMixture, MaximumSoftmax, compose
from heat_ood.presets import PRESETS, paper_settings
from heat_ood.residual import Hybrid

QUICK = Residual(epochs=2, hidden=16, batch=64, lr=1e-3)
THREE = ("gmm", "gmm-std", "energy")
pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain


def data(n: int = 400, seed: int = 0, d: int = 6, classes: int = 3, dtype: torch.dtype = torch.float64) -> Features:
    """Classes on a curved sheet, so that a Gaussian is wrong about them."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    bend = torch.rand(n, 1, generator=g, dtype=torch.float64) * 3
    z = torch.cat([bend.sin() ** 2, bend.cos() ** 2, torch.rand(n, d - 2, generator=g, dtype=torch.float64)], 1)
    z = z + 2 * torch.eye(classes, d, dtype=torch.float64)[y]
    std = 0.5 + torch.rand(n, d - 1, generator=g, dtype=torch.float64) * (1 + y[:, None])
    layer = torch.rand(n, 4, generator=g, dtype=torch.float64) + y[:, None]
    weight = torch.randn(classes, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    weight += 4 * torch.eye(classes, d, dtype=torch.float64)
    return Features(
        avg=z.to(dtype),
        std=std.to(dtype),
        labels=y,
        head=(weight.to(dtype), None),
        layers={"block.1": (layer.to(dtype), layer.flip(1).to(dtype))},
    )


def fit(*args: Any, on: Features | None = None, contrast: Features | None = None, **settings: Any) -> HEAT:
    return HEAT(*args, **settings).fit(data() if on is None else on, contrast, progress=False)


def same(a: HEAT, b: HEAT) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


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
    by_hand = terms["prior/joint"] / heat.hybrids()["joint"].temperature + terms["residual/joint"]
    torch.testing.assert_close(heat.score(test), by_hand, rtol=0, atol=1e-12)
    assert isinstance(heat.inner, Hybrid)
    assert set(heat.inner.space.columns) == ({"avg"} if priors == ("gmm",) else {"avg", "std"})


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


# What the features lack


def test_without_std_the_default_does_without_and_says_so() -> None:
    full = data()
    bare = Features(avg=full.avg, labels=full.labels, head=full.head)
    with pytest.warns(UserWarning, match=r"HEAT uses gmm, energy and does without the rest: gmm-std reads std") as seen:
        heat = HEAT(residual=None).fit(bare)
    assert len(seen) == 1
    assert seen[0].filename == __file__, "the warning points at the caller"
    assert list(heat.energies(bare)) == ["prior/gmm", "prior/energy", "score"]
    assert heat.priors == THREE, "the argument stays as given"


def test_a_contrastive_backbone_has_no_head() -> None:
    full = data()
    bare = Features(avg=full.avg, std=full.std, labels=full.labels)
    with pytest.warns(UserWarning, match=r"HEAT uses gmm, gmm-std and .*: energy reads logits") as seen:
        heat = HEAT(residual=QUICK).fit(bare, progress=False)
    assert sum("does without" in str(w.message) for w in seen) == 1
    assert torch.isfinite(heat.score(bare)).all()
    assert heat.reads == ("avg", "std")


def test_embeddings_alone_are_enough() -> None:
    z = data().avg.float()
    with pytest.warns(UserWarning, match="HEAT uses gmm and does without"):
        heat = HEAT(residual=QUICK).fit(Features(avg=z), progress=False)
    assert torch.isfinite(heat.score(z)).all()
    assert torch.equal(heat.score(z), heat.score(Features(avg=z)))


def test_logits_alone_are_enough() -> None:
    logits = data().logits
    with pytest.warns(UserWarning, match="HEAT uses energy and does without"):
        heat = HEAT(residual=QUICK).fit(Features(logits=logits, labels=data().labels), progress=False)
    assert heat.reads == ("logits",)
    assert torch.isfinite(heat.score(logits)).all()


@pytest.mark.parametrize(
    "settings", [{"priors": ("gmm", "gmm-std")}, {"priors": ["gmm", "energy", "gmm-std"]}, {"weights": (1, 1, 1)}]
)
def test_priors_that_were_asked_for_are_not_left_out(settings: dict[str, Any]) -> None:
    bare = Features(avg=data().avg, labels=data().labels)
    with pytest.raises(InputError, match=r"Some priors cannot be had .*gmm-std reads std.* priors=\('gmm',\)"):
        HEAT(residual=None, **settings).fit(bare)


def test_nothing_usable() -> None:
    with pytest.raises(InputError, match="Some priors cannot be had"):
        HEAT().fit(Features(layers={"a": data().avg}))


# What it accepts


@pytest.mark.parametrize("as_numpy", [False, True])
@pytest.mark.parametrize(("prior", "column"), [("gmm", "avg"), ("gmm-std", "std"), ("energy", "logits")])
def test_a_plain_array_of_the_one_column_that_is_read(prior: str, column: str, as_numpy: bool) -> None:
    heat, test = fit((prior,), residual=None).calibrate(data(99, seed=2)), data(20, seed=1)
    array = test.column(column)
    array = array.numpy() if as_numpy else array
    assert torch.equal(heat.score(array), heat.score(test))
    assert torch.equal(heat.p_value(array), heat.p_value(test))
    assert torch.equal(heat.predict(array), heat.predict(test))
    assert torch.equal(heat.energies(array)["score"], heat.score(test))


def test_a_plain_array_of_an_earlier_layer() -> None:
    heat, test = fit(("gmm-std@block.1",), residual=QUICK), data(20, seed=1)
    assert torch.equal(heat.score(test.layers["block.1"].std), heat.score(test))


def test_a_plain_array_is_refused_where_several_columns_are_read() -> None:
    with pytest.raises(InputError, match=r"several columns \(avg, std, logits\).* Features\(avg=…, std=…, logits=…\)"):
        fit(residual=None).score(data().avg)
    layers = fit(("gmm-joint@block.1", "gmm"), residual=None)
    with pytest.raises(InputError, match=r"Pass Features\(avg=…, layers=\{'block\.1': \(avg, std\)\}\)"):
        layers.score(data().avg)
    with pytest.raises(InputError, match="scores Features, not list"):
        fit(("gmm",), residual=None).score([[1.0] * 6])


def test_features_that_lack_what_is_read() -> None:
    heat = fit(residual=None)
    with pytest.raises(InputError, match=r"reads avg, std, logits, and std, logits is missing from Features\(n=400"):
        heat.score(Features(avg=data().avg))


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


def test_memory_mapped_features_give_the_same_detector(tmp_path: Path) -> None:
    data().save(tmp_path / "train")
    stored = Features.open(tmp_path / "train")
    on_disk, in_memory = fit(residual=QUICK, on=stored), fit(residual=QUICK)
    assert {k: v for k, v in on_disk.state_dict().items() if "joint" in k} == {}
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


# Settings


def test_arguments_stay_as_given_and_are_shown() -> None:
    priors, weights = ["gmm", "energy"], [1.0, 2.0]
    heat = HEAT(priors, weights, beta=-1.0, residual=None, seed=7)
    before = repr(heat)
    assert before == (
        "HEAT(priors=['gmm', 'energy'], weights=[1.0, 2.0], beta=-1.0, residual=None, seed=7, holdout=0.1, "
        "standardise='held-out')  # not fitted"
    )
    heat.fit(data())
    assert heat.priors is priors
    assert heat.weights is weights
    assert repr(heat) == before.replace("not fitted", "fitted")
    heat.calibrate(data(50))
    assert repr(heat).endswith("# fitted, calibrated")
    assert type(heat)(**heat.settings).settings == heat.settings


def test_fit_and_calibrate_return_the_detector() -> None:
    heat = HEAT(residual=None)
    assert heat.fit(data()) is heat
    assert heat.calibrate(data(50)) is heat


def test_energies_may_be_given_as_priors() -> None:
    given = GaussianMixture(clusters=2)
    heat = fit((given, EnergyLogits(temperature=2.0)), residual=QUICK)
    assert not given.fitted, "the argument stays as given"
    assert list(heat.composition.members) == ["gmm[avg]", "energy"]
    assert len(heat.composition.members["gmm[avg]"].prior.nu) == 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"priors": ()}, "at least one prior"),
        ({"priors": "gmm"}, r"write priors=\('gmm',\)"),
        ({"priors": ("gnn",)}, "There is no method 'gnn'"),
        ({"priors": ("gmm", "gmm")}, "Each prior may stand once"),
        ({"priors": ("msp",)}, "msp cannot be corrected"),
        ({"priors": (MaximumSoftmax(),)}, "msp cannot be corrected"),
        ({"priors": ("energy@layer1",)}, "does not read earlier layers"),
        ({"holdout": 1.0}, "holdout is a share"),
        ({"holdout": -0.1}, "holdout is a share"),
        ({"standardise": "test"}, "standardise is"),
        ({"beta": math.nan}, "beta is not a number"),
        ({"weights": (1, 2)}, "weights must be 3"),
        ({"weights": (0, 0, 0)}, "weights must be 3"),
        ({"residual": {"gnn": QUICK}}, "residual names gnn"),
        ({"residual": {"gmm": Residual(joint=True)}}, r"residual=Residual\(joint=True"),
        ({"residual": Residual(lam=-1.0)}, "lam must be positive"),
        ({"residual": {"gmm": Residual(epochs=0)}}, "epochs must be positive"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        HEAT(**settings).fit(data(), progress=False)


def test_nothing_before_fit() -> None:
    heat = HEAT()
    for call in (heat.score, heat.energies, heat.calibrate, heat.p_value, heat.predict):
        with pytest.raises(NotFittedError):
            call(data())
    with pytest.raises(NotFittedError, match="has not been fitted"):
        _ = heat.composition
    assert heat.reads == ("avg", "std", "logits")
    assert heat.log == {}


# Data that bite


def test_features_that_are_not_finite_are_named_at_fit_and_at_score() -> None:
    for column in ("avg", "std"):
        broken = data()
        broken.column(column)[[123, 200], 2] = math.nan
        for residual in (None, QUICK):
            with pytest.raises(InputError, match=r"not finite .* in sample"):
                HEAT(residual=residual).fit(broken, progress=False)
    heat, test = fit(residual=QUICK), data(300, seed=1)
    test.std[257, 0] = math.inf
    for call in (heat.score, heat.energies):
        with pytest.raises(InputError, match=r"first is sample 257: std is not finite"):
            call(test, batch_size=100)
    with pytest.raises(InputError, match="too large to compute with"):
        fit(("gmm",), residual=None).score(torch.full((1, 6), 1e200, dtype=torch.float64))
    logits = Features(logits=torch.full((9, 3), math.nan))
    with pytest.raises(InputError, match="logits is not finite"):
        HEAT(("energy",), residual=None).fit(logits)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 19, 20, 21, 25])
@pytest.mark.parametrize("residual", [None, QUICK, Residual(joint=True, epochs=1, hidden=8)])
def test_tiny_data(n: int, residual: Residual | None) -> None:
    heat = fit(residual=residual, on=data(n, classes=1))
    assert torch.isfinite(heat.score(data(50, classes=1))).all()
    assert torch.isfinite(fit(("gmm",), residual=residual, on=Features(avg=data(n).avg)).score(data(50).avg)).all()


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_samples(n: int) -> None:
    with pytest.raises(InputError, match=f"HEAT cannot be fitted to {n} sample"):
        HEAT().fit(data()[:n])


@pytest.mark.parametrize(("n", "classes"), [(25, 12), (25, 23), (40, 39), (30, 15)])
def test_each_class_keeps_a_sample_to_fit(n: int, classes: int) -> None:
    train = data(n, classes=classes, d=40)
    heat = HEAT(("gmm",), residual=None)
    fitting, held = heat.split(train)
    assert set(fitting.labels.tolist()) == set(range(classes))
    assert len(held) >= 2
    assert torch.isfinite(heat.fit(train).score(train)).all()


@pytest.mark.parametrize(("n", "holdout"), [(400, 0.1), (400, 0.5), (1000, 0.001), (400, 0.999)])
def test_the_split_is_disjoint_whole_and_by_the_seed(n: int, holdout: float) -> None:
    train = Features(avg=torch.arange(n, dtype=torch.float64)[:, None])
    fitting, held = HEAT(holdout=holdout).split(train)
    rows = torch.cat([fitting.avg, held.avg]).flatten().sort().values
    assert torch.equal(rows, torch.arange(n, dtype=torch.float64))
    assert len(held) == min(max(2, round(holdout * n)), n - 2), "one held-out sample has no spread"
    again, other = (HEAT(holdout=holdout, seed=s).split(train)[1].avg for s in (0, 1))
    assert torch.equal(again, held.avg)
    assert not torch.equal(other, held.avg)


def test_one_class() -> None:
    heat = fit(residual=QUICK, on=data(classes=1))
    assert torch.isfinite(heat.score(data(50, classes=1))).all()


def test_labels_with_gaps() -> None:
    full = data(classes=3)
    gaps = Features(avg=full.avg, std=full.std, labels=full.labels.where(full.labels != 1, 2), head=full.head)
    with pytest.raises(InputError, match="class 1 has no samples among 360"):
        HEAT(residual=None).fit(gaps)
    assert torch.isfinite(fit(("energy",), residual=QUICK, on=gaps).score(gaps)).all()
    assert torch.isfinite(fit((GaussianMixture(clusters=3),), residual=QUICK, on=gaps).score(gaps)).all()


def test_columns_of_several_precisions() -> None:
    full = data()
    mixed = Features(avg=full.avg.half(), std=full.std, labels=full.labels, head=full.head)
    for residual in (None, QUICK, Residual(joint=True, epochs=1, hidden=8)):
        heat = fit(residual=residual, on=mixed)
        assert torch.isfinite(heat.score(mixed)).all()
        assert (fit(residual=None, on=mixed).score(mixed) - fit(residual=None).score(full)).abs().max() < 0.05


# Calibration


@pytest.mark.parametrize("per_class", [False, True])
def test_false_alarms_on_fresh_samples(per_class: bool) -> None:
    heat = fit(residual=None)
    rates = []
    for seed in range(40):
        held, test = data(240, seed=100 + seed), data(240, seed=200 + seed)
        rates.append(heat.calibrate(held, per_class).predict(test, fpr=0.1).double().mean().item())
    assert np.mean(rates) <= 0.1 + 3 * np.std(rates) / math.sqrt(40)
    assert np.mean(rates) > 0.05


# Interrupted fits


class Stop:
    """Bars whose reports raise after some steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, enabled: bool = True) -> Stop:
        return self

    def __enter__(self) -> Stop:
        return self

    def __exit__(self, *error: object) -> None: ...

    def add(self, name: str) -> Any:
        def report(done: int, total: int, numbers: dict[str, float]) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

        return report


INTERRUPTED = {
    "three": {"priors": THREE, "residual": QUICK},
    "persistent": {
        "priors": ("gmm",),
        "residual": Residual(epochs=3, hidden=8, batch=64, steps=2, start="persistent"),
    },
    "joint": {"priors": THREE, "residual": Residual(epochs=3, hidden=8, batch=64, joint=True)},
}


@pytest.mark.parametrize("variant", INTERRUPTED)
@pytest.mark.parametrize("after", [0, 5, 7, 13])
def test_an_interrupted_fit_ends_the_same(
    variant: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = INTERRUPTED[variant]
    whole = fit(**settings)
    with monkeypatch.context() as patch:
        patch.setattr(detector_module, "progress_bars", Stop(after))
        for _ in range(2):  # twice: the second interruption comes after a resumption
            with pytest.raises(KeyboardInterrupt):
                HEAT(**settings).fit(data(), checkpoint=tmp_path)
    resumed = HEAT(**settings).fit(data(), progress=False, checkpoint=tmp_path)
    assert same(resumed, whole)
    assert resumed.log == whole.log
    assert resumed.outcomes == whole.outcomes
    again = HEAT(**settings).fit(data(), progress=False, checkpoint=tmp_path)
    assert same(again, whole), "a finished checkpoint is the fit"


@pytest.mark.parametrize("change", ["seed", "lr", "data", "labels", "head", "contrast"])
def test_a_checkpoint_of_another_fit_is_refused(change: str, tmp_path: Path) -> None:
    train = data()
    HEAT(("gmm",), residual=QUICK).fit(train, progress=False, checkpoint=tmp_path)
    settings: dict[str, Any] = {"residual": QUICK}
    contrast = None
    match change:
        case "seed":
            settings["seed"] = 1
        case "lr":
            settings["residual"] = Residual(epochs=2, hidden=16, batch=64, lr=2e-3)
        case "data":
            train = data(seed=1)
        case "labels":
            labels = train.labels.clone()
            labels[5] = 0
            train = Features(avg=train.avg, std=train.std, labels=labels, head=train.head, layers=train.layers)
        case "head":
            head = (train.head.weight + 1, None)
            train = Features(avg=train.avg, std=train.std, labels=train.labels, head=head, layers=train.layers)
        case "contrast":
            contrast = data(50, seed=9)
    with pytest.raises(InputError, match="is of a fit with other data or settings"):
        HEAT(("gmm",), **settings).fit(train, contrast, progress=False, checkpoint=tmp_path)


# Presets


@pytest.mark.parametrize(("name", "hidden"), [("cifar10", 1024), ("cifar100", 1024), ("imagenet", 2048)])
def test_presets_are_the_papers(name: str, hidden: int) -> None:
    heat = HEAT.paper(name)
    assert heat.settings.items() >= paper_settings(name).items()
    assert tuple(heat.priors) == THREE
    assert (heat.beta, heat.weights, heat.standardise) == (0.0, None, "training")
    for prior, temperature in zip(THREE, (1e3, 1e3, 1.0), strict=True):
        residual = heat.residual[prior]
        expected = {
            "lam": 10.0,
            "temperature": temperature,
            "hidden": hidden,
            "depth": 6,
            "tied": False,
            "whiten": False,
            "input_noise": 1e-4,
            "steps": 20,
            "step": (1e-4, 1e-5),
            "noise": (5e-3, 5e-4),
            "start": "prior",
            "bounded": False,
            "widen": (1.0, 1.0),
            "echo": 0.0,
            "shared": False,
            "epochs": 20,
            "lr": 5e-6,
            "anneal": False,
            "joint": False,
        }
        assert residual.to_dict().items() >= expected.items()
        assert residual.patience == 1, "the paper does not stop early"


def test_contrast_without_a_residual_is_refused() -> None:
    with pytest.raises(InputError, match="contrast teaches the residuals"):
        fit(residual=None, contrast=data(20))


def test_presets_can_be_changed() -> None:
    assert HEAT.paper("cifar10", seed=3, beta=-1.0).settings.items() >= {"seed": 3, "beta": -1.0}.items()
    assert set(PRESETS) == {"cifar10", "cifar100", "imagenet"}
    with pytest.raises(InputError, match=r"There is no preset 'mnist'\. There are cifar10, cifar100, imagenet"):
        HEAT.paper("mnist")


def test_the_paper_preset_fits() -> None:
    paper = paper_settings("cifar10")
    quick = {name: Residual(**(r.to_dict() | {"hidden": 8, "epochs": 1})) for name, r in paper["residual"].items()}
    heat = fit(**(paper | {"residual": quick}), on=data(100))
    scores: Tensor = heat.score(data(50, seed=1))
    assert torch.isfinite(scores).all()
