"""What HEAT is made of where it is not told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from detector_data import data
from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.energies import FreeEnergy
from heat_ood.energies._methods import create_prior
from heat_ood.energies._tasks import Task, left_out_tasks
from heat_ood.heat import _choice as recipe
from heat_ood.heat._choice import (
    AGAINST_CONTRAST,
    PAPER_PRIORS,
    Choice,
    Residuals,
    across,
    default_choice,
    default_residual,
    earlier_layers,
    supported,
    unseen_told,
)
from heat_ood.metrics import auroc


def some(seed: int, d: int = 5, n: int = 20) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Z, S, ONE, TWO = some(0), some(1), some(2, 3), some(3, 4)
HEAD = (some(4)[:3], None)
LAYERS = {"one": (ONE, ONE + 1), "two": (TWO, TWO + 1)}
DEEP_WEIGHTS, LONE_WEIGHTS = recipe.FAMILY_WEIGHTS, recipe.ONE_LAYER_WEIGHTS
DEEP, ALONE = DEEP_WEIGHTS["densities"], LONE_WEIGHTS["densities"]

CASES: dict[str, tuple[dict[str, Any], dict[str, float], tuple[str, ...]]] = {
    "everything": (
        {"avg": Z, "std": S, "head": HEAD, "layers": LAYERS},
        {
            "energy": DEEP_WEIGHTS["energy"],
            "relative-gmm-joint": DEEP_WEIGHTS["relative"],
            "gmm-joint@one": DEEP / 3,
            "gmm-joint@two": DEEP / 3,
            "gmm-joint": DEEP / 3,
        },
        (),
    ),
    "no std": (
        {"avg": Z, "head": HEAD, "layers": {"one": ONE}},
        {
            "energy": DEEP_WEIGHTS["energy"],
            "relative-gmm": DEEP_WEIGHTS["relative"],
            "gmm@one": DEEP / 2,
            "gmm": DEEP / 2,
        },
        ("no std",),
    ),
    "no logits": (
        {"avg": Z, "std": S, "layers": LAYERS},
        {
            "relative-gmm-joint": DEEP_WEIGHTS["relative"],
            "gmm-joint@one": DEEP / 3,
            "gmm-joint@two": DEEP / 3,
            "gmm-joint": DEEP / 3,
        },
        ("no logits",),
    ),
    "no layers": (
        {"avg": Z, "std": S, "head": HEAD},
        {
            "energy": LONE_WEIGHTS["energy"],
            "relative-gmm-joint": LONE_WEIGHTS["relative"],
            "gmm-joint": ALONE,
        },
        ("no earlier layers",),
    ),
    "the last layer once more": (
        {"avg": Z, "std": S, "head": HEAD, "layers": LAYERS | {"last": (Z, S)}},
        {
            "energy": DEEP_WEIGHTS["energy"],
            "relative-gmm-joint": DEEP_WEIGHTS["relative"],
            "gmm-joint@one": DEEP / 3,
            "gmm-joint@two": DEEP / 3,
            "gmm-joint": DEEP / 3,
        },
        (),
    ),
    "only the last layer once more": (
        {"avg": Z, "std": S, "head": HEAD, "layers": {"last": (Z, S)}},
        {
            "energy": LONE_WEIGHTS["energy"],
            "relative-gmm-joint": LONE_WEIGHTS["relative"],
            "gmm-joint": ALONE,
        },
        ("no earlier layers",),
    ),
    "layers without std": (
        {"avg": Z, "std": S, "head": HEAD, "layers": {"one": ONE, "two": (TWO, TWO + 1), "three": (None, ONE)}},
        {
            "energy": DEEP_WEIGHTS["energy"],
            "relative-gmm-joint": DEEP_WEIGHTS["relative"],
            "gmm@one": DEEP / 4,
            "gmm-joint@two": DEEP / 4,
            "gmm-std@three": DEEP / 4,
            "gmm-joint": DEEP / 4,
        },
        (),
    ),
    "only logits": (
        {"logits": some(5, 3)},
        {"energy": LONE_WEIGHTS["energy"]},
        ("no std", "no earlier layers"),
    ),
    "only avg": (
        {"avg": Z},
        {"relative-gmm": LONE_WEIGHTS["relative"], "gmm": ALONE},
        ("no logits", "no std", "no earlier layers"),
    ),
    "only std": ({"std": S}, {"gmm-std": ALONE}, ("no logits", "no earlier layers")),
    "only an earlier layer": ({"layers": {"one": ONE}}, {"gmm@one": ALONE}, ("no logits", "no std")),
}


@pytest.mark.parametrize("case", CASES)
def test_priors_and_weights_follow_from_what_there_is(case: str) -> None:
    columns, weights, lacking = CASES[case]
    recipe = default_choice(Features(**columns))
    assert dict(zip(recipe.priors, recipe.weights, strict=True)) == pytest.approx(weights)
    assert list(recipe.priors) == list(weights), "in this order"
    assert recipe.lacking == lacking
    alone = [name for name in weights if name.startswith("gmm")]
    assert recipe.excess == (tuple(alone) if len(alone) == 1 and "energy" in weights else ())


@pytest.mark.parametrize("case", CASES)
def test_every_prior_can_be_made_and_read(case: str) -> None:
    features = Features(**CASES[case][0])
    for name in default_choice(features).priors:
        assert set(create_prior(name).reads) <= features.available


def test_features_of_nothing_cannot_be_made() -> None:
    """So that there is always something to work with."""
    with pytest.raises(InputError, match="at least one of avg, std, logits or layers"):
        Features(labels=torch.arange(3))


@pytest.mark.parametrize("change", ["value", "width", "late"])
def test_a_layer_that_differs_from_the_last_is_an_earlier_one(change: str) -> None:
    other = Z.clone()
    if change == "value":
        other[0, 0] += 0.01
    if change == "width":
        other = torch.cat([other, other], 1)
    if change == "late":  # the first samples tell, and all of them would have to be read to tell more
        other[10:] += 1
    found = earlier_layers(Features(avg=Z, layers={"one": ONE, "other": other, "same": Z.clone()}))
    assert found == (["one"] if change == "late" else ["one", "other"])


def test_the_residual_of_the_default() -> None:
    names = ("energy", "relative-gmm", "gmm")
    assert default_residual(None, names, contrast=True) is AGAINST_CONTRAST
    assert default_residual(None, names, contrast=False) == {"energy": Residual()}
    assert default_residual(None, names[1:], contrast=False) == {"gmm": Residual()}


@pytest.mark.parametrize("priors", [PAPER_PRIORS, (FreeEnergy(),)])
def test_the_residual_of_priors_that_are_named(priors: tuple[Any, ...]) -> None:
    assert default_residual(priors, ("gmm",), contrast=False) == Residual()
    assert default_residual(priors, ("gmm",), contrast=True) is AGAINST_CONTRAST


def test_contrast_is_all_that_its_residual_learns_from() -> None:
    assert AGAINST_CONTRAST.joint
    assert AGAINST_CONTRAST.contrast_share == 1
    AGAINST_CONTRAST.check()


# Which relative energy holds


def split(classes: int, n: int = 600, seed: int = 0, **columns: Any) -> tuple[Features, Features]:
    full = data(n, seed, classes=classes)
    features = Features(avg=full.avg, std=full.std, labels=columns.get("labels", full.labels), head=full.head)
    return HEAT().split(features)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_prior_holds_where_it_tells_classes_that_it_has_not_seen(seed: int) -> None:
    """Both ways on the same kind of data: of six classes the relative energy knows new ones, of four it does not."""
    names = ("relative-gmm-joint", "gmm")
    for classes, expected in ((6, True), (4, False)):
        fitting, held = split(classes, seed=seed)
        told = unseen_told(names, fitting, held)
        folds = 5 if classes >= 10 else 2
        for k, name in enumerate(names):
            tasks = left_out_tasks(names, fitting, held, folds, seed=0)
            mean = sum(auroc(t.real[:, k], t.other[:, k]) for t in tasks) / len(tasks)
            assert told[name] == pytest.approx(mean)
        assert (told["relative-gmm-joint"] > 0.5) is expected


@pytest.mark.parametrize(("classes", "folds"), [(2, None), (3, None), (4, 2), (9, 2), (10, 5), (12, 5)])
def test_the_classes_are_left_out_in_five_groups_or_two(
    classes: int, folds: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def spy(names: Any, fitting: Features, held: Features, folds: int, seed: int) -> list[Task]:
        asked.append(folds)
        low, high = torch.zeros(5, 1), torch.ones(5, 1)
        return [Task("", low, high)] * folds

    monkeypatch.setattr("heat_ood.heat._choice.left_out_tasks", spy)
    fitting, held = HEAT().split(data(600, classes=classes, d=max(6, classes)))
    assert unseen_told(["relative-gmm"], fitting, held) == ({} if folds is None else {"relative-gmm": 1.0})
    assert asked == ([] if folds is None else [folds])


DEEP = Choice(("energy", "relative-gmm-joint", "gmm-joint@block.1", "gmm-joint"), (6.0, 2.0, 2.0, 2.0))
ALL = "discriminant-joint+block.1"


POINTLESS = "it does not tell these classes from unseen ones"


@pytest.mark.parametrize(
    ("told", "composed", "chosen", "why"),
    [
        ({"relative-gmm-joint": 0.8, ALL: 0.81}, True, ALL, None),
        ({"relative-gmm-joint": 0.8, ALL: 0.81}, False, "relative-gmm-joint", None),
        ({"relative-gmm-joint": 0.8, ALL: 0.8}, True, "relative-gmm-joint", None),
        ({"relative-gmm-joint": 0.8, ALL: 0.3}, True, "relative-gmm-joint", None),
        ({"relative-gmm-joint": 0.3, ALL: 0.6}, True, ALL, None),
        ({"relative-gmm-joint": 0.3, ALL: 0.6}, False, None, POINTLESS),
        ({"relative-gmm-joint": 0.5, ALL: 0.4}, True, None, POINTLESS),
        ({"relative-gmm-joint": 0.3, ALL: 0.4}, True, None, POINTLESS),
        ({}, True, None, "too few labelled classes speak for it"),
    ],
)
def test_the_relative_energy_is_the_one_that_left_out_classes_speak_for(
    told: dict[str, float], composed: bool, chosen: str | None, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, and in the composition in which it would stand."""
    asked: list[list[str]] = []
    compared: list[tuple[Choice, Choice]] = []
    monkeypatch.setattr(recipe, "unseen_told", lambda names, *_: asked.append(names) or told)
    monkeypatch.setattr(recipe, "told_by", lambda one, other, **_: compared.append((one, other)) or composed)
    found = supported(DEEP, *HEAT().split(data(600, classes=6)))
    assert asked == [["relative-gmm-joint", ALL]]
    weights = {"relative-gmm-joint": (6.0, 2.0), ALL: (6.0, 4.0), None: (6.0, None)}[chosen]
    layers = ("gmm-joint@block.1", "gmm-joint")
    expected = {"energy": weights[0], chosen: weights[1], **dict.fromkeys(layers, 2.0)}
    expected.pop(None, None)
    assert dict(zip(found.priors, found.weights, strict=True)) == expected  # type: ignore[arg-type]
    assert found.excess == (layers if chosen == ALL else ())
    assert found.lacking == (() if why is None else (f"relative-gmm-joint is left out: {why}",))
    for whole, usual in compared:
        assert ALL in whole.priors
        assert ("relative-gmm-joint" in usual.priors) == (told["relative-gmm-joint"] > 0.5)
        assert found in (whole, usual)


