"""A detector knows what it saw: its model and how images were prepared are reused, and what contradicts is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from cli_data import COLOURS, Run, colour_pictures
from heat_ood import HEAT, Features
from heat_ood.cli._model_options import without_pretrained
from heat_ood.energies import Energy
from heat_ood.features import Extractor
from heat_ood.models import load_model

MODEL = ("--model", "colours_of_cli:colours")
HALF = ("--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")


@pytest.fixture
def fitted(here: Path, run: Run) -> Path:
    """A detector, fitted at 8 pixels and calibrated, and pictures that it has not seen."""
    (here / "colours_of_cli.py").write_text(COLOURS)
    sys.modules.pop("colours_of_cli", None)
    for seed, name in enumerate(("train", "held", "new")):
        colour_pictures(here / name, 20, seed)
    run("extract", *MODEL, "--size", 8, *HALF, "--layers", "2", "--images", "train", "--out", "f/train")
    run("fit", "f/train", "--out", "d", "--no-residual")
    run("calibrate", "d", "held")
    return here / "d"


def test_the_model_and_the_preprocessing_are_those_of_the_fit(run: Run, fitted: Path) -> None:
    seen = HEAT.load(fitted).seen_
    assert seen is not None
    assert seen.model == MODEL[1]
    assert seen.classes == ("red", "sky", "tan")
    result = run("score", fitted, "new", "--json")
    assert result["flagged"] < 12
    explicit = run("score", fitted, "new", *MODEL, "--size", 8, *HALF, "--layers", "2", "--json")
    assert explicit == result
    told = run("score", fitted, "new").stderr
    assert "the model that the detector was fitted with, colours_of_cli:colours" in told
    assert "as the detector was fitted" in told
    assert "8 × 8" in told


def passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The batches that go through a model from now on."""
    seen: list[Any] = []
    forward = Extractor.forward

    def watched(self: Extractor, inputs: Any, *rest: Any) -> Any:
        seen.append(inputs)
        return forward(self, inputs, *rest)

    monkeypatch.setattr(Extractor, "forward", watched)
    return seen


@pytest.mark.parametrize("options", [("--size", 16), ("--mean", "0.4,0.4,0.4"), ("--std", "0.1,0.1,0.1")])
@pytest.mark.parametrize("command", ["score", "calibrate", "evaluate"])
def test_contrary_options_are_refused_before_any_pass(
    run: Run, fitted: Path, monkeypatch: pytest.MonkeyPatch, command: str, options: tuple[Any, ...]
) -> None:
    arguments = {"evaluate": ("--id", "new", "--ood", "x=new")}.get(command, ("new",))
    before, seen = (fitted / "detector.json").read_bytes(), passes(monkeypatch)
    error = run(command, fitted, *arguments, *MODEL, *options, code=1).stderr.splitlines()[-1]
    assert "prepared otherwise" in error
    name = str(options[0]).removeprefix("--")
    then = {"size": "[8, 8]", "mean": "[0.5, 0.5, 0.5]", "std": "[0.5, 0.5, 0.5]"}[name]
    now = {"size": "[16, 16]", "mean": "[0.4, 0.4, 0.4]", "std": "[0.1, 0.1, 0.1]"}[name]
    assert f"{name} {now} instead of {then}" in error
    assert not seen
    assert (fitted / "detector.json").read_bytes() == before


@pytest.mark.parametrize("command", ["score", "calibrate", "evaluate"])
def test_stored_features_of_another_size_are_refused(run: Run, fitted: Path, command: str) -> None:
    run("extract", *MODEL, "--size", 16, *HALF, "--layers", "2", "--images", "new", "--out", "f/large")
    arguments = {"evaluate": ("--id", "f/large", "--ood", "x=f/large")}.get(command, ("f/large",))
    assert "size [16, 16] instead of [8, 8]" in run(command, fitted, *arguments, code=1).stderr


def test_arrays_of_another_size_are_resized_as_then_or_refused(run: Run, fitted: Path) -> None:
    """An array's own size is written down, so that another one is not taken for it."""
    rng = np.random.default_rng(0)
    for name, size in (("small", 8), ("large", 16)):
        np.savez(
            f"{name}.npz", images=rng.integers(0, 256, (30, size, size, 3), dtype=np.uint8), labels=np.arange(30) % 3
        )
        run("extract", *MODEL, *HALF, "--images", f"{name}.npz", "--out", name)
    run("fit", "small", "--out", "of-array", "--no-residual")
    assert "size [16, 16] instead of [8, 8]" in run("score", "of-array", "large", code=1).stderr
    assert "8 × 8" in run("score", "of-array", "large.npz").stderr


