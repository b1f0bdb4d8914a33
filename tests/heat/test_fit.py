"""Fitting HEAT: settings, data that bite, interruptions, presets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from detector_data import QUICK, THREE, Stop, data, fit, same
from heat_ood import HEAT, Features, InputError, NotFittedError, Residual
from heat_ood.energies import FreeEnergy, GaussianMixture, MaximumSoftmax
from heat_ood.heat import _detector as detector_module
from heat_ood.heat._presets import PRESETS, paper_settings

# Settings


def test_arguments_stay_as_given_and_are_shown() -> None:
    priors, weights = ["gmm", "energy"], [1.0, 2.0]
    heat = HEAT(priors, weights, beta=-1.0, residual=None, seed=7)
    before = repr(heat)
    assert before == (
        "HEAT(priors=['gmm', 'energy'], weights=[1.0, 2.0], beta=-1.0, residual=None, seed=7, holdout=0.1, "
        "standardise='held-out', excess=())  # not fitted"
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
    heat = fit((given, FreeEnergy(temperature=2.0)), residual=QUICK)
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
        ({"priors": THREE, "weights": (1, 2)}, "weights must be 3"),
        ({"priors": THREE, "weights": (0, 0, 0)}, "weights must be 3"),
        ({"weights": (1, 2, 3)}, "weights are for priors that are named: pass both, or neither"),
        ({"residual": "nonsense"}, "residual is .*'auto', not 'nonsense'"),
        ({"priors": THREE, "residual": "none"}, "residual is .*'auto', not 'none'"),
        ({"priors": THREE, "residual": {"gnn": QUICK}}, "residual names gnn, which is not among the priors"),
        ({"residual": {"gmm": QUICK, "energy": None}}, "residual names gmm, which is not among energy, gmm-joint@"),
        ({"residual": {"gmm": Residual(joint=True)}}, r"residual=Residual\(joint=True"),
        ({"residual": Residual(lam=-1.0)}, "lam must be positive"),
        ({"residual": Residual(odds=0.0)}, "odds must be positive"),
        ({"residual": Residual(odds=torch.inf)}, "odds are finite"),
        ({"residual": Residual(odds=2.0, bounded=False)}, "other than 1 for a bounded residual alone"),
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


@pytest.mark.parametrize("residual", [None, QUICK])
def test_a_sample_that_is_not_finite_is_named_by_the_callers_own_number(residual: Residual | None) -> None:
    broken = data()
    fitting, _ = HEAT().split(broken)
    position = len(fitting) - 5
    number = fitting.number_of(position)
    assert number > position
    broken.avg[number, 2] = math.nan
    with pytest.raises(InputError, match=rf"not finite .* in sample {number}\b"):
        HEAT(residual=residual).fit(broken, progress=False)


@pytest.mark.parametrize("rows", [[17], slice(None)])
@pytest.mark.parametrize("settings", [{}, {"priors": ("gmm",), "residual": QUICK}])
def test_contrast_that_is_not_finite_is_refused_and_named(rows: Any, settings: dict[str, Any]) -> None:
    contrast = data(60, seed=3)
    contrast.avg[rows, 1] = math.nan
    number = 0 if isinstance(rows, slice) else rows[0]
    count = 1 if number else 60
    with pytest.raises(
        InputError,
        match=rf"Of 60 samples of contrast: avg is not finite .* in sample {number}, the first of {count} such",
    ):
        HEAT(**settings).fit(data(), contrast, progress=False)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 19, 20, 21, 25])
@pytest.mark.parametrize("residual", [None, QUICK, Residual(joint=True, epochs=1, hidden=8)])
def test_tiny_data(n: int, residual: Residual | None) -> None:
    for priors in (THREE, None):
        heat = fit(priors, residual=residual, on=data(n, classes=1))
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
    layers = {name: (layer.avg, layer.std.float()) for name, layer in full.layers.items()}
    mixed = Features(avg=full.avg.half(), std=full.std, labels=full.labels, head=full.head, layers=layers)
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
            "shared": False,
            "epochs": 20,
            "lr": 5e-6,
            "anneal": False,
            "joint": False,
        }
        assert residual.to_dict().items() >= expected.items()
        assert residual.patience == 1, "the paper does not stop early"


RELEASED = {
    ("cifar10", "gmm[avg]"): {"steps": 40, "lam": 10.0, "batch": 1024, "temperature": 1e3, "step": (1e-4, 1e-5)},
    ("cifar10", "gmm[std]"): {"steps": 1, "lam": 10.0, "batch": 1024, "noise": (5e-3, 5e-4), "start": "prior"},
    ("cifar10", "energy"): {"steps": 50, "lam": 0.1, "batch": 256, "temperature": 1.0, "start": "noise"},
    ("cifar100", "gmm[avg]"): {"steps": 20, "lam": 20.0, "step": (2e-4, 2e-5), "noise": (1e-3, 1e-4)},
    ("cifar100", "gmm[std]"): {"steps": 20, "lam": 20.0},
    ("cifar100", "energy"): {"steps": 200, "lam": 1.0, "step": (0.1, 0.01), "noise": (0.1, 0.01)},
    ("imagenet", "gmm[std]"): {"steps": 0, "temperature": 5e3, "epochs": 8, "keep_starts": False, "tied": False},
    ("imagenet", "energy"): {"steps": 40, "temperature": 5e2, "hidden": 2048},
}
"""By the table of the notes on the authors' code."""


@pytest.mark.parametrize(("name", "prior"), RELEASED, ids=str)
def test_released_settings_are_those_of_the_code(name: str, prior: str) -> None:
    heat = HEAT.paper(name, settings="released")
    residual = heat.residual[prior]
    assert residual.to_dict().items() >= RELEASED[name, prior].items()
    assert (residual.betas, residual.lr, residual.decay) == ((0.0, 0.999), 1e-5, "quadratic")
    if name != "imagenet":
        assert (residual.tied, residual.keep_starts, residual.epochs, residual.drop_after) == (True, True, 20, 10)
    assert heat.standardise == "batch"
    assert [p.frequencies for p in heat.priors[:2]] == [True, True]
    residual.check()


def test_released_settings_fit_and_standardise_by_a_batch() -> None:
    paper = paper_settings("cifar10", "released")
    quick = {
        n: Residual(**(r.to_dict() | {"hidden": 8, "epochs": 1, "drop_after": None}))
        for n, r in paper["residual"].items()
    }
    heat = fit(**(paper | {"residual": quick}), on=data(400))
    assert heat.priors_ == ("gmm[avg]", "gmm[std]", "energy")
    fitting, held = heat.split(data(400))
    batch = heat.standardising(fitting, held)
    assert len(batch) == 256
    terms = heat.energies(batch)
    for i, name in enumerate(heat.priors_):
        mean = float(terms[f"hybrid/{name}"].mean())
        assert mean == pytest.approx(float(heat.composition.centres[i]), rel=1e-3, abs=1e-3)
    with pytest.raises(InputError, match="There are text and released"):
        HEAT.paper("cifar10", settings="code")


def test_contrast_without_a_residual_is_refused() -> None:
    with pytest.raises(InputError, match="Contrast teaches the residuals"):
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
