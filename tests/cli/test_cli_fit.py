"""``heat-ood fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cli_data import Run, features
from heat_ood import HEAT, Energy, Features, Residual, methods

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")


def test_fit_and_info(run: Run, stores: Path) -> None:
    result = run("fit", "train", "--out", "d", "--epochs", 2, "--lam", 5, "--seed", 3, "--beta", "inf", "--json")
    fitted = HEAT.load("d")
    assert fitted.residual == Residual(epochs=2, lam=5.0)
    assert (fitted.seed, fitted.beta) == (3, float("inf"))
    assert result["settings"]["beta"] == "inf"
    assert fitted.priors is None
    assert set(result["outcomes"]) == {"energy", "gmm-joint"}
    about = run("info", "d", "--json")
    assert about["log"] == result["log"]
    assert about["calibration"] is None
    assert "no p-values yet" in run("info", "d").stdout


def test_fit_with_the_defaults_of_the_library(run: Run, stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[HEAT] = []

    def stop(self: HEAT, *_: object, **__: object) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(HEAT, "fit", stop)
    run("fit", "train", "--out", "d", code=130)
    assert made[0].settings == HEAT().settings
    run("fit", "train", "--out", "d", "--paper", "cifar10", code=130)
    assert made[1].settings == HEAT.paper("cifar10").settings


def test_fit_the_plain_composition_of_chosen_priors(run: Run, stores: Path) -> None:
    run("fit", "train", "--out", "d", "--prior", "gmm", "--prior", "energy", "--no-residual")
    fitted = HEAT.load("d")
    assert fitted.priors_ == ("gmm", "energy")
    assert fitted.residual is None


def test_fit_the_papers_settings_with_changes(run: Run, stores: Path) -> None:
    run("fit", "train", "--out", "d", "--paper", "cifar10", "--epochs", 1, "--prior", "gmm")
    residual = HEAT.load("d").residual
    assert isinstance(residual, dict)
    assert (residual["gmm"].epochs, residual["gmm"].hidden, residual["gmm"].steps) == (1, 1024, 20)
    assert (
        "no residual for gmm-joint"
        in run("fit", "train", "--out", "e", "--paper", "cifar10", "--prior", "gmm-joint", code=1).stderr
    )


@pytest.mark.parametrize("method", [name for name in methods() if name not in ("heat", "odin", "gram", "ensemble")])
def test_fit_and_score_any_method(run: Run, stores: Path, method: str) -> None:
    run("fit", "train", "--out", "d", "--method", method)
    run("calibrate", "d", "held")
    result = run("score", "d", "far", "--json")
    torch.testing.assert_close(
        torch.tensor([row["score"] for row in result["rows"]]), Energy.load("d").score(Features.open("far"))
    )


def test_fit_says_what_it_does_without(run: Run, here: Path) -> None:
    whole = features(0)
    Features(avg=whole.avg, labels=whole.labels).save(here / "bare")
    said = run("fit", "bare", "--out", "d", "--no-residual").stderr
    assert said.count("note: ") == 1
    assert "note: HEAT uses gmm. It does without logits" in said


def test_fit_with_contrast_and_a_checkpoint_goes_on_after_an_interruption(
    run: Run, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heat_ood.residual._training import Training

    command = ("fit", "train", "--prior", "gmm", "--epochs", 4, "--contrast", "far")
    run(*command, "--out", "whole")
    original, calls = Training.one_epoch, []

    def interrupted(self: Training, report: Any) -> float:
        calls.append(len(self.epochs))
        if calls == [0, 1, 2]:
            raise KeyboardInterrupt
        return original(self, report)

    monkeypatch.setattr(Training, "one_epoch", interrupted)
    result = run(*command, "--out", "d", "--checkpoint", "ckpt", code=130)
    assert "--checkpoint" in result.stderr
    assert not Path("d").exists()
    run(*command, "--out", "d", "--checkpoint", "ckpt")
    assert calls == [0, 1, 2, 2, 3]
    test = Features.open("test")
    assert torch.equal(HEAT.load("d").score(test), HEAT.load("whole").score(test))


def test_fit_does_not_replace_what_is_there_unasked(run: Run, detector: Path) -> None:
    before = (detector / "detector.json").read_bytes()
    assert "--overwrite" in run("fit", "train", "--out", detector, "--no-residual", code=1).stderr
    assert (detector / "detector.json").read_bytes() == before
    assert "holds no detector" in run("fit", "train", "--out", "test", "--overwrite", code=1).stderr
    run("fit", "train", "--out", detector, "--no-residual", "--overwrite")
    assert HEAT.load(detector).residual is None
