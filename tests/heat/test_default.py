"""HEAT where nothing is said: what it is made of, what it does with contrast, and what it says it does without."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from detector_data import QUICK, THREE, Stop, data, fit, same
from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.errors import Notice
from heat_ood.heat import _choice as recipe
from heat_ood.heat import _detector as detector_module
from heat_ood.metrics import auroc
from heat_ood.residual import Hybrid

PRIORS = ("energy", "relative-gmm-joint", "gmm-joint@block.1", "gmm-joint")
AGAINST = recipe.AGAINST_CONTRAST
TAUGHT = replace(AGAINST, epochs=30, hidden=32, batch=64, lr=3e-3)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The default's own residuals, trained for a moment."""
    monkeypatch.setattr(recipe, "AGAINST_CONTRAST", replace(AGAINST, epochs=3, hidden=16, batch=64, lr=1e-3))
    monkeypatch.setattr(recipe, "Residual", lambda: QUICK)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The residual of", category=RuntimeWarning)
        yield


def whole(n: int = 400, seed: int = 0) -> Features:
    """Six classes, which support all of the default."""
    return data(n, seed, classes=6)


def made(*args: Any, on: Features | None = None, contrast: Features | None = None, **settings: Any) -> HEAT:
    return fit(*args, on=whole() if on is None else on, contrast=contrast, **settings)


def torn(n: int = 400, seed: int = 10) -> Features:
    """Samples whose layers are of different classes: each layer alone is as it should be."""
    one, other = whole(n, seed), whole(n, seed + 100)
    layer = other.layers["block.1"]
    assert layer.avg is not None
    assert layer.std is not None
    turned = (layer.avg.roll(3, 0), layer.std.roll(3, 0))
    return Features(avg=one.avg, std=one.std, head=one.head, layers={"block.1": turned})


def without(*names: str) -> Features:
    """Features that lack some of ``std``, ``head``, ``layers``, ``labels``."""
    full = whole()
    parts = {"std": full.std, "head": full.head, "layers": full.layers, "labels": full.labels}
    return Features(avg=full.avg, **{name: part for name, part in parts.items() if name not in names})


