"""``heat-ood protect`` and ``heat-ood check``: two commands from images to a verdict."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save_file
from typer.testing import CliRunner

from cli_data import COLOURS, Run, colour_pictures
from heat_ood.cli import app
from heat_ood.guarding import load
from heat_ood.models import load_model

pytestmark = pytest.mark.filterwarnings("ignore")
HALF = ("--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5")
PROTECT = ("protect", "--model", "guarded_by_cli:colours", "--train", "train", "--held-out", "held", "--out", "guard")


def prepare(here: Path) -> None:
    (here / "guarded_by_cli.py").write_text(COLOURS)
    sys.modules.pop("guarded_by_cli", None)
    for seed, (name, each) in enumerate({"train": 24, "held": 20, "new": 8}.items()):
        colour_pictures(here / name, each, seed, ("a red", "b tan", "c sky"))
    Image.fromarray(np.tile(np.array([[[255, 0, 255], [0, 255, 0]]], np.uint8), (8, 4, 1))).save(here / "odd.png")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a guard; its tests copy it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        prepare(folder)
        result = CliRunner().invoke(app, [*PROTECT, "--size", "8", *HALF, "--json"])
    assert result.exit_code == 0, result.output
    (folder / "said.json").write_text(result.stdout)
    (folder / "noted.txt").write_text(result.stderr)
    return folder


@pytest.fixture
def guard(made: Path, here: Path) -> Path:
    shutil.copytree(made, here, dirs_exist_ok=True)
    sys.modules.pop("guarded_by_cli", None)
    return here / "guard"


def test_protect_says_what_it_did(guard: Path) -> None:
    said = json.loads(Path("said.json").read_text())
    assert said["calibration"] == 60
    assert said["smallest_fpr"] == pytest.approx(1 / 61)
    assert said["accuracy"] > 0.9
    assert said["classes"] == ["a red", "b tan", "c sky"]
    assert said["preprocessing"]["size"] == [8, 8]
    assert said["next"] == "heat-ood check guard PHOTO"
    assert (guard / "model.safetensors").is_file()
    assert "72 images of --train train: 8 × 8" in Path("noted.txt").read_text()


def test_again_it_goes_on_and_prints_a_table(run: Run, guard: Path) -> None:
    before = (guard / "features/train/avg.npy").stat().st_mtime_ns
    result = run(*PROTECT, "--size", 8, *HALF)
    assert (guard / "features/train/avg.npy").stat().st_mtime_ns == before
    assert "is fitted already, and is reused" in result.stderr
    for words in ("60 held-out images", "0.01639", "%", "next: heat-ood check guard PHOTO", "a red, b tan, c sky"):
        assert words in result.stdout
    assert "size" in run(*PROTECT, "--size", 16, *HALF, code=1).stderr


def test_check_in_words(run: Run, guard: Path) -> None:
    """The p-value of an image does not depend on how it is passed; the weights come from the guard alone."""
    Path("new/a red/0.png").rename("one photo.png")
    result = run("check", "guard", "one photo.png")
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{Path('one photo.png').absolute()}: like the training data (p-value ")
    assert line.endswith("; predicted class: a red)")
    odd = run("check", "guard", "odd.png", code=3).stdout
    assert f"{Path('odd.png').absolute()}: unlike the training data" in odd


def test_check_several_folders_and_json(run: Run, guard: Path) -> None:
    result = run("check", "guard", "new", "odd.png", "--json", code=3)
    assert result["fpr"] == 0.05
    assert len(result["images"]) == 25
    assert result["images"][-1] == {
        **result["images"][-1],
        "file": str(Path("odd.png").absolute()),
        "verdict": "unlike the training data",
        "ood": True,
    }
    assert all(row["ood"] == (row["p_value"] <= 0.05) for row in result["images"])
    rightly = [row["class"] == Path(row["file"]).parent.name for row in result["images"][:-1]]
    assert sum(rightly) > 20
    scores = run("score", "guard/detector", "new", "--json")["rows"]
    assert [row["p_value"] for row in scores] == pytest.approx([row["p_value"] for row in result["images"][:-1]])
    text = run("check", "guard", "new", "odd.png", code=3).stdout.splitlines()
    assert text[-1] == f"{result['flagged']} of 25 images are unlike the training data, at a false-alarm rate of 5%"


def test_check_reads_standard_input(guard: Path) -> None:
    done = CliRunner().invoke(app, ["check", "guard", "-", "--json"], input=Path("odd.png").read_bytes())
    assert done.exit_code == 3, done.output
    (row,) = json.loads(done.stdout)["images"]
    assert row["file"] == "-"
    assert row["ood"]
    broken = CliRunner().invoke(app, ["check", "guard", "-"], input=b"nothing")
    assert broken.exit_code == 1
    assert "standard input cannot be read" in broken.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("guard", "absent.png"), "There is no absent.png"),
        (("guard", "empty"), "There are no images in empty"),
        (("guard", "guarded_by_cli.py"), "cannot be read"),
        (("guard/detector", "odd.png"), "is a detector without its model: use heat-ood score"),
        (("train", "odd.png"), "train is no guard"),
    ],
)
def test_check_of_what_cannot_be_used(run: Run, guard: Path, arguments: tuple[str, str], message: str) -> None:
    Path("empty").mkdir()
    error = run("check", *arguments, code=1).stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error


def test_the_folder_is_self_contained(run: Run, guard: Path) -> None:
    """The file with the weights and the training images may go."""
    state = load_model("guarded_by_cli:colours").state_dict()
    save_file({key: 1.25 * value for key, value in state.items()}, "w.safetensors")
    run(*PROTECT[:-1], "other", "--weights", "w.safetensors", "--size", 8, *HALF)
    for gone in ("w.safetensors", "train", "held"):
        path = Path(gone)
        path.unlink() if path.is_file() else shutil.rmtree(path)
    before = run("check", "other", "new", "--json", code=None)["images"]
    shutil.move("other", "moved")
    assert run("check", "moved", "new", "--json", code=None)["images"] == before


def test_info_shows_a_guard(run: Run, guard: Path) -> None:
    text = run("info", "guard").stdout
    for words in ("guarded_by_cli:colours", "stages", "size [8, 8]", "a red, b tan, c sky", "60 samples"):
        assert words in text
    assert "the detector" in run("info", "guard", "--verify", "--json")["verified"]
    result = run("info", "guard", "--json")
    assert result["model_weights"] == "guard/model.safetensors"
    assert result["seen"]["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert result["calibration"]["samples"] == 60


def images(folder: str, **counts: int) -> None:
    for name, count in counts.items():
        for i in range(count):
            (Path(folder) / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (9 * i, 0, 0)).save(Path(folder) / name / f"{i}.png")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: images("few", a=3), "takes at least 19 held-out ones"),
        (lambda: images("few", a=30, b=30), "The classes of --train and --held-out differ"),
    ],
)
def test_sets_that_cannot_be_used(run: Run, here: Path, change: Any, message: str) -> None:
    prepare(here)
    change()
    options = ("--model", "guarded_by_cli:colours", "--out", "guard")
    if "least" in message:
        shutil.copytree("few/a", "flat")
        shutil.rmtree("few")
        Path("flat").rename("few")
    assert message in run("protect", *options, "--train", "train", "--held-out", "few", code=1).stderr
    flat = run("protect", *options, "--train", "train/a red", "--held-out", "held", code=1).stderr
    assert "have no classes" in flat
    assert not Path("guard").exists()


def test_a_folder_with_something_else_is_left_alone(run: Run, guard: Path) -> None:
    (guard / "thesis.tex").write_text("years of work")
    for options in ((), ("--overwrite",)):
        assert "thesis.tex, which is no part of a guard" in run(*PROTECT, *options, code=1).stderr
    assert (guard / "model.safetensors").is_file()


def test_overwriting_starts_anew_and_an_interruption_says_how_to_go_on(
    run: Run, guard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heat_ood import HEAT

    fit = HEAT.fit

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HEAT, "fit", interrupted)
    command = (*PROTECT, "--size", 4, *HALF, "--overwrite")
    assert "run the same command again to go on" in run(*command, code=130).stderr
    assert not (guard / "guard.json").exists()
    monkeypatch.setattr(HEAT, "fit", fit)
    assert "are there already, and are reused" in run(*command[:-1]).stderr
    assert load("guard").detector.seen_.preprocessing["size"] == [4, 4]


def test_a_model_of_timm_with_weights_of_a_file(run: Run, here: Path) -> None:
    """Model, weights and folders are all that is given; how images are prepared is timm's."""
    timm = pytest.importorskip("timm")
    prepare(here)
    save_file(timm.create_model("test_resnet", num_classes=3).state_dict(), "w.safetensors")
    model = ("--model", "timm:test_resnet?num_classes=3", "--weights", "w.safetensors")
    run("protect", *model, "--train", "new", "--held-out", "held", "--out", "guard")
    Path("w.safetensors").unlink()
    result = run("check", "guard", "odd.png", "--json", code=None)
    assert result["images"][0]["class"] in ("a red", "b tan", "c sky")
    assert run("info", "guard", "--json")["seen"]["preprocessing"]["size"] == [160, 160]


def test_a_full_disk_is_named_and_the_same_command_goes_on(
    run: Run, guard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    (guard / "guard.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        error = run(*PROTECT, "--size", 8, *HALF, code=1).stderr.splitlines()[-1]
    assert error == "error: [Errno 28] No space left on device: 'guard/model.safetensors'"
    run(*PROTECT, "--size", 8, *HALF)
    assert load("guard").detector.calibrated
