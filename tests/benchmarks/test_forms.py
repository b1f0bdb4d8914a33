"""HEAT in its forms: what each is, and that results of one are not taken for another's."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heat_ood import HEAT, Features, Residual
from heat_ood.benchmarks._experiments import job_of
from heat_ood.benchmarks._forms import BARE, CORRECTED, FULL, PAPER, PLAIN, RELEASED, THREE, forms, usual_forms
from heat_ood.benchmarks._jobs import Data, stratified
from heat_ood.benchmarks._runner import digest_of, slug
from heat_ood.errors import Notice
from heat_ood.heat import _choice as recipe
from heat_ood.heat._choice import PAPER_PRIORS
from heat_ood.heat._presets import paper_settings
from method_data import samples
from quick import FAST, fast

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning"),  # a short training may be in vain
]


@pytest.fixture(scope="module")
def data() -> Data:
    whole = samples(140, seed=1)
    ood = {"near": samples(50, seed=2), "far": samples(40, seed=3)}
    return Data(samples(300), whole[:60], whole[60:], ood, contrast=samples(100, seed=4))


SETTINGS: dict[str, dict[str, Any]] = {
    FULL: {},
    BARE: {},
    PLAIN: {"residual": None},
    THREE: {"priors": PAPER_PRIORS, "residual": None},
    CORRECTED: {"priors": PAPER_PRIORS, "residual": FAST},
}


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_row_is_the_librarys_own(data: Data, tmp_path: Path, name: str) -> None:
    found = job_of(name, data).run(data, 1, tmp_path).scores[name]
    detector = HEAT(**SETTINGS[name], seed=1).fit(data.train, data.contrast if name == FULL else None)
    for key, features in data.scored.items():
        np.testing.assert_allclose(found[key], detector.score(features), rtol=1e-5, atol=1e-6)


def test_which_forms_are_run(data: Data) -> None:
    assert usual_forms(data) == [THREE, CORRECTED, PLAIN, FULL]
    alone = [f"{name}, released" for name in PAPER_PRIORS]
    each = [f"{name}, corrected as in the paper" for name in PAPER_PRIORS]
    part = [f"{row}, 10,000 samples" for row in (PAPER, *each)]
    assert list(forms(data)) == [THREE, CORRECTED, PAPER, *each, *part, RELEASED, *alone, PLAIN, BARE, FULL]
    layers = Features(layers={"layer3": data.train.layers["layer3"]}, labels=data.train.labels)
    assert usual_forms(replace(data, train=layers)) == [PLAIN, FULL], "nothing that the paper's priors read"


def test_the_papers_method_is_its_preset(data: Data) -> None:
    settings = job_of(PAPER, replace(data, preset="imagenet")).settings
    assert {key: settings[key] for key in ("priors", "residual", "standardise")} == paper_settings("imagenet")
    assert settings["contrast"] is None


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
@pytest.mark.parametrize("name", [PAPER, RELEASED, "gmm-std, released"])
def test_each_corrected_prior_of_the_papers_method_is_a_row(data: Data, tmp_path: Path, name: str) -> None:
    whole = forms(data)[name]
    quick = {n: replace(r, hidden=8, epochs=1, steps=1, drop_after=None) for n, r in whole.settings["residual"].items()}
    form = replace(whole, settings={**whole.settings, "residual": quick})
    found = form.job(name, data).run(data, 0, tmp_path / "checkpoint").scores
    assert list(found) == [line.name for line in form.job(name, data).lines]
    detector = HEAT(**form.settings, seed=0).fit(data.train, progress=False)
    terms = detector.energies(data.scored["test"])
    priors = detector.priors_
    first = terms[f"prior/{priors[0]}"] if len(priors) == 1 else terms["score"]
    parts = detector.composition
    for i, (row, expected) in enumerate(zip(found, [first, *(terms[f"hybrid/{p}"] for p in priors)], strict=True)):
        if form.apart and i:
            expected = (expected - parts.centres[i - 1]) / parts.spreads[i - 1]
        np.testing.assert_allclose(found[row]["test"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
def test_a_part_is_drawn_by_the_seed(data: Data, tmp_path: Path) -> None:
    whole = forms(data)[f"{PAPER}, 10,000 samples"]
    quick = {n: replace(r, hidden=8, epochs=1, steps=1) for n, r in whole.settings["residual"].items()}
    form = replace(whole, settings={**whole.settings, "residual": quick}, samples=100)
    found = form.job("part", data).run(data, 3, tmp_path / "checkpoint").scores
    part = data.train.subset(torch.from_numpy(stratified(data.train, 100 / len(data.train), 3)))
    assert len(part) == 100
    expected = HEAT(**form.settings, seed=3).fit(part, progress=False).score(data.test)
    np.testing.assert_allclose(found["part"]["test"], expected, rtol=1e-5, atol=1e-6)
    assert list(found) == ["part", *(f"{n}, corrected as in the paper, 10,000 samples" for n in PAPER_PRIORS)]
    assert form.job("part", data).settings != replace(form, samples=None).job("part", data).settings


def test_of_the_papers_method_each_prior_that_is_done_stays_done(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = forms(data)[PAPER]
    quick = {n: replace(r, hidden=8, epochs=1, steps=1) for n, r in whole.settings["residual"].items()}
    job = replace(whole, settings={**whole.settings, "residual": quick}).job(PAPER, data)
    fit, fitted = HEAT.fit, []

    def once(self: HEAT, *args: Any, **more: Any) -> HEAT:
        fitted.append(self.priors)
        if len(fitted) == 3:
            raise KeyboardInterrupt
        return fit(self, *args, **more)

    monkeypatch.setattr(HEAT, "fit", once)
    with pytest.raises(KeyboardInterrupt):
        job.run(data, 0, tmp_path / "checkpoint")
    scores = job.run(data, 0, tmp_path / "checkpoint").scores
    assert fitted == [("gmm",), ("gmm-std",), ("energy",), ("energy",)]
    assert [scores[PAPER][key].shape for key in data.scored] == [(len(f),) for f in data.scored.values()]


def test_settings_say_what_the_default_comes_to(data: Data) -> None:
    settings = job_of(FULL, data).settings
    assert settings["priors"] == ("energy", "relative-gmm-joint", "gmm-joint@layer3", "gmm-joint")
    assert settings["weights"] == recipe.default_choice(data.train).weights
    assert settings["residual"] == recipe.AGAINST_CONTRAST
    assert settings["contrast"].startswith("100 samples")
    assert "seed" not in settings


def test_with_another_recipe_or_contrast_a_result_is_another_one(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def identities(data: Data) -> dict[str, str]:
        return {name: f"{digest_of(data)}/{slug(job_of(name, data))}" for name in forms(data)}

    def changed(data: Data) -> set[str]:
        return {name for name, identity in identities(data).items() if identity != before[name]}

    before = identities(data)
    assert not changed(data)
    assert changed(replace(data, contrast=samples(100, seed=5))) == {FULL}
    assert changed(replace(data, contrast=None)) == {FULL}
    with monkeypatch.context() as patch:
        patch.setitem(recipe.FAMILY_WEIGHTS, "energy", 5.0)
        assert changed(data) == {FULL, BARE, PLAIN}
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "AGAINST_CONTRAST", replace(recipe.AGAINST_CONTRAST, lam=3.0))
        assert changed(data) == {FULL}
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "Residual", lambda: fast(lr=1e-5))
        assert changed(data) == {BARE}


def test_a_default_of_the_residual_is_part_of_a_results_identity(data: Data) -> None:
    class Terse(Residual):
        __repr__ = object.__repr__

    job = job_of(CORRECTED, data)
    names = [slug(replace(job, settings={"residual": {"gmm": Terse(lr=lr)}})) for lr in (1e-3, 1e-3, 1e-4)]
    assert names[0] == names[1] != names[2]


def test_only_what_the_default_lacks_is_said(data: Data, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        for name in (FULL, BARE, PLAIN):
            job_of(name, data).run(data, 0, tmp_path / name)
    lacking = replace(data, contrast=None)
    with pytest.warns(Notice, match="without contrast"):
        job_of(FULL, lacking).run(lacking, 0, tmp_path / "lacking")
