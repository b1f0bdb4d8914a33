"""The command line: what it prints, what it exits with, and that an interruption breaks nothing."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from heat_ood import HEAT, Energy, Features, Residual, __version__, methods
from heat_ood.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")
SOURCE = Path(__file__).parents[1] / "src"
COMMANDS = ("demo", "extract", "fit", "calibrate", "score", "evaluate", "info", "methods")
MODEL = """
import time
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small()
    def forward(self, x):
        time.sleep(0.05)
        return self.net(x)

slow = Slow

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small()
    def forward(self, x):
        return self.net(x).softmax(1)
"""

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a model, which is the current one."""
    (tmp_path / "tiny_model_of_cli.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("tiny_model_of_cli", None)
    return tmp_path


@pytest.fixture
def run() -> Run:
    """Run a command and check its exit code; with ``--json`` the parsed standard output."""

    def call(*arguments: Any, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in arguments and code in (0, 3) else result

    return call


def features(seed: int, n: int = 120, shift: float = 0.0) -> Features:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    z = np.abs(rng.normal(size=(n, 6)) + 3 * np.eye(3, 6)[labels] + shift * (np.arange(6) > 2)).astype(np.float32)
    return Features(avg=z, std=z[:, ::-1].copy(), labels=labels, head=(np.eye(3, 6, dtype=np.float32), None))


@pytest.fixture
def stores(here: Path) -> Path:
    for seed, (name, shift) in enumerate({"train": 0, "held": 0, "test": 0, "far": 6, "near": 1}.items()):
        features(seed, shift=shift).save(here / name)
    return here


@pytest.fixture
def detector(stores: Path) -> Path:
    trained = HEAT(residual=Residual(epochs=1, hidden=8)).fit(Features.open(stores / "train"))
    trained.calibrate(Features.open(stores / "held")).save(stores / "detector")
    return stores / "detector"


@pytest.fixture
def pictures(here: Path) -> Path:
    rng = np.random.default_rng(0)
    for label in ("ant", "bee", "cat"):
        (here / "pictures" / label).mkdir(parents=True)
        for i in range(4):
            pixels = rng.integers(0, 256, (12, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "pictures" / label / f"{i}.png")
    return here / "pictures"


EXTRACT = ("extract", "--model", "tiny_model_of_cli:small", "--size", 8, "--batch-size", 5)


# Help, version, usage


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(run: Run, command: str) -> None:
    text = run(command, "--help").stdout
    assert "Example" in text
    assert f"heat-ood {command}" in text


def test_the_overview_names_all_commands_and_exit_codes(run: Run) -> None:
    text = run("--help").stdout
    assert all(command in text for command in COMMANDS)
    assert all(code in text for code in ("0 done", "1 an error", "2 a wrong", "3 score", "130 interrupted"))


def test_the_help_of_fit_shows_the_defaults_of_the_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = run("fit", "--help").stdout
    assert f"({Residual().lam})" in text
    assert f"({HEAT().seed})" in text
    assert "--prior" in text
    assert "(None)" not in text, "the default has no list of priors: it goes by the features"
    assert "(0.05)" in run("score", "--help").stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout.strip() == f"heat-ood {__version__}"


def test_the_command_line_itself_does_not_import_torch() -> None:
    """So that help is quick as soon as the package is."""
    code = (
        "import sys, types; p = types.ModuleType('heat_ood'); p.__path__ = [sys.argv[1]]; sys.modules['heat_ood'] = p; "
        "import heat_ood.cli; print(sorted({'torch', 'sklearn', 'numpy', 'matplotlib', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(SOURCE / "heat_ood")], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("fit",),
        ("fit", "train"),
        ("fit", "train", "--out", "d", "--epochs", "many"),
        ("fit", "train", "--out", "d", "--method", "msp", "--lam", "3"),
        ("fit", "train", "--out", "d", "--no-residual", "--lam", "3"),
        ("extract", "--images", "x", "--out", "y"),
        ("evaluate", "d", "--id", "test", "--ood", "a=far", "--ood", "a=near"),
        ("evaluate", "d", "--id", "test", "--ood", "far", "--save", "table.xls"),
    ],
)
def test_a_wrong_command_line_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments, code=2)
    assert "Traceback" not in result.output
    assert result.stdout == ""


# Errors


def test_an_error_is_one_line_on_standard_error(run: Run) -> None:
    result = run("info", "absent", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: absent is neither a detector nor stored features.")
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_whole_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--debug", "info", "absent"], ["info", "absent"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit) == ("--debug" not in arguments)
    monkeypatch.setenv("HEAT_OOD_DEBUG", "1")
    assert not isinstance(CliRunner().invoke(app, ["info", "absent"]).exception, SystemExit)


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch, detector: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Energy, "load", broken)
    assert isinstance(CliRunner().invoke(app, ["info", str(detector)]).exception, ZeroDivisionError)


@pytest.mark.parametrize("command", ["extract", "fit", "calibrate", "score"])
def test_an_interruption_exits_with_130_and_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, detector: Path, command: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heat_ood.images.open_images", interrupt)
    monkeypatch.setattr(HEAT, "fit", interrupt)
    monkeypatch.setattr(Energy, "load", interrupt)
    arguments = {
        "extract": ["--model", "a:b", "--images", "x", "--out", "y"],
        "fit": ["train", "--out", "new"],
        "calibrate": ["detector", "held"],
        "score": ["detector", "test"],
    }
    result = CliRunner().invoke(app, [command, *arguments[command]])
    assert result.exit_code == 130
    assert result.stderr.startswith("interrupted; ")
    assert result.stdout == ""


# Extract


def test_extract_from_class_folders(run: Run, pictures: Path) -> None:
    result = run(*EXTRACT, "--images", pictures, "--out", "features/pictures", "--json")
    assert result["samples"] == 12
    assert result["classes"] == ["ant", "bee", "cat"]
    assert result["columns"] == {"avg": 8, "std": 8, "logits": 3}
    stored = Features.open("features/pictures")
    assert stored.labels is not None
    assert stored.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    record = json.loads(Path("features/pictures.json").read_text())
    assert record["files"][4] == "bee/0.png"
    assert record["classes"] == ["ant", "bee", "cat"]


def test_extract_shows_a_table_and_what_it_does_to_images(run: Run, pictures: Path) -> None:
    result = run(*EXTRACT, "--images", pictures, "--out", "f", "--mean", "0.5,0.5,0.5", "--std", "0.2,0.2,0.2")
    assert "avg 8, logits 3, std 8" in result.stdout
    assert "12 images of" in result.stderr
    assert "8 × 8" in result.stderr
    assert "mean (0.5, 0.5, 0.5)" in result.stderr


def test_extract_layers_head_limit_and_labels(run: Run, pictures: Path) -> None:
    options = ("--layers", "0", "--head", "4", "--limit", 5, "--no-labels")
    result = run(*EXTRACT, "--images", pictures, "--out", "f", *options, "--json")
    assert result["samples"] == 5
    assert not result["labels"]
    assert {"avg@0", "std@0"} <= set(result["columns"])


def test_extract_from_an_array_keeps_its_size(run: Run) -> None:
    np.savez("x.npz", images=np.zeros((4, 9, 9, 3), dtype=np.uint8), labels=np.arange(4))
    options = ("--model", "tiny_model_of_cli:small", "--images", "x.npz", "--out", "f", "--json")
    assert run("extract", *options)["preprocessing"]["size"] is None


def test_extract_uses_the_preprocessing_of_a_timm_model(run: Run, pictures: Path) -> None:
    pytest.importorskip("timm")
    model = ("extract", "--model", "timm:resnet10t?num_classes=3", "--images", pictures, "--json")
    own = run(*model, "--out", "a")["preprocessing"]
    assert own["size"] == [176, 176]
    assert own["interpolation"] == "bicubic"
    small = run(*model, "--out", "b", "--size", 32)["preprocessing"]
    assert small["size"] == [32, 32]
    assert small["crop_pct"] == 1.0


def test_extract_twice_opens_what_is_there_and_refuses_other_images(run: Run, pictures: Path) -> None:
    command = (*EXTRACT, "--images", pictures, "--out", "f")
    run(*command)
    before = Path("f/avg.npy").stat().st_mtime_ns
    run(*command)
    assert Path("f/avg.npy").stat().st_mtime_ns == before
    assert "preprocessing differ" in run(*command, "--mean", "0,0,0", code=1).stderr
    (pictures / "ant" / "0.png").rename(pictures / "ant" / "9.png")
    assert "files differ" in run(*command, code=1).stderr
    run(*command, "--overwrite")
    assert "ant/9.png" in Path("f.json").read_text()


def test_extract_leaves_a_foreign_file_beside_the_store_alone(run: Run, pictures: Path) -> None:
    Path("f.json").write_text('{"mine": 1}')
    assert "is in the way" in run(*EXTRACT, "--images", pictures, "--out", "f", code=1).stderr
    assert Path("f.json").read_text() == '{"mine": 1}'


def test_extract_names_an_unreadable_image_or_skips_it(run: Run, pictures: Path) -> None:
    (pictures / "bee" / "1.png").write_bytes(b"nothing")
    command = (*EXTRACT, "--images", pictures, "--out", "f", "--json")
    assert "bee/1.png cannot be read" in run(*command, code=1).stderr
    assert run(*command, "--skip-unreadable", "--overwrite")["samples"] == 11
    assert run(*command, "--skip-unreadable")["samples"] == 11


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "absent_z:f"), "There is no module"),
        (("--model", "tiny_model_of_cli:small", "--head", "nine"), "no layer 'nine'"),
        (("--model", "tiny_model_of_cli:small", "--device", "quantum"), "device 'quantum'"),
        (("--model", "tiny_model_of_cli:small", "--weights", "w.pt"), "There is no file"),
        (("--model", "tiny_model_of_cli:small", "--crop-pct", "7"), "crop_pct"),
    ],
)
def test_extract_with_what_cannot_be_used(run: Run, pictures: Path, options: tuple[str, ...], message: str) -> None:
    result = run("extract", "--images", pictures, "--out", "f", *options, code=1)
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")