def notices(features: Features, contrast: Features | None = None, **settings: Any) -> tuple[HEAT, list[str]]:
    """A fitted detector, and what it said it did without."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        heat = HEAT(**settings).fit(features, contrast, progress=False)
    said = [w for w in seen if issubclass(w.category, Notice)]
    assert all(w.filename == __file__ for w in said), "a notice points at the caller"
    assert not any(issubclass(w.category, UserWarning) for w in seen)
    return heat, [str(w.message) for w in said]


# What it is made of


def test_the_arguments_stay_as_given_and_are_shown(quick: None) -> None:
    heat = HEAT()
    before = repr(heat)
    assert before == (
        "HEAT(priors=None, weights=None, beta=0.0, residual='auto', seed=0, holdout=0.1, standardise='held-out', "
        "excess=())  # not fitted"
    )
    heat.fit(whole(), torn(), progress=False)
    assert repr(heat) == before.replace("not fitted", "fitted")
    assert (heat.priors, heat.weights, heat.residual) == (None, None, "auto")
    assert heat.priors_ == PRIORS
    assert list(heat.priors_) == list(PRIORS)


def test_its_score_is_the_weighted_mean_of_what_it_is_made_of() -> None:
    heat, test = made(residual=None), whole(50, seed=1)
    terms = heat.energies(test)
    assert list(terms) == [*(f"prior/{p}" for p in PRIORS), "score"]
    _, held = heat.split(whole())
    shares = recipe.default_choice(whole())
    total = torch.zeros(50, dtype=torch.float64)
    for name, weight in zip(shares.priors, shares.weights, strict=True):
        reference = heat.composition.members[name].score(held)
        total += weight * (terms[f"prior/{name}"] - reference.mean()) / reference.std(correction=0)
    torch.testing.assert_close(heat.score(test), total / sum(shares.weights), rtol=0, atol=1e-6)


def test_without_contrast_the_energy_alone_is_corrected(quick: None) -> None:
    heat = made()
    kinds = {p: ("prior", "residual", "hybrid") if p == "energy" else ("prior",) for p in PRIORS}
    assert list(heat.energies(whole(9))) == [*(f"{kind}/{p}" for p in PRIORS for kind in kinds[p]), "score"]
    assert set(heat.outcomes) == {"energy"}
    named = made(residual={"energy": QUICK})
    assert same(heat, named)


def test_the_default_is_the_same_said_aloud(quick: None) -> None:
    recipe_of = recipe.default_choice(whole())
    aloud = made(recipe_of.priors, recipe_of.weights, residual=recipe.AGAINST_CONTRAST, contrast=torn())
    assert same(made(contrast=torn()), aloud)


def test_priors_that_are_named_are_corrected_each_or_with_contrast_as_a_whole(quick: None) -> None:
    assert set(made(THREE).outcomes) == set(THREE)
    assert same(made(THREE, contrast=torn()), made(THREE, residual=recipe.AGAINST_CONTRAST, contrast=torn()))
    assert list(made(THREE, contrast=torn()).hybrids_) == ["joint"]


def test_what_cannot_be_corrected_alone_can_be_with_the_rest(quick: None) -> None:
    with pytest.raises(InputError, match="msp cannot be corrected"):
        made(("gmm", "msp"))
    heat = made(("gmm", "msp"), contrast=torn())
    assert torch.isfinite(heat.score(whole(20))).all()


def test_the_residual_can_be_chosen_for_the_default() -> None:
    assert set(made(residual=QUICK).outcomes) == set(PRIORS)
    assert made(residual=None).outcomes == {}
    assert set(made(residual={"gmm-joint": QUICK, "energy": None}).outcomes) == {"gmm-joint"}


# One-sided


def test_excess_is_of_priors_that_are_named() -> None:
    with pytest.raises(InputError, match="excess is of priors that are named"):
        made(excess=("gmm-joint",))
    with pytest.raises(InputError, match="excess names some of gmm, gmm-std, energy"):
        made(THREE, excess=("knn",))


def test_with_excess_the_layers_count_one_sided_and_it_is_kept(quick: None, tmp_path: Path) -> None:
    choice, test = recipe.default_choice(whole()), whole(50, seed=1)
    heat = made(choice.priors, choice.weights, excess=PRIORS[2:], contrast=torn())
    terms, (_, held) = heat.energies(test), heat.split(whole())
    total, real, new = (torch.zeros(n, dtype=torch.float64) for n in (50, len(held), 50))
    for name, weight in zip(choice.priors, choice.weights, strict=True):
        reference = heat.composition.members[name].score(held)
        standard = [(e - reference.mean()) / reference.std(correction=0) for e in (reference, terms[f"prior/{name}"])]
        if name in PRIORS[2:]:  # they weigh alike
            real, new = real + standard[0], new + standard[1]
        else:
            total += weight * standard[1]
    total += 4 * torch.logaddexp((new - real.mean()) / real.std(correction=0) - 0.5, torch.zeros(50).double())
    torch.testing.assert_close(terms["prior/joint"], total / sum(choice.weights), rtol=0, atol=1e-6)

    heat.save(tmp_path)
    loaded = HEAT.load(tmp_path)
    assert repr(loaded) == repr(heat)
    assert torch.equal(loaded.score(test), heat.score(test))


def test_the_density_of_a_lone_layer_counts_one_sided_and_it_is_kept(quick: None, tmp_path: Path) -> None:
    one, test = without("layers"), whole(50, seed=1)
    heat, _ = notices(one)
    names = heat.priors_
    assert names == ("energy", "relative-gmm-joint", "gmm-joint")
    plain, _ = notices(one, residual=None)
    terms, (_, held) = plain.energies(test), plain.split(one)
    total = torch.zeros(50, dtype=torch.float64)
    for name, weight in zip(names, (3, 1, 4), strict=True):
        reference = plain.composition.members[name].score(held).double()
        standard = (terms[f"prior/{name}"] - reference.mean()) / reference.std(correction=0)
        total += weight * (torch.log1p((standard - 0.5).exp()) if name == "gmm-joint" else standard)
    torch.testing.assert_close(plain.score(test).double(), total / 8, rtol=0, atol=1e-5)
    assert same(heat, notices(one, priors=names, weights=(3, 1, 4), excess=names[2:], residual=heat.residuals_)[0])

    heat.save(tmp_path)
    loaded = HEAT.load(tmp_path)
    assert repr(loaded) == repr(heat)
    assert torch.equal(loaded.score(test), heat.score(test))


# Contrast


@pytest.fixture(scope="module")
def taught() -> HEAT:
    """The default, taught by samples whose layers do not belong together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "AGAINST_CONTRAST", TAUGHT)
        return HEAT().fit(whole(2000), torn(2000), progress=False).calibrate(whole(300, seed=2))


