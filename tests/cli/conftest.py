"""A folder with a model, features, a detector and pictures, and a way to run commands in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from cli_data import MODEL, Run, features
from heat_ood import HEAT, Features, Residual
from heat_ood.cli import app


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
    """Run a command and check its exit code, None for 0 or 3; with ``--json`` the parsed standard output."""

    def call(*arguments: Any, code: int | None = 0) -> Any:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code in ((0, 3) if code is None else (code,)), result.output
        return json.loads(result.stdout) if "--json" in arguments and code in (None, 0, 3) else result

    return call


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