def test_extract_after_a_failure_at_the_first_batch_needs_no_overwriting(run: Run, pictures: Path) -> None:
    command = ("extract", "--model", "tiny_model_of_cli:Odd", "--images", pictures, "--size", 8, "--out", "f", "--json")
    assert "--head none" in run(*command, code=1).stderr
    assert run(*command, "--head", "none")["columns"] == {"avg": 3, "std": 8}


def test_numbers_that_are_none_exit_with_2(run: Run, pictures: Path) -> None:
    run(*EXTRACT, "--images", pictures, "--out", "f", "--mean", "red,green,blue", code=2)


# Fit


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
    assert fitted.used == ("gmm", "energy")
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
    assert "note: HEAT uses gmm, nothing corrected; there is no logits, no std, no earlier layers" in said


def test_fit_with_contrast_and_a_checkpoint_goes_on_after_an_interruption(
    run: Run, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heat_ood.residual.training import Training

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


# Calibrate, score, evaluate


@pytest.mark.parametrize("per_class", [False, True])
def test_calibrate_saves_in_place(run: Run, detector: Path, per_class: bool) -> None:
    before = HEAT.load(detector).score(Features.open("test"))
    result = run("calibrate", detector, "test", *(["--per-class"] if per_class else []), "--json")
    assert result["calibration"] == 120
    after = HEAT.load(detector)
    assert torch.equal(after.score(Features.open("test")), before)
    assert after.calibration is not None
    assert after.calibration.per_class == per_class
    rows = run("score", detector, "far", "--fpr", 0.2, "--json")["rows"]
    assert [row["p_value"] for row in rows] == after.p_value(Features.open("far")).tolist()


def test_score_as_json_csv_and_a_table(run: Run, detector: Path) -> None:
    trained, far = HEAT.load(detector), Features.open("far")
    result = run("score", detector, "far", "--fpr", 0.1, "--csv", "out.csv", "--json")
    assert result["fpr"] == 0.1
    assert [row["score"] for row in result["rows"]] == trained.score(far).tolist()
    assert [row["ood"] for row in result["rows"]] == trained.predict(far, fpr=0.1).tolist()
    assert result["flagged"] == sum(row["ood"] for row in result["rows"])
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["p_value"]) for row in rows] == trained.p_value(far).tolist()
    text = run("score", detector, "far", "--limit-rows", 3).stdout
    assert "the 3 most unusual of 120 samples" in text
    assert f"{result['rows'][int(trained.score(far).argmax())]['score']:.4f}" in text
    assert "at a false-alarm rate of 0.05" in text