def test_with_contrast_from_end_to_end(taught: HEAT, tmp_path: Path) -> None:
    test = whole(60, seed=1)
    terms = taught.energies(test)
    assert list(terms) == [*(f"prior/{p}" for p in PRIORS), "prior/joint", "residual/joint", "score"]
    assert isinstance(taught.inner, Hybrid)
    torch.testing.assert_close(terms["score"], taught.score(test), rtol=0, atol=1e-12)
    by_hand = terms["prior/joint"] / taught.inner.temperature + terms["residual/joint"]
    torch.testing.assert_close(terms["score"], by_hand, rtol=0, atol=1e-12)
    plain = made(residual=None, on=whole(2000))
    torch.testing.assert_close(terms["prior/joint"], plain.score(test), rtol=0, atol=1e-12)
    assert set(taught.inner.space_.columns) == {"avg", "std", "avg@block.1", "std@block.1"}
    assert set(taught.reads) == {"avg", "std", "logits", "avg@block.1", "std@block.1"}
    assert repr(taught).endswith("# fitted, calibrated")

    taught.save(tmp_path / "detector")
    loaded = HEAT.load(tmp_path / "detector")
    assert repr(loaded) == repr(taught)
    assert torch.equal(loaded.score(test), taught.score(test))
    assert torch.equal(loaded.p_value(test), taught.p_value(test))
    assert list(loaded.energies(test)) == list(terms)
    facts = dict(json.loads((tmp_path / "detector" / "detector.json").read_text())["facts"][""]["$map"])
    assert facts["used"] == list(PRIORS)
    assert facts["weights"] == list(recipe.default_choice(whole()).weights)


def test_the_residual_tells_contrast_that_no_prior_can(taught: HEAT) -> None:
    """Fresh samples of both kinds. The priors see one layer each, and nothing is wrong with either."""
    usual, odd = (taught.energies(f) for f in (whole(1000, seed=3), torn(1000, seed=4)))
    assert abs(auroc(usual["prior/joint"], odd["prior/joint"]) - 0.5) < 0.05
    assert auroc(usual["residual/joint"], odd["residual/joint"]) > 0.9
    assert auroc(usual["score"], odd["score"]) > 0.6
    assert taught.outcomes["joint"].startswith(("trained", "stopped early"))


def test_the_residual_moves_a_score_by_its_share_of_the_compositions_spread(taught: HEAT) -> None:
    assert isinstance(taught.inner, Hybrid)
    spread, bound = taught.inner.temperature, 1 / (2 * AGAINST.lam)
    _, held = taught.split(whole(2000))
    composed = taught.composition.score(held)
    torch.testing.assert_close(spread, composed.std(correction=0))
    noise = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 100
    far = Features(noise, noise[:, :5].abs(), head=whole().head, layers={"block.1": (noise[:, :4], noise[:, 2:])})
    moved = torch.cat([taught.score(f) * spread - taught.energies(f)["prior/joint"] for f in (whole(), torn(), far)])
    assert (moved.abs() <= bound * spread + 1e-9).all()
    assert moved.abs().max() > 0.5 * bound * spread


def test_seeds_repeat(quick: None) -> None:
    one, two, other = (made(seed=s, contrast=torn()) for s in (3, 3, 4))
    assert same(one, two)
    assert one.log == two.log
    assert not same(one, other)


def test_other_contrast_gives_another_detector(quick: None) -> None:
    assert not same(made(contrast=torn()), made(contrast=torn(seed=11)))


