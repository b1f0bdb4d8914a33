"""The command line: what it prints, what it exits with, and that an interruption breaks nothing."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cli_data import EXTRACT, Run, features
from heat_ood import HEAT, Energy, Features, Residual, __version__, methods
from heat_ood.cli import app
from heat_ood.cli._registry import COMMANDS
from heat_ood.features import read_manifest

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")
SOURCE = Path(__file__).parents[2] / "src"


# Help, version, usage


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(run: Run, command: str) -> None:
    text = run(command, "--help").stdout
    assert "Example" in text
    assert f"heat-ood {command}" in text


def test_the_overview_names_all_commands_and_exit_codes(run: Run) -> None:
    text = run("--help").stdout
    assert all(command in text for command in COMMANDS)
    assert all(code in text for code in ("0 done", "1 an error", "2 a wrong", "3 check, or score", "130 interrupted"))


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


def test_the_package_can_be_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["heat_ood", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("heat_ood", run_name="__main__")
    assert not end.value.code
    assert __version__ in capsys.readouterr().out


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
    assert result.stderr.startswith("error: absent is neither a guard, nor a detector, nor stored features.")
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
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job and its children ignore it
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


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
        if manifest.exists() and read_manifest(manifest.parent).count >= 6:
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
