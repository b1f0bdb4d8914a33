"""The README: its commands run in order, on data that the test makes; it is short, and narrow."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

from heat_ood.cli import app
from reader_data import NETS, furnish, trained

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
SHELL = re.findall(r"(?:^    [^\n]+\n)+", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL), flags=re.MULTILINE)
COMMANDS = [
    shlex.split(line)
    for block in SHELL
    for line in re.sub(r"\\\n\s*", " ", block).splitlines()
    if line.strip().startswith("heat-ood ")
]
pytestmark = [
    pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a reader of the README has it."""
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    return tmp_path


def test_the_commands_run_in_order(here: Path) -> None:
    assert [command[1] for command in COMMANDS] == ["protect", "check"]
    for command in COMMANDS:
        result = CliRunner().invoke(app, command[1:])
        assert result.exit_code in ((0, 3) if command[1] == "check" else (0,)), result.output + repr(result.exception)
    assert "photo.png" in result.output
    assert "dark" in result.output or "bright" in result.output, "the predicted class by its name"


def test_the_python_runs(here: Path) -> None:
    space: dict[str, Any] = {}
    exec(NETS, space)
    model = trained(space["small"]())

    def loader(n: int) -> DataLoader[Any]:
        labels = torch.arange(n) % 2
        x = (torch.rand(n, 3, 12, 12) * 120 + 60 * labels.view(-1, 1, 1, 1)) / 255
        return DataLoader(TensorDataset((x - 0.45) / 0.22, labels), batch_size=16)

    names = {
        "model": model,
        "train_loader": loader(120),
        "held_out_loader": loader(80),
        "images": torch.rand(3, 3, 12, 12),
    }
    assert len(PYTHON) == 2
    for block in PYTHON:
        exec(block, names)
    assert names["p_value"].shape == (3,)
    assert names["detector"].calibrated


def test_it_is_short_and_narrow() -> None:
    assert len(TEXT.split()) < 700
    wide = [line for line in TEXT.splitlines() if len(line) > 100 and not line.startswith("|")]
    assert wide == []


def test_what_it_says_of_the_methods() -> None:
    from heat_ood.energies import methods
    from heat_ood.registry import METHODS

    own = [name for name in methods() if METHODS[name].make.__module__.startswith("heat_ood.") and name != "heat"]
    assert f"{len(own)} methods" in TEXT
