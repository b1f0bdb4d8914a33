"""The command line with methods that run a model on images, and with settings of one's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from heat_ood import HEAT, Energy, Features
from heat_ood.energies import ODIN, Ensemble, Gram
from heat_ood.images import Preprocessing

MODULE = "tiny_model_of_cli_inputs"
SOURCE = """
import torch
from torch import nn

def small(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
"""
MODEL = ("--model", f"{MODULE}:small", "--size", 8, "--batch-size", 5)
LAYERS = ("--set", "layers=1,")
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a model, which is the current one."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop(MODULE, None)
    return tmp_path


def write_images(folder: Path, seed: int, low: int, high: int, count: int = 8) -> Path:
    rng = np.random.default_rng(seed)
    for label in ("ant", "bee"):
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(low, high, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return folder


@pytest.fixture
def pictures(here: Path) -> Path:
    return write_images(here / "pictures", 0, 0, 256)


@pytest.fixture
def others(here: Path) -> Path:
    return write_images(here / "others", 1, 200, 256)


def small(seed: int = 0) -> Any:
    namespace: dict[str, Any] = {}
    exec(SOURCE, namespace)
    return namespace["small"](seed)


def tensor_of(folder: Path) -> torch.Tensor:
    read = Preprocessing(size=(8, 8))
    return torch.stack([read(Image.open(file)) for file in sorted(folder.rglob("*.png"))])


@pytest.fixture
def stored(run: Run, pictures: Path) -> Path:
    run("extract", *MODEL, "--images", pictures, "--out", "f")
    return Path("f")


# Images through a model


@pytest.mark.parametrize(
    ("method", "settings"), [("odin", ("--set", "epsilon=0.1", "--set", "temperature=10")), ("gram", LAYERS)]
)
def test_from_images_to_decisions(
    run: Run, pictures: Path, others: Path, method: str, settings: tuple[str, ...]
) -> None:
    fitted = run("fit", pictures, "--method", method, *settings, *MODEL, "--out", "d", "--json")
    assert fitted["samples"] == 16
    calibrated = run("calibrate", "d", pictures, *MODEL, "--json")
    assert calibrated["calibration"] == 16
    result = run("score", "d", others, *MODEL, "--fpr", 0.2, "--csv", "out.csv", "--json")

    energy = {"odin": ODIN(10, 0.1), "gram": Gram(("1",))}[method].attach(small())
    x, new = tensor_of(pictures), tensor_of(others)
    energy.fit(x).calibrate(x)
    assert [row["score"] for row in result["rows"]] == pytest.approx(energy.score(new).tolist(), rel=1e-3)
    assert [row["p_value"] for row in result["rows"]] == energy.p_value(new).tolist()
    assert result["rows"][8]["file"] == "bee/0.png"
    assert Path("out.csv").read_text().startswith("sample,file,score,p_value,ood\n")

    table = run("evaluate", "d", "--id", pictures, "--ood", f"others={others}", "--ood", f"same={pictures}", *MODEL)
    assert "others" in table.stdout
    found = run("evaluate", "d", "--id", pictures, "--ood", f"same={pictures}", *MODEL, "--json")
    assert found["rows"][0]["auroc"] == 0.5
    about = run("info", "d", "--json")
    assert (about["method"], about["reads"]) == (method, list(energy.reads))
    assert about["fingerprint"] == energy.fingerprint


def test_per_class(run: Run, pictures: Path, others: Path) -> None:
    run("fit", pictures, "--method", "odin", *MODEL, "--out", "d")
    told = run("calibrate", "d", pictures, *MODEL, "--per-class", code=1).stderr
    assert "No calibration sample is predicted as class" in told

    model, x = small(), tensor_of(pictures)
    with torch.no_grad():  # a head that predicts either class for half of the images
        gap = (model(x) @ torch.tensor([1.0, -1.0])).median()
        model[-1].bias[0] -= gap
    save_file(model.state_dict(), "balanced.safetensors")
    balanced = (*MODEL, "--weights", "balanced.safetensors")
    run("fit", pictures, "--method", "odin", *balanced, "--out", "e")
    run("calibrate", "e", pictures, *balanced, "--per-class")
    odin = ODIN.load("e").attach(model)
    assert odin.calibration is not None
    assert odin.calibration.per_class
    rows = run("score", "e", others, *balanced, "--fpr", 0.5, "--json")["rows"]
    assert [row["p_value"] for row in rows] == pytest.approx(odin.p_value(tensor_of(others)).tolist())


def test_the_layers_of_gram(run: Run, pictures: Path) -> None:
    run("fit", pictures, "--method", "gram", *MODEL, "--layers", "0,1", "--out", "a")
    run("fit", pictures, "--method", "gram", *MODEL, "--set", "layers=0,1", "--set", "powers=3", "--out", "b")
    assert Gram.load("a").settings == {"layers": ("0", "1"), "powers": 10}
    assert Gram.load("b").settings == {"layers": ("0", "1"), "powers": 3}


def test_another_model_is_refused(run: Run, pictures: Path) -> None:
    run("fit", pictures, "--method", "gram", *LAYERS, *MODEL, "--out", "d")
    save_file(small(1).state_dict(), "other.safetensors")
    result = run("score", "d", pictures, *MODEL, "--weights", "other.safetensors", code=1)
    assert "Gram was fitted with another model" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["fit", "calibrate", "score", "evaluate"])
def test_gram_says_what_it_needs(run: Run, stored: Path, pictures: Path, command: str) -> None:
    run("fit", pictures, "--method", "gram", *LAYERS, *MODEL, "--out", "d")

    def arguments(path: Path) -> tuple[Any, ...]:
        return {
            "fit": (path, "--method", "gram", "--out", "e"),
            "calibrate": ("d", path),
            "score": ("d", path),
            "evaluate": ("d", "--id", path, "--ood", f"x={path}"),
        }[command]

    told = "gram reads maps: pass images and --model"
    if command == "fit":
        assert f"{told}; there is no --model." in run(command, *arguments(pictures), code=1).stderr
    else:
        assert "the model that the detector was fitted with" in run(command, *arguments(pictures)).stderr
    assert f"{told}; f holds stored features." in run(command, *arguments(stored), *MODEL, code=1).stderr
    assert f"{told}; f holds stored features." in run(command, *arguments(stored), code=1).stderr
    assert not Path("e").exists()


# ODIN on stored features


def test_odin_on_stored_features_warns_and_works(run: Run, stored: Path) -> None:
    told = "note: ODIN scores stored features without the input perturbation"
    assert told in run("fit", stored, "--method", "odin", "--out", "d").stderr
    assert told in run("calibrate", "d", stored).stderr
    result = run("score", "d", stored, "--fpr", 0.1)
    assert result.stderr.count(told) == 1
    features = Features.open(stored)
    rows = run("score", "d", stored, "--fpr", 0.1, "--json")["rows"]
    assert features.logits is not None
    assert [row["score"] for row in rows] == pytest.approx(ODIN().of_logits(features.logits).tolist())


def test_odin_calibrated_on_features_refuses_images(run: Run, stored: Path, pictures: Path) -> None:
    run("fit", stored, "--method", "odin", "--out", "d")
    run("calibrate", "d", stored)
    result = run("score", "d", pictures, *MODEL, "--fpr", 0.1, code=1)
    assert "calibrated without the input perturbation" in result.stderr


# Ensembles


@pytest.fixture
def weights(here: Path) -> list[str]:
    names = [f"{seed}.safetensors" for seed in range(3)]
    for seed, name in enumerate(names):
        save_file(small(seed).state_dict(), name)
    return names


def test_an_ensemble_of_weights(run: Run, pictures: Path, others: Path, weights: list[str]) -> None:
    models = (*MODEL, "--weights", weights[0], "--member", weights[1], "--member", weights[2])
    run("fit", pictures, "--method", "ensemble", "--set", "kind=softmax", *models, "--out", "d")
    run("calibrate", "d", pictures, *models)
    rows = run("score", "d", others, *models, "--fpr", 0.2, "--json")["rows"]
    ensemble = Ensemble("softmax").attach(*map(small, range(3))).fit(tensor_of(pictures))
    assert [row["score"] for row in rows] == pytest.approx(ensemble.score(tensor_of(others)).tolist(), rel=1e-4)
    assert ensemble.members_ == Ensemble.load("d").members_
    run("evaluate", "d", "--id", pictures, "--ood", f"others={others}", *models)
    fewer = run("score", "d", others, *models[:-2], "--fpr", 0.2, code=1)
    assert "fitted with 3 models, not 2" in fewer.stderr


def test_members_belong_to_ensembles_and_ensembles_have_members(
    run: Run, stored: Path, pictures: Path, weights: list[str]
) -> None:
    alone = run("fit", pictures, "--method", "ensemble", *MODEL, "--weights", weights[0], "--out", "d", code=1)
    assert "at least two models, not 1" in alone.stderr
    wrong = run("fit", pictures, "--method", "odin", *MODEL, "--member", weights[1], "--out", "d", code=2)
    assert "odin has none" in wrong.stderr
    told = run("fit", stored, "--method", "ensemble", "--out", "d", code=1).stderr
    assert "ensemble reads models: pass images and --model" in told


# Features of images


def test_fit_takes_images_for_any_method(run: Run, stored: Path, pictures: Path) -> None:
    run("fit", stored, "--method", "gmm", "--out", "a")
    run("fit", pictures, "--method", "gmm", *MODEL, "--device", "cpu", "--out", "b")
    features = Features.open(stored)
    assert torch.equal(Energy.load("a").score(features), Energy.load("b").score(features))
    assert "--model" in run("fit", pictures, "--method", "gmm", "--out", "c", code=1).stderr
    wrong = run("fit", stored, "--method", "gmm", "--device", "cpu", "--out", "c", code=2)
    assert "--device belong to heat" in wrong.stderr


# Settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shrinkage=0.5", 0.5),
        ("shrinkage=1e-3", 1e-3),
        ("normalise=false", False),
        ("normalise=True", True),
        ("clusters=none", None),
        ("clusters=4", 4),
        ("columns=avg,std", ("avg", "std")),
        ("columns=avg, ", ("avg",)),
    ],
)
def test_settings(run: Run, stored: Path, text: str, expected: Any) -> None:
    run("fit", stored, "--method", "gmm", "--set", text, "--out", "d")
    found = Energy.load("d").settings[text.partition("=")[0]]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("method", "text", "code", "message"),
    [
        ("gmm", "colour=red", 1, "gmm cannot be made: got an unexpected keyword argument 'colour'"),
        ("odin", "temperature=hot", 1, "temperature of odin is a number, not 'hot'"),
        ("odin", "temperature=none", 1, "temperature of odin is a number, not 'none'"),
        ("odin", "temperature=-1", 1, "temperature must be positive"),
        ("gmm", "normalise=1", 1, "normalise of gmm is true or false, not '1'"),
        ("heat", "colour=red", 1, "heat cannot be made"),
        ("heat", "standardise=never", 1, "standardise is 'held-out', 'training' or 'batch'"),
        ("gmm", "normalise", 2, "is not KEY=VALUE"),
        ("heat", "beta=3", 2, "has an option of its own: --beta"),
    ],
)
def test_settings_that_will_not_do(
    run: Run, stored: Path, method: str, text: str, code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = run("fit", stored, "--method", method, "--set", text, "--out", "d", code=code)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("d").exists()


def test_settings_of_heat(run: Run, stored: Path) -> None:
    options = ("--no-residual", "--prior", "gmm", "--prior", "energy", "--set", "weights=1,3", "--set", "holdout=0")
    run("fit", stored, *options, "--out", "d")
    assert HEAT.load("d").settings["weights"] == (1, 3)
    assert HEAT.load("d").holdout == 0
    run("fit", stored, "--paper", "cifar10", *options[:5], "--set", "standardise=held-out", "--out", "e")
    assert HEAT.load("e").standardise == "held-out"


def test_help_and_methods(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = run("fit", "--help").stdout
    assert all(option in text for option in ("--set", "--member", "--model", "--weights", "KEY=VALUE"))
    reads = {name: found["reads"] for name, found in run("methods", "--json").items()}
    assert (reads["odin"], reads["gram"], reads["ensemble"]) == (["inputs"], ["maps"], ["models"])