@pytest.mark.parametrize("after", [0, 8, 13])
def test_an_interrupted_fit_with_contrast_ends_the_same(
    after: int, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted = made(contrast=torn())
    with monkeypatch.context() as patch:
        patch.setattr(detector_module, "progress_bars", Stop(after))
        with pytest.raises(KeyboardInterrupt):
            HEAT().fit(whole(), torn(), checkpoint=tmp_path / "checkpoint")
    resumed = HEAT().fit(whole(), torn(), progress=False, checkpoint=tmp_path / "checkpoint")
    files = {}
    for name, heat in (("whole", uninterrupted), ("resumed", resumed)):
        heat.save(tmp_path / name)
        files[name] = {f.name: f.read_bytes() for f in (tmp_path / name).iterdir()}
    assert files["whole"] == files["resumed"]


@pytest.mark.parametrize("change", ["contrast", "none", "recipe"])
def test_a_checkpoint_of_another_default_is_refused(
    change: str, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HEAT(THREE).fit(whole(), torn(), progress=False, checkpoint=tmp_path)
    (tmp_path / "gmm.safetensors").write_bytes((tmp_path / "joint.safetensors").read_bytes())
    if change == "recipe":
        monkeypatch.setattr(recipe, "AGAINST_CONTRAST", replace(recipe.AGAINST_CONTRAST, lam=3.0))
    contrast = {"contrast": torn(seed=11), "none": None, "recipe": torn()}[change]
    with pytest.raises(InputError, match="is of a fit with other data or settings"):
        HEAT(THREE).fit(whole(), contrast, progress=False, checkpoint=tmp_path)


def test_contrast_must_have_what_the_residual_reads(quick: None) -> None:
    bare = Features(avg=whole().avg, std=whole().std, head=whole().head)
    with pytest.raises(InputError, match=r"avg@block\.1, std@block\.1 is missing from Features.* in the same way"):
        made(contrast=bare)
    with pytest.raises(InputError, match="Contrast teaches the residuals, and with residual=None there are none"):
        made(residual=None, contrast=torn())


# What it does without


@pytest.mark.parametrize(
    ("lacks", "contrast", "text"),
    [
        (
            (),
            False,
            "HEAT uses energy, relative-gmm-joint, gmm-joint@block.1 and gmm-joint; a residual corrects energy. It "
            "does without contrast (Extractor.contrast makes it).",
        ),
        (
            ("layers",),
            True,
            "HEAT uses energy, relative-gmm-joint and gmm-joint; a residual corrects the whole. It does without "
            "earlier layers (extract with layers='stages').",
        ),
        (
            ("std",),
            True,
            "HEAT uses energy, relative-gmm, gmm-joint@block.1 and gmm; a residual corrects the whole. It does without "
            "std (maps or tokens have it).",
        ),
        (
            ("head",),
            False,
            "HEAT uses relative-gmm-joint, gmm-joint@block.1 and gmm-joint; a residual corrects gmm-joint. It does "
            "without logits (pass them, or the head) and without contrast (Extractor.contrast makes it).",
        ),
        (
            ("std", "head", "layers", "labels"),
            False,
            "HEAT uses gmm; a residual corrects gmm. It does without logits (pass them, or the head), without std "
            "(maps or tokens have it), without earlier layers (extract with layers='stages') and without contrast "
            "(Extractor.contrast makes it). relative-gmm is left out: too few labelled classes speak for it.",
        ),
    ],
)
def test_it_says_once_what_it_uses_and_does_without(
    lacks: tuple[str, ...], contrast: bool, text: str, quick: None
) -> None:
    given = without(*lacks)
    heat, said = notices(given, given[:100] if contrast else None)
    assert said == [text]
    assert torch.isfinite(heat.score(given)).all()


@pytest.mark.parametrize(
    ("residual", "how"),
    [
        (None, ""),
        (QUICK, "; a residual corrects each"),
        ({"gmm-joint": QUICK, "energy": None}, "; a residual corrects gmm-joint"),
        (Residual(epochs=1, hidden=8, joint=True), "; a residual corrects the whole"),
    ],
)
def test_it_says_what_is_corrected(residual: Any, how: str, quick: None) -> None:
    _, said = notices(without("layers"), residual=residual)
    assert len(said) == 1
    assert said[0].startswith(
        f"HEAT uses energy, relative-gmm-joint and gmm-joint{how}. It does without earlier layers"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"contrast": torn()},
        {"residual": None},
        {"residual": QUICK},
        {"priors": THREE},
        {"priors": ("gmm",), "residual": None},
    ],
)
def test_it_says_nothing_where_nothing_lacks(settings: dict[str, Any], quick: None) -> None:
    _, said = notices(whole(), **settings)
    assert said == []


