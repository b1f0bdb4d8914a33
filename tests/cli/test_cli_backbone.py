"""``heat-ood train-backbone``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cifar_data import write_cifar10
from heat_ood.benchmarks import _training as training
from heat_ood.benchmarks._training import TrainingRecipe
from heat_ood.cli import app

MODULE = "tiny_network_of_backbone_cli"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = "from torch import nn\ndef small(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))\n"
    (tmp_path / f"{MODULE}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(MODULE, None)
    write_cifar10(tmp_path / "data" / "cifar-10-batches-bin")
    return tmp_path


def run(*arguments: Any, code: int = 0) -> Any:
    common = ("train-backbone", "data", "--out", "out", "--model", f"{MODULE}:small", "--epochs", 2, "--batch-size", 5)
    result = CliRunner().invoke(app, [str(a) for a in (*common, *arguments)])
    assert result.exit_code == code, result.output
    return result


def test_it_says_how_to_load_what_it_trained() -> None:
    out = run().stdout
    assert f"--model {MODULE}:small --weights out/model.safetensors" in out
    assert "% of the test images" in out


def test_json() -> None:
    found = json.loads(run("--json", "--lr", 0.01, "--weight-decay", 0, "--seed", 3).stdout)
    assert found == json.loads(Path("out/backbone.json").read_text())
    expected = TrainingRecipe(model=f"{MODULE}:small", epochs=2, batch_size=5, lr=0.01, weight_decay=0.0, seed=3)
    assert TrainingRecipe(**found["recipe"]) == expected


def test_an_error_is_one_line() -> None:
    result = run("--dataset", "cifar100", code=1)
    assert result.stderr.splitlines()[-1].startswith("error: cifar100 (train) is not there")
    assert "cifar-100-binary.tar.gz" in result.stderr


def test_an_interruption_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "augment", interrupted)
    assert "run the same command again" in run(code=130).stderr


def test_help_shows_the_librarys_defaults() -> None:
    text = CliRunner().invoke(app, ["train-backbone", "--help"], env={"COLUMNS": "200"}).output
    for value in ("cifar10", "timm:resnet34", "200", "0.1", "128", "0.0005"):
        assert f"[default: ({value})]" in text
