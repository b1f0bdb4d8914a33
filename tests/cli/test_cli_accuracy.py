"""What would show the mistake: the network's accuracy, and how images were prepared, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from cli_data import COLOURS, EXTRACT, Run, colour_pictures
from heat_ood import Features
from heat_ood.features import accuracy_of

MODEL = ("extract", "--model", "colours_of_cli:colours")
HALF = ("--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")


@pytest.fixture
def colours(here: Path) -> Path:
    (here / "colours_of_cli.py").write_text(COLOURS)
    sys.modules.pop("colours_of_cli", None)
    return colour_pictures(here / "train", 10, 0, ("a", "b", "c"))


def test_accuracy_and_confidence_in_one_streamed_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heat_ood.features._accuracy.BATCH", 7)
    g = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(50, 4, generator=g), torch.arange(50) % 4
    found = accuracy_of(Features(logits=logits, labels=labels))
    assert found is not None
    assert found[0] == (logits.argmax(1) == labels).double().mean()
    assert found[1] == pytest.approx(float(logits.double().softmax(1).amax(1).mean()))
    assert accuracy_of(Features(logits=logits)) is None
    assert accuracy_of(Features(avg=logits, labels=labels)) is None


def test_extract_and_fit_print_it(run: Run, colours: Path) -> None:
    result = run(*MODEL, "--size", 8, *HALF, "--images", "train", "--out", "f")
    accuracy, confidence = accuracy_of(Features.open("f")) or (0, 0)
    assert accuracy > 0.9
    shown = f"{100 * accuracy:.2f} % (mean confidence {100 * confidence:.1f} %)"
    assert shown in result.stdout
    assert "warning" not in result.stderr
    fitted = run("fit", "f", "--out", "d", "--no-residual")
    assert shown in fitted.stdout
    assert "warning" not in fitted.stderr
    assert run("fit", "f", "--out", "e", "--no-residual", "--json")["accuracy"] == accuracy


def test_permuted_class_folders_are_warned_of(run: Run, colours: Path) -> None:
    for old, new in (("a", "z"), ("c", "a"), ("z", "c"), ("b", "d")):
        (colours / old).rename(colours / new)
    extracted = run(*MODEL, "--size", 8, *HALF, "--images", "train", "--out", "f")
    fitted = run("fit", "f", "--out", "d", "--no-residual")
    for result in (extracted, fitted):
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
        assert "wrong normalisation, size, class order or missing weights show so" in line
    assert "--no-labels" in extracted.stderr
    assert "warning" not in run(*MODEL, "--size", 8, *HALF, "--images", "train", "--out", "g", "--no-labels").stderr


def test_what_is_assumed_of_a_model_that_does_not_say(run: Run, colours: Path) -> None:
    said = run(*MODEL, "--images", "train", "--out", "f").stderr
    assert "224 × 224 (the first image has 8 × 8), ImageNet's mean and ImageNet's std assumed" in said
    assert "pass --size … --mean … --std …" in said
    said = run(*MODEL, "--size", 8, "--images", "train", "--out", "g").stderr
    assert "(ImageNet's mean and ImageNet's std assumed, as the model does not say" in said
    assert "(as the options say)" in run(*MODEL, "--size", 8, *HALF, "--images", "train", "--out", "h").stderr


def test_a_model_that_says_is_asked(run: Run, pictures: Path) -> None:
    pytest.importorskip("timm")
    said = run("extract", "--model", "timm:resnet10t?num_classes=3", "--images", pictures, "--out", "f").stderr
    assert "(as the model asks)" in said


def test_skipped_images_are_listed_and_kept(run: Run, pictures: Path) -> None:
    (pictures / "bee" / "1.png").write_bytes(b"nothing")
    command = (*EXTRACT, "--images", pictures, "--out", "f", "--skip-unreadable")
    result = run(*command)
    assert "1 of 12 images were skipped:" in result.stderr
    assert "  bee/1.png: " in result.stderr
    assert "1; their names are in f.json" in result.stdout
    assert list(json.loads(Path("f.json").read_text())["skipped"]) == ["bee/1.png"]
    assert run("info", "f", "--json")["skipped"] == ["bee/1.png"]
    assert run(*command, "--json")["skipped"] == ["bee/1.png"]


def test_a_mean_of_pixels_up_to_255_is_refused_as_an_option(run: Run, pictures: Path) -> None:
    error = run(*EXTRACT, "--images", pictures, "--out", "f", "--mean", "120,120,120", code=1).stderr
    assert "--mean 120.0,120.0,120.0 is out of range" in error
    assert "Pass --mean 0.4706,0.4706,0.4706" in error
    assert not Path("f").exists()