def test_a_choice_is_composed_as_its_detector_composes() -> None:
    """Whatever stands beside its priors; but for a factor, which changes no rank."""
    train, test = data(), data(seed=1)
    excess = ("gmm-joint@block.1", "gmm-joint")
    for choice in (DEEP, replace(DEEP, excess=excess), replace(DEEP, weights=None)):
        detector = HEAT(choice.priors, choice.weights, residual=None, excess=choice.excess).fit(train)
        held = detector.split(train)[1]
        names = ("msp", *reversed(choice.priors))
        parts = {**detector.composition.members, "msp": create_prior("msp").fit(train)}
        real, other = (torch.stack([parts[n].score(f).double() for n in names], 1) for f in (held, test))
        found = recipe.composed_of(choice, names, real, other)
        total = sum(choice.weights or [1.0] * len(choice.priors))
        torch.testing.assert_close(found / total, detector.score(test).double(), rtol=1e-4, atol=1e-4)


def test_compositions_are_judged_by_classes_that_are_left_out() -> None:
    """A prior that is noise, and weighs most, is worse than none; the same is not better than itself."""
    fitting, held = HEAT().split(data(900, classes=6))
    good = Choice(("energy", "gmm-joint"), (1.0, 1.0))
    alone = unseen_told(good.priors, fitting, held)
    best, worst = (sorted(alone, key=lambda name: sign * alone[name])[0] for sign in (-1, 1))
    better, worse = (
        replace(good, weights=tuple(9.0 if n == name else 0.0 for n in good.priors)) for name in (best, worst)
    )
    assert alone[best] > alone[worst]
    assert recipe.told_by(better, worse, fitting=fitting, held=held)
    assert not recipe.told_by(worse, better, fitting=fitting, held=held)
    assert not recipe.told_by(good, good, fitting=fitting, held=held)
    few, others = HEAT().split(data(classes=3))
    assert not recipe.told_by(better, worse, fitting=few, held=others), "too few classes to leave some out"