def test_score_before_calibration_gives_scores_alone(run: Run, stores: Path) -> None:
    HEAT(residual=None).fit(Features.open("train")).save("d")
    result = run("score", "d", "test", "--json")
    assert result["flagged"] is None
    assert set(result["rows"][0]) == {"sample", "score"}
    assert "not calibrated" in run("score", "d", "test").stderr
    for option in (("--fpr", 0.1), ("--fail-on-ood",)):
        assert "has not been calibrated" in run("score", "d", "test", *option, code=1).stderr


def test_score_can_fail_on_ood(run: Run, detector: Path) -> None:
    assert run("score", detector, "far", "--fail-on-ood", "--json", code=3)["flagged"] > 0
    held = Features.open("held")
    held[HEAT.load(detector).score(held).argmin().reshape(1)].save("usual")
    assert run("score", detector, "usual", "--fail-on-ood", "--json")["flagged"] == 0


def test_score_refuses_a_rate_that_cannot_be_reached_before_it_reads_anything(run: Run, detector: Path) -> None:
    assert "calibration samples" in run("score", detector, "absent", "--fpr", 1e-6, code=1).stderr


def test_evaluate(run: Run, detector: Path) -> None:
    sets = ("--id", "test", "--ood", "far=far", "--ood", "near")
    result = run("evaluate", detector, *sets, "--save", "a.md", "--save", "b.csv", "--json")
    assert [row["name"] for row in result["rows"]] == ["far", "near"]
    assert "fpr_at_95_id" in Path("a.md").read_text()
    assert Path("b.csv").read_text().startswith("name,")
    text = run("evaluate", detector, *sets).stdout
    assert f"{100 * result['average']['auroc']:.1f}" in text
    assert "fpr_at_95_ood ↓" in text