@pytest.mark.parametrize("method", ["odin", "gram"])
def test_methods_that_read_images_know_it_too(run: Run, fitted: Path, method: str) -> None:
    run("fit", "train", "--method", method, *MODEL, "--size", 8, *HALF, "--layers", "2", "--out", "m")
    assert run("score", "m", "new", "--json")["samples"] == 60
    assert "size [16, 16] instead of [8, 8]" in run("score", "m", "new", "--size", 16, code=1).stderr


def test_weights_are_found_again_and_others_refused(run: Run, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = load_model("colours_of_cli:colours").state_dict()
    save_file({key: 1.5 * value for key, value in state.items()}, "w.safetensors")
    run("extract", *MODEL, "--weights", "w.safetensors", "--size", 8, *HALF, "--images", "train", "--out", "g")
    run("fit", "g", "--out", "e", "--no-residual")
    assert "w.safetensors" in run("score", "e", "new").stderr
    save_file({key: 2.5 * value for key, value in state.items()}, "w.safetensors")
    assert "other weights now" in run("score", "e", "new", code=1).stderr
    Path("w.safetensors").unlink()
    gone = run("score", "e", "new", code=1).stderr
    assert "cannot be loaded here (There is no file" in gone
    assert "--weights" in gone


def test_a_single_image_is_scored(run: Run, fitted: Path) -> None:
    every = run("score", fitted, "new", "--json")["rows"]
    (one,) = run("score", fitted, "new/sky/3.png", "--json")["rows"]
    assert one["file"] == "3.png"
    assert one["score"] == pytest.approx(next(row["score"] for row in every if row["file"] == "sky/3.png"), abs=1e-4)


@pytest.mark.parametrize("name", ["broken.jpg", "notes.doc"])
def test_a_file_that_is_no_image_is_said_to_be_none(run: Run, fitted: Path, name: str) -> None:
    Path(name).write_text("nothing")
    error = run("score", fitted, name, code=1).stderr.splitlines()[-1]
    assert f"The image {name} cannot be read" in error
    assert "pickle" not in error


def test_info_shows_what_was_seen(run: Run, fitted: Path) -> None:
    for path in (fitted, "f/train"):
        seen = run("info", path, "--json")["seen"]
        assert seen["model"] == MODEL[1]
        assert seen["preprocessing"]["size"] == [8, 8]
        assert seen["classes"] == ["red", "sky", "tan"]
        text = run("info", path).stdout
        assert all(words in text for words in (MODEL[1], "size [8, 8]", "mean [0.5, 0.5, 0.5]", "red", "tan"))


def test_detectors_of_an_earlier_version_need_the_model_named(run: Run, fitted: Path) -> None:
    energy = Energy.load(fitted)
    energy.seen_ = None
    energy.save("old")
    assert "--model" in run("score", "old", "new", code=1).stderr
    assert run("score", "old", "new", *MODEL, "--size", 8, *HALF, "--layers", "2", "--json")["samples"] == 60


def test_features_of_arrays_of_one_s_own_pass(run: Run, stores: Path) -> None:
    HEAT(residual=None).fit(Features.open("train")).save("d")
    assert torch.tensor([row["score"] for row in run("score", "d", "far", "--json")["rows"]]).isfinite().all()
    Image.new("RGB", (8, 8)).save("one.png")
    assert "--model" in run("score", "d", "one.png", code=1).stderr


def test_contrast_that_was_prepared_otherwise_is_refused(run: Run, fitted: Path) -> None:
    contrast = ("contrast", *MODEL, *HALF, "--layers", "2", "--images", "train")
    run(*contrast, "--size", 16, "--out", "c")
    for command in (("fit", "f/train", "--out", "e"), ("compare", "f/train", "--folds", 0)):
        assert "size [16, 16] instead of [8, 8]" in run(*command, "--contrast", "c", code=1).stderr


@pytest.mark.parametrize(
    ("model", "name", "fetched"),
    [
        ("timm:resnet34", "timm:resnet34", False),
        ("timm:resnet34?pretrained", "timm:resnet34", True),
        ("timm:resnet34?num_classes=3&pretrained=1&in_chans=1", "timm:resnet34?num_classes=3&in_chans=1", True),
        ("package.module:function", "package.module:function", False),
    ],
)
def test_a_name_is_kept_without_where_its_weights_came_from(model: str, name: str, fetched: bool) -> None:
    """A guard keeps the weights themselves, and timm's would be in their way."""
    assert without_pretrained(model) == (name, fetched)
