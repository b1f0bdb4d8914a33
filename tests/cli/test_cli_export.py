"""``heat-ood export``, and an exported file at the doors that folders have."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from cli_data import COLOURS, Run, colour_pictures
from heat_ood.cli import app

pytestmark = pytest.mark.filterwarnings("ignore")
PROTECT = (
    "protect",
    "--model",
    "guarded_by_export:colours",
    "--train",
    "train",
    "--held-out",
    "held",
    "--out",
    "guard",
)
HALF = ("--size", "8", "--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a guard and its file; tests copy it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        (folder / "guarded_by_export.py").write_text(COLOURS)
        for seed, (name, each) in enumerate({"train": 24, "held": 20, "new": 4}.items()):
            colour_pictures(folder / name, each, seed, ("a red", "b tan", "c sky"))
        Image.fromarray(np.tile(np.array([[[255, 0, 255], [0, 255, 0]]], np.uint8), (8, 4, 1))).save("odd.png")
        for arguments in ([*PROTECT, *HALF], ["export", "guard", "--out", "guard.onnx"]):
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, result.output
        (folder / "said.txt").write_text(result.stdout)
    return folder


@pytest.fixture(autouse=True)
def copied(made: Path, here: Path) -> None:
    shutil.copytree(made, here, dirs_exist_ok=True)
    sys.modules.pop("guarded_by_export", None)


def test_it_says_what_it_wrote() -> None:
    said = Path("said.txt").read_text()
    assert "pixels" in said
    assert "logits, score, p_value, ood, energies" in said
    assert "next: heat-ood check guard.onnx PHOTO" in said


def test_check_judges_by_the_file_as_by_the_folder(run: Run) -> None:
    folder, file = (run("check", guard, "new", "odd.png", "--json", code=None) for guard in ("guard", "guard.onnx"))
    assert [row["verdict"] for row in file["images"]] == [row["verdict"] for row in folder["images"]]
    assert [row["class"] for row in file["images"]] == [row["class"] for row in folder["images"]]
    for one, other in zip(file["images"], folder["images"], strict=True):
        assert one["p_value"] == pytest.approx(other["p_value"], abs=0.02)
        assert one["score"] == pytest.approx(other["score"], abs=1e-3)
    assert file["fpr"] == 0.05


def test_score_and_info_take_the_file(run: Run) -> None:
    scored = run("score", "guard.onnx", "new", "--fpr", "0.3", "--json")
    assert scored["samples"] == 12
    assert scored["flagged"] == sum(row["p_value"] <= 0.3 for row in scored["rows"])
    about = run("info", "guard.onnx", "--json")
    assert (about["takes"], about["method"], about["classes"]) == ("pixels", "heat", ["a red", "b tan", "c sky"])
    assert about["calibration"]["samples"] == 60
    assert "heat-ood" in run("info", "guard.onnx").stdout
    refused = run("score", "guard.onnx", "guard/features/held-out", code=1)
    assert "judges images, and features were given" in refused.stderr
    assert "leave it out" in run("score", "guard.onnx", "new", "--model", "timm:resnet18", code=2).stderr


def test_features_alone(run: Run) -> None:
    held = "guard/features/held-out"
    run("export", "guard", "--features", held, "--out", "detector.onnx", "--fpr", "0.1")
    file, folder = (
        run("score", guard, held, "--json", "--fpr", "0.1") for guard in ("detector.onnx", "guard/detector")
    )
    assert file["samples"] == folder["samples"] == 60
    for one, other in zip(file["rows"], folder["rows"], strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-3)
    assert "judges features, not images" in run("check", "detector.onnx", "odd.png", code=1).stderr
    assert "takes features, and new holds none" in run("score", "detector.onnx", "new", code=1).stderr


def test_what_cannot_be_done_is_said(run: Run) -> None:
    assert "Pass --compare" in run("export", "guard", "--out", "a.onnx", "--half", code=1).stderr
    assert "ends with .onnx or .pt2" in run("export", "guard", "--out", "a.txt", code=1).stderr
    Path("guard.pt2").write_bytes(b"")
    assert "say so: --trust" in run("check", "guard.pt2", "odd.png", code=1).stderr
    assert not Path("a.onnx").exists()


def test_less_precision_is_measured_and_said(run: Run) -> None:
    made = run("export", "guard", "--out", "half.onnx", "--half", "--compare", "new", "held")
    assert "AUROC" in made.stderr
    assert "of the decisions change" in made.stderr
    assert run("info", "half.onnx", "--json")["reduced"]["images"] == 72
