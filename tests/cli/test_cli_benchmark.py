"""``heat-ood benchmark``: what it lists, what it writes, and that a kill changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from heat_ood.benchmarks import suites
from heat_ood.cli import app
from heat_ood.results._results import Results
from quick import hurry

pytestmark = pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")  # a short training may be in vain
SOURCES = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1] / "helpers")]
SUITE = """
title = "small images"
[id]
name = "noise"
calibration = 20
train = { reader = "npz", path = "train.npz" }
test = { reader = "npz", path = "test.npz" }
[backbone]
title = "a small network"
model = "tiny_model_of_cli_benchmark:small"
preprocessing = { mean = [0.5, 0.5, 0.5], std = [0.25, 0.25, 0.25] }
layers = ["1"]
[[ood]]
name = "dark"
reader = "npz"
path = "dark.npz"
[[ood]]
name = "lost"
reader = "npz"
path = "lost.npz"
get = "https://example.org/lost"
"""
MODEL = """
from torch import nn
def small():
    first, second = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
"""
QUICK = """
from quick import hurry
hurry()
"""
CHOSEN = [part for name in ("msp", "energy", "gmm", "vim", "knn") for part in ("--method", name)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "small.toml").write_text(SUITE)
    (tmp_path / "tiny_model_of_cli_benchmark.py").write_text(MODEL)
    (tmp_path / "sitecustomize.py").write_text(QUICK)  # for processes of their own
    hurry(monkeypatch.setattr)
    for name, n, high in (("train", 120, 256), ("test", 60, 256), ("dark", 30, 99)):
        images = rng.integers(0, high, (n, 8, 8, 3), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=images, labels=np.arange(n) % 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["benchmark", *map(str, arguments)])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def test_without_a_suite_it_lists_them() -> None:
    listed = json.loads(run("--json").stdout)
    assert set(listed) == set(suites())
    assert "openood-v1.5-cifar10" in run().stdout


def test_it_writes_tables_results_and_a_report(here: Path) -> None:
    result = run("small.toml", *CHOSEN, "--seed", 0, "--seed", 1, "--cache", here / "cache", "--out", here / "out")
    assert {f.name for f in (here / "out").iterdir()} == {
        *(f"results.{suffix}" for suffix in ("json", "md", "csv", "tex")),
        "report.html",
    }
    found = Results.load(here / "out" / "results.json")
    assert [e.name for e in found.measured][-2:] == ["plain composition", "HEAT"], "they stand in every table"
    assert [len(e.runs) for e in found.measured] == [2] * 7
    assert "lost" in (here / "out" / "results.md").read_text()
    assert "missing: lost; get https://example.org/lost" in result.output
    for entry in found.measured:
        assert entry.name in result.stdout
    assert "AUROC" in result.stdout


def test_the_default_folder_is_named_after_suite_and_experiment(here: Path) -> None:
    run("small.toml", "--method", "msp", "--seed", 0, "--cache", here / "cache")
    assert (here / "results" / "small" / "main" / "report.html").is_file()


def test_bad_arguments_are_named(here: Path) -> None:
    assert "no suite 'cifar11'" in run("cifar11", code=1).output
    assert "no experiment 'nothing'" in run("small.toml", "--experiment", "nothing", code=1).output
    assert "no method 'nonsense'" in run("small.toml", "--method", "nonsense", "--cache", "c", code=1).output


def table(folder: Path) -> list[Any]:
    """All that a table shows: rows, sets, metrics."""
    found = Results.load(folder / "results.json")
    return [(e.name, [(r.seed, r.evaluation, r.alarms) for r in e.runs]) for e in found.entries]


def test_killed_at_any_point_it_ends_with_the_same_table(here: Path) -> None:
    arguments = [*CHOSEN, "--method", "gradnorm", "--method", "gen", "--seed", "0", "--seed", "1"]
    run("small.toml", *arguments, "--cache", here / "whole-cache", "--out", here / "whole")
    command = [sys.executable, "-m", "heat_ood.cli", "benchmark", "small.toml", *arguments]
    command += ["--cache", str(here / "cache"), "--out", str(here / "parts")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*SOURCES, str(here)]), "OMP_NUM_THREADS": "1"}
    for lines in (
        1,
        3,
        5,
        6,
        9,
    ):  # so many lines of progress, then the axe; the second falls while images are distorted
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        for _ in range(lines):
            assert process.stderr.readline(), "it ended before it could be killed"
        process.kill()
        process.communicate()
        assert not (here / "parts").exists()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert table(here / "parts") == table(here / "whole")