@pytest.mark.parametrize(
    ("residuals", "asked"),
    [
        (None, True),
        (AGAINST_CONTRAST, True),
        ({"energy": Residual()}, True),
        (Residual(), False),
        ({"relative-gmm-joint": Residual()}, False),
        ({"relative-gmm-joint": None, "energy": Residual()}, False),
    ],
)
def test_it_stays_where_it_is_to_be_corrected_by_itself(
    residuals: Residuals, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relative energy of all layers has no density, so that no residual could correct it."""
    monkeypatch.setattr(recipe, "unseen_told", lambda names, *_: {name: 0.8 + 0.1 * (name == ALL) for name in names})
    monkeypatch.setattr(recipe, "told_by", lambda *_, **__: True)
    found = supported(replace(DEEP, residuals=residuals), *HEAT().split(data(600, classes=6)))
    assert (ALL in found.priors) == asked
    assert ("relative-gmm-joint" in found.priors) != asked


@pytest.mark.parametrize(
    ("densities", "found"),
    [
        (("gmm-joint@one", "gmm-joint@two", "gmm-joint"), ["discriminant-joint+one+two"]),
        (("gmm@one", "gmm"), ["discriminant+one"]),
        (("gmm-joint",), []),
        (("gmm-joint@one",), []),
        (("gmm@one", "gmm-joint"), []),
        (("gmm-std@one", "gmm-std"), []),
        (("gmm@a+b", "gmm"), []),
    ],
)
def test_all_layers_side_by_side(densities: tuple[str, ...], found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they have the same poolings, names that can be written side by side, and are not too wide."""
    layers = {"one": Z, "two": ONE}
    train = Features(avg=Z, std=Z, layers={name: (z, z) for name, z in layers.items()})
    assert across(Choice(densities, None), train) == found
    for name in found:
        assert set(create_prior(name).reads) <= train.available
    monkeypatch.setattr(recipe, "WIDEST", 1)
    assert across(Choice(densities, None), train) == []


@pytest.mark.filterwarnings("ignore:HEAT uses")
def test_where_all_layers_know_the_classes_better_they_are_taken() -> None:
    """Each layer alone knows half of what tells the classes apart."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(3000) % 12
    means = torch.randn(12, 24, generator=g) * 0.45
    z = means[y] + 0.4 * torch.randn(3000, 24, generator=g)
    train = Features(avg=z[:, :12], labels=y, head=(means[:, :12], None), layers={"one": z[:, 12:]})
    choice = default_choice(train)
    fitting, held = HEAT().split(train)
    told = unseen_told(["relative-gmm", "discriminant+one"], fitting, held)
    assert told["discriminant+one"] > told["relative-gmm"] > 0.5
    detector = HEAT(residual=None).fit(train)
    assert detector.priors_ == supported(choice, fitting, held).priors
    assert detector.priors_[1] == "discriminant+one"
    assert detector.weights_ == (6.0, 4.0, 2.0, 2.0)
    assert detector.choice_ is not None
    assert detector.choice_.excess == ("gmm@one", "gmm")


@pytest.mark.parametrize("case", ["no labels", "a class without samples", "a group that is not held out"])
def test_where_nothing_can_be_judged_nothing_is_told(case: str) -> None:
    fitting, held = split(6)
    assert unseen_told(["relative-gmm"], fitting, held)
    if case == "no labels":
        fitting, held = split(6, labels=None)
    if case == "a class without samples":
        labels = data(600, classes=6).labels
        assert labels is not None
        fitting, held = split(6, labels=labels.where(labels != 2, 3))
    if case == "a group that is not held out":
        held = held[:1]
    assert unseen_told(["relative-gmm"], fitting, held) == {}


def test_no_more_samples_judge_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Tensor] = []
    original = left_out_tasks

    def spy(names: Any, fitting: Features, *rest: Any, **more: Any) -> list[Task]:
        assert fitting.labels is not None
        used.append(fitting.labels)
        return original(names, fitting, *rest, **more)

    monkeypatch.setattr("heat_ood.heat._choice.left_out_tasks", spy)
    monkeypatch.setattr(recipe, "ENOUGH", 100)
    assert unseen_told(["relative-gmm"], *split(5))["relative-gmm"] > 0
    assert 50 < len(used[0]) <= 100
    assert set(used[0].tolist()) == set(range(5))
