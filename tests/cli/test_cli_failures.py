"""No traceback: the user's model, the disk and paths fail in one line that says what and where."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from typer.testing import CliRunner

from cli_data import EXTRACT, Run
from heat_ood import HEAT
from heat_ood.cli import app
from heat_ood.errors import ModelError

BROKEN = """
import torch
from torch import nn

class Grey(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    def forward(self, x):
        return self.net(x)

class Sized(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4), nn.ReLU(), nn.Linear(4, 3))
    def forward(self, x):
        return self.net(x)

class Lookup(Grey):
    def forward(self, x):
        return {}["absent"]

class Stopped(Grey):
    def forward(self, x):
        raise KeyboardInterrupt
"""


@pytest.fixture
def broken(here: Path) -> None:
    (here / "broken_of_cli.py").write_text(BROKEN)
    sys.modules.pop("broken_of_cli", None)


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Grey", "RuntimeError: Given groups=1"),
        ("Sized", "RuntimeError: mat1 and mat2"),
        ("Lookup", "KeyError: 'absent'"),
    ],
)
@pytest.mark.parametrize("layers", [(), ("--layers", "stages")])
def test_what_the_model_raises_is_one_line(
    run: Run, pictures: Path, name: str, cause: str, layers: tuple[str, ...]
) -> None:
    command = ("extract", "--model", f"broken_of_cli:{name}", "--size", 8, "--images", pictures, "--out", "f", *layers)
    result = run(*command, code=1)
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"error: The model raised {cause}")
    assert "on a batch of shape (12, 3, 8, 8)" in error
    assert "Traceback" not in result.stderr
    whole = CliRunner().invoke(app, ["--debug", *map(str, command)]).exception
    assert isinstance(whole, ModelError)
    assert isinstance(whole, RuntimeError)
    assert type(whole.__cause__).__name__ == cause.partition(":")[0]


@pytest.mark.usefixtures("broken")
def test_methods_that_run_the_model_themselves_say_it_too(run: Run, pictures: Path) -> None:
    model = ("--model", "broken_of_cli:Grey", "--size", 8)
    error = run("fit", pictures, "--method", "odin", *model, "--out", "d", code=1).stderr
    assert "error: The model raised RuntimeError" in error


@pytest.mark.usefixtures("broken")
def test_an_interruption_within_the_model_stays_one(run: Run, pictures: Path) -> None:
    command = ("extract", "--model", "broken_of_cli:Stopped", "--size", 8, "--images", pictures, "--out", "f")
    assert "interrupted" in run(*command, code=130).stderr


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FIT = ("fit", "train", "--out", "made/d", "--no-residual")


@pytest.mark.parametrize("again", [(), ("--overwrite",)])
@pytest.mark.parametrize("when", ["first file", "second file", "killed"])
def test_a_fit_that_fails_does_not_block_the_next(
    run: Run, stores: Path, monkeypatch: pytest.MonkeyPatch, when: str, again: tuple[str, ...]
) -> None:
    write, calls = Path.write_bytes, list[Path]()

    def failing(self: Path, data: bytes) -> int:
        calls.append(self)
        if when == "killed":
            write(self, data[:10])
            os.rename(self, self.with_name("kept"))
            full()
        if len(calls) == ("first file", "second file").index(when) + 1:
            write(self, data[:10])
            full()
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", failing)
        error = run(*FIT, code=1).stderr.splitlines()[-1]
    assert "No space left on device" in error
    assert "made/d" in error
    if when == "killed":  # as if the process had gone before it could tidy up
        (stores / "made/d/kept").rename(calls[0])
    else:
        assert not list((stores / "made/d").rglob("*.part"))
    run(*FIT, *again)
    assert HEAT.load("made/d").fitted


def test_a_folder_of_something_else_stays(run: Run, stores: Path) -> None:
    (stores / "made/d").mkdir(parents=True)
    (stores / "made/d/thesis.tex").write_text("years of work")
    assert "holds no detector" in run(*FIT, "--overwrite", code=1).stderr


@pytest.mark.parametrize("place", ["file/d", "d"])
def test_a_path_that_cannot_be_written_is_named(run: Run, stores: Path, pictures: Path, place: str) -> None:
    Path("file").write_text("a file")
    Path("d").write_text("a file")
    for command in (("fit", "train", "--no-residual"), (*EXTRACT, "--images", pictures)):
        error = run(*command, "--out", place, code=1).stderr.splitlines()[-1]
        assert error.startswith("error: ")
        assert place.partition("/")[0] in error.split("error: ")[1]


def test_a_full_disk_is_named_while_features_are_written(
    run: Run, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heat_ood.features._store import Writer

    monkeypatch.setattr(Writer, "append", full)
    error = run(*EXTRACT, "--images", pictures, "--out", "made/f", code=1).stderr.splitlines()[-1]
    assert error == "error: [Errno 28] No space left on device, while writing to made/f or to temporary files"


@pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning")
def test_a_full_disk_is_named_while_a_checkpoint_is_written(
    run: Run, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the same command goes on, whatever a kill left of the file."""

    def full(_: Any, part: Path, *__: Any) -> None:
        Path(part).write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    command = ("fit", "train", "--out", "made/d", "--prior", "gmm", "--epochs", 2, "--checkpoint", "ckpt")
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        error = run(*command, code=1).stderr.splitlines()[-1]
    assert error == "error: [Errno 28] No space left on device: 'ckpt/gmm.safetensors'"
    assert not list(Path("ckpt").iterdir())
    for name in ("gmm.safetensors.part", ".gmm.safetensors.0123456789ab.part"):
        Path("ckpt", name).write_bytes(b"half")
    run(*command)
    assert HEAT.load("made/d").fitted
    assert not Path("ckpt", "gmm.safetensors").exists()


def test_a_device_that_is_full_really() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full: run it on Linux")
    code = "from heat_ood.cli import main; import sys; sys.argv = ['heat-ood', 'methods', '--json']; main()"
    with open("/dev/full", "w") as out:
        done = subprocess.run([sys.executable, "-c", code], stdout=out, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "Is titel meant to be it?"),
        ("[[ood]]", "[[odd]]", "Is odd meant to be it?"),
        ("group =", "grop =", "ood[0].grop is not a key. Did you mean group?"),
    ],
)
def test_a_misspelt_key_of_a_suite_is_named(run: Run, here: Path, old: str, new: str, message: str) -> None:
    suite = (files("heat_ood") / "benchmarks/suites/cifar10.toml").read_text(encoding="utf-8")
    assert old in suite
    (here / "mine.toml").write_text(suite.replace(old, new))
    (error,) = run("benchmark", "mine.toml", code=1).stderr.splitlines()
    assert error.startswith(f"error: {here / 'mine.toml'}: ")
    assert message in error