def test_images_are_scored_through_the_model_and_named(run: Run, pictures: Path) -> None:
    model = EXTRACT[1:]
    run("extract", *model, "--images", pictures, "--out", "f")
    run("fit", "f", "--out", "d", "--no-residual")
    run("calibrate", "d", pictures, *model)
    stored, live = (
        run("score", "d", "f", "--fpr", 0.1, "--json"),
        run("score", "d", pictures, *model, "--fpr", 0.1, "--json"),
    )
    assert stored["rows"] == live["rows"]
    assert live["rows"][4]["file"] == "bee/0.png"
    result = run("evaluate", "d", "--id", "f", "--ood", f"same={pictures}", *model, "--json")
    assert result["rows"][0]["auroc"] == 0.5
    assert "--model" in run("score", "d", pictures, "--fpr", 0.1, code=1).stderr
    other = ("--model", "tiny_model_of_cli:slow", "--size", 8)
    assert "two different models" in run("score", "d", pictures, *other, "--fpr", 0.1, code=1).stderr


@pytest.mark.parametrize("path", ["absent", "empty"])
def test_features_that_are_not_there(run: Run, detector: Path, path: str) -> None:
    Path("empty").mkdir()
    assert run("score", detector, path, code=1).stderr.startswith("error: ")


# Info, methods


def test_info_on_features(run: Run, pictures: Path) -> None:
    run(*EXTRACT, "--images", pictures, "--out", "f")
    result = run("info", "f", "--json")
    assert result["samples"] == 12
    assert result["class_names"] == ["ant", "bee", "cat"]
    assert result["fingerprint"] == Features.open("f").fingerprint
    assert "avg (8 × <f4)" in run("info", "f").stdout


def test_info_on_a_damaged_detector(run: Run, detector: Path) -> None:
    file = next(detector.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    assert "damaged or truncated" in run("info", detector, code=1).stderr


def test_methods(run: Run) -> None:
    assert {name: tuple(m["reads"]) for name, m in run("methods", "--json").items()} == methods()
    assert "free energy of the logits" in run("methods").stdout


def test_a_name_with_brackets_is_shown_as_it_is(run: Run, stores: Path) -> None:
    features(0).save("[bold]x")
    assert "[bold]x" in run("info", "[bold]x").stdout


# In a process of its own


def start(*arguments: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "heat_ood.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_extract_goes_on_after_ctrl_c(run: Run, here: Path, workers: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (160, 8, 8, 3), dtype=np.uint8)
    np.savez("x.npz", images=images, labels=np.arange(160) % 3)
    command = (
        "extract",
        "--model",
        "tiny_model_of_cli:slow",
        "--images",
        "x.npz",
        "--batch-size",
        2,
        "--workers",
        workers,
    )
    process = start(*command, "--out", "f")
    manifest = Path("f/manifest.json")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if manifest.exists() and json.loads(manifest.read_text())["count"] >= 6:
            break
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it too
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "interrupted; run the same command again to go on"
    assert "Traceback" not in err
    about = run("info", "f", "--json")
    assert not about["finished"]
    assert 6 <= about["samples"] < 160
    assert "goes on" in run("info", "f").stdout

    run(*command, "--out", "f")
    run(*command, "--out", "whole")
    for file in Path("whole").iterdir():
        assert (Path("f") / file.name).read_bytes() == file.read_bytes()


def test_json_alone_is_on_standard_output_and_a_closed_pipe_is_no_error(detector: Path) -> None:
    process = start("score", detector, "far", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["samples"] == 120

    process = start("score", detector, "far", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.wait(timeout=120)
    process.stderr.close()