def test_a_notice_is_shown_once_by_python_itself(quick: None) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for seed in range(3):
            HEAT(residual=None, seed=seed).fit(without("std"))
    assert len([w for w in seen if w.category is Notice]) == 1


def test_a_contrastive_backbone_has_no_head(quick: None) -> None:
    heat, _ = notices(without("head", "layers"))
    assert set(heat.reads) == {"avg", "std"}
    assert torch.isfinite(heat.score(whole(50, seed=1))).all()


def test_embeddings_alone_are_enough(quick: None) -> None:
    z = whole().avg
    assert isinstance(z, Tensor)
    heat, _ = notices(Features(avg=z.float()))
    assert torch.equal(heat.score(z.float()), heat.score(Features(avg=z.float())))


def test_embeddings_with_contrast(quick: None) -> None:
    """Text: no maps, no head, but sentences of another kind may be had."""
    bare = without("std", "head", "layers")
    heat, said = notices(bare, Features(avg=torn().avg.flip(1)))  # type: ignore[union-attr]
    assert [text.partition(" (")[0] for text in said] == [
        "HEAT uses relative-gmm and gmm; a residual corrects the whole. It does without logits"
    ]
    assert heat.reads == ("avg",)


def test_logits_alone_are_enough(quick: None) -> None:
    logits = whole().logits
    heat, said = notices(Features(logits=logits, labels=whole().labels))
    assert [text.partition(" (")[0] for text in said] == [
        "HEAT uses energy; a residual corrects energy. It does without std"
    ]
    assert heat.reads == ("logits",)
    assert torch.isfinite(heat.score(logits)).all()  # type: ignore[arg-type]


def test_an_earlier_layer_alone_is_enough(quick: None) -> None:
    layer = Features(layers=whole().layers, labels=whole().labels)
    heat, said = notices(layer)
    assert [text.partition(" (")[0] for text in said] == [
        "HEAT uses gmm-joint@block.1; a residual corrects gmm-joint@block.1. It does without logits"
    ]
    assert torch.isfinite(heat.score(layer)).all()


def test_what_was_chosen_by_other_features_is_chosen_anew(quick: None) -> None:
    heat = made(on=without("std", "layers"))
    assert heat.priors_ == ("energy", "relative-gmm", "gmm")
    heat.fit(whole(), torn(), progress=False)
    assert heat.priors_ == PRIORS
    assert same(heat, made(contrast=torn()))


# What the classes do not support


@pytest.mark.parametrize(("classes", "contrast"), [(3, False), (4, True)])
def test_what_the_classes_do_not_support_is_left_out_and_said(
    classes: int, contrast: bool, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three classes are too few to leave some out; of four, those left out look more usual than those kept."""
    monkeypatch.setattr(recipe, "WIDEST", 1)  # else all layers, side by side, tell them apart
    train = data(classes=classes)
    heat, said = notices(train, train[:100] if contrast else None)
    assert heat.priors_ == tuple(p for p in PRIORS if p != "relative-gmm-joint")
    kept = dict(zip(PRIORS, recipe.default_choice(train).weights, strict=True))
    assert heat.weights_ == tuple(kept[name] for name in heat.priors_), "the others weigh what they did"
    corrected = "the whole." if contrast else "energy. It does without contrast (Extractor.contrast makes it)."
    why = "it does not tell these classes from unseen ones" if classes > 3 else "too few labelled classes speak for it"
    assert said == [
        f"HEAT uses energy, gmm-joint@block.1 and gmm-joint; a residual corrects {corrected} relative-gmm-joint is "
        f"left out: {why}."
    ]
    assert not any("relative" in name for name in heat.energies(train[:5]))


def test_a_residual_for_what_is_left_out_is_refused() -> None:
    settings = {"relative-gmm-joint": QUICK}
    assert set(made(residual=settings).outcomes) == set(settings)
    with pytest.raises(InputError, match=r"residual names relative-gmm-joint, which is not among energy, gmm-joint@"):
        fit(residual=settings, on=data(classes=3))


def test_what_is_named_is_used_whether_supported_or_not() -> None:
    heat, said = notices(data(classes=3), priors=PRIORS, residual=None)
    assert heat.priors_ == PRIORS
    assert said == []
