"""The library's errors speak Python; the command line shows the same ones with options, by data."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import heat_ood.cli
from cli_data import EXTRACT, Run, features
from heat_ood import HEAT, Energy, Extractor, Features, HeatError, InputError, create
from heat_ood.cli import app
from heat_ood.cli._registry import COMMANDS
from heat_ood.cli._spelling import speller
from heat_ood.errors import Argument
from heat_ood.models import load_model
from heat_ood.selection import compare

ROOM = Path(heat_ood.cli.__file__).parent


def spelt(command: str, argument: Argument, **values: Any) -> str:
    return speller(COMMANDS[command], values)(argument)


@pytest.mark.parametrize(
    ("command", "argument", "expected"),
    [
        ("extract", Argument("overwrite", True), "--overwrite"),
        ("extract", Argument("overwrite"), "--overwrite"),
        ("calibrate", Argument("per_class", False), "no --per-class"),
        ("extract", Argument("head", False), "--head none"),
        ("extract", Argument("head"), "--head NAME"),
        ("extract", Argument("head", "fc"), "--head fc"),
        ("extract", Argument("layers", "stages"), "--layers stages"),
        ("extract", Argument("layers", ("a", "b")), "--layers a,b"),
        ("extract", Argument("batch_size", 8), "--batch-size 8"),
        ("extract", Argument("weights"), "--weights PATH"),
        ("compare", Argument("folds", 0), "--folds 0"),
        ("compare", Argument("folds"), "--folds NUMBER"),
        ("score", Argument("fpr", 0.5), "--fpr 0.5"),
        ("fit", Argument("priors", ("gmm", "energy")), "--prior gmm --prior energy"),
        ("fit", Argument("priors"), "--prior NAME"),
        ("contrast", Argument("kinds", ("blur",)), "--kind blur"),
        ("compare", Argument("kinds"), "--kind NAME"),  # of heat-ood contrast
        ("score", Argument("overwrite", True), "--overwrite"),  # of heat-ood extract
        ("score", Argument("dtype", torch.float16), "dtype=torch.float16"),
        ("score", Argument("features"), "features=…"),  # no option of its own, nor of a step before it
        ("extract", Argument("folds", 0), "folds=0"),
    ],
)
def test_options(command: str, argument: Argument, expected: str) -> None:
    assert spelt(command, argument, method="heat") == expected


@pytest.mark.parametrize(
    ("method", "argument", "expected"),
    [
        ("knn", Argument("k", 5), "--set k=5"),
        ("knn", Argument("soft", False), "--set soft=false"),
        ("knn", Argument("limit", 0.5), "--set limit=0.5"),
        ("vim", Argument("dimension"), "--set dimension=VALUE"),
        ("gmm@layer3", Argument("columns", ("avg", "std")), "--set columns=avg,std"),
        ("msp", Argument("k", 5), "k=5"),
        ("nonsense", Argument("k", 5), "k=5"),
    ],
)
def test_settings_of_the_method(method: str, argument: Argument, expected: str) -> None:
    assert spelt("fit", argument, method=method) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("normalise", False), ("normalise", True), ("shrinkage", 0.25), ("clusters", 4), ("columns", ("avg", "std"))],
)
def test_what_is_advised_is_read_back(run: Run, stores: Path, name: str, value: object) -> None:
    option, text = spelt("fit", Argument(name, value), method="gmm").split()
    run("fit", "train", "--method", "gmm", option, text, "--out", "d")
    assert Energy.load("d").settings[name] == value


# The same error, here and there


def python(call: Callable[[], object]) -> str:
    with pytest.raises(HeatError) as caught:
        call()
    return str(caught.value)


def test_other_data_in_a_finished_store(run: Run, pictures: Path) -> None:
    run(*EXTRACT, "--images", pictures, "--out", "f")
    Path("f.json").unlink()
    told = run(*EXTRACT, "--images", pictures, "--out", "f", "--limit", 5, code=1).stderr
    assert told.endswith("Choose another path for other data, or pass --overwrite.\n")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    images = torch.rand(5, 3, 8, 8)
    loader = torch.utils.data.DataLoader(images, batch_size=5)  # type: ignore[arg-type]
    text = python(lambda: Extractor(model).extract(loader, "f"))
    assert text.endswith("Choose another path for other data, or pass overwrite=True.")
    assert text.replace("overwrite=True", "--overwrite") in told


def test_another_model(run: Run, pictures: Path) -> None:
    run(*EXTRACT, "--images", pictures, "--out", "f")
    told = run(*EXTRACT, "--images", pictures, "--out", "f", "--layers", "0", code=1).stderr
    assert told.endswith("Choose another path, or pass --overwrite.\n")


def test_damaged_features_are_extracted_again_whoever_finds_them(run: Run, detector: Path) -> None:
    Path("test/avg.npy").write_bytes(b"nothing")
    assert "Extract the features again, with overwrite=True." in python(lambda: Features.open("test"))
    assert "Extract the features again, with --overwrite." in run("score", detector, "test", code=1).stderr


def test_a_head_that_is_not_found(run: Run, pictures: Path) -> None:
    odd = ("extract", "--model", "tiny_model_of_cli:Odd", "--images", pictures, "--size", 8, "--out", "f")
    told = run(*odd, code=1).stderr
    assert "Say which one is the head with --head NAME " in told
    assert "or pass --head none to take the model's output itself" in told
    text = python(lambda: Extractor(load_model("tiny_model_of_cli:Odd"))(torch.rand(2, 3, 8, 8)))
    assert "Say which one is the head with head=… " in text
    assert "or pass head=False to take the model's output itself" in text


def test_a_rate_that_cannot_be_reached(run: Run, detector: Path) -> None:
    told = run("score", detector, "test", "--fpr", 1e-6, code=1).stderr
    assert told.endswith("or ask for --fpr NUMBER of at least 1/121.\n")
    text = python(lambda: HEAT.load(detector).predict(Features.open("test"), fpr=1e-6))
    assert text.endswith("or ask for fpr=… of at least 1/121.")


def test_folds(run: Run, stores: Path) -> None:
    told = run("compare", "train", "--folds", 9, code=1).stderr
    assert "there are 3 classes for --folds 9. Use fewer folds, or none: --folds 0." in told
    text = python(lambda: compare(Features.open("train"), folds=9))
    assert "there are 3 classes for folds=9. Use fewer folds, or none: folds=0." in text


def test_priors_that_features_lack(run: Run, here: Path) -> None:
    whole = features(0)
    Features(avg=whole.avg, labels=whole.labels, head=whole.head).save(here / "bare")
    told = run("fit", "bare", "--out", "d", "--prior", "gmm", "--prior", "gmm-std", "--prior", "energy", code=1).stderr
    assert told.endswith("that there are features for: --prior gmm --prior energy.\n")
    text = python(lambda: HEAT(("gmm", "gmm-std", "energy")).fit(Features.open("bare")))
    assert text.endswith("that there are features for: priors=('gmm', 'energy').")


@pytest.mark.parametrize(
    ("method", "setting", "value", "advice"), [("knn", "k", 500, ("k", 120)), ("vim", "dimension", 9, ("dimension", 9))]
)
def test_settings(run: Run, stores: Path, method: str, setting: str, value: int, advice: tuple[str, int]) -> None:
    told = run("fit", "train", "--method", method, "--set", f"{setting}={value}", "--out", "d", code=1).stderr
    text = python(lambda: create(method, **{setting: value}).fit(Features.open("train")))
    name, number = advice
    assert f"--set {name}={number} " in told
    assert f"{name}={number} " in text
    assert "--set" not in text


def test_two_sources_of_weights(run: Run, pictures: Path) -> None:
    pytest.importorskip("timm")
    Path("w.safetensors").write_bytes(b"")
    model = ("--model", "timm:resnet10t", "--weights", "w.safetensors", "--pretrained")
    told = run("extract", *model, "--images", pictures, "--out", "f", code=1).stderr
    assert told.endswith("Leave out --pretrained or --weights PATH.\n")
    text = python(lambda: load_model("timm:resnet10t", "w.safetensors", pretrained=True))
    assert text.endswith("Leave out pretrained=True or weights=….")


def test_warnings_too(run: Run, pictures: Path) -> None:
    pytest.importorskip("timm")
    model = ("--model", "timm:resnet10t?num_classes=3", "--size", 32)
    told = run("extract", *model, "--images", pictures, "--out", "f").stderr
    assert "note: timm:resnet10t has random weights, so its features mean little. Pass --weights PATH or " in told
    with pytest.warns(UserWarning, match=r"mean little. Pass weights=… or pretrained=True\."):
        load_model("timm:resnet10t?num_classes=3")


def test_an_error_keeps_its_words(run: Run, stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that looks like an argument is text."""

    def refuse(*_: object) -> None:
        raise InputError("overwrite=True and head=False stand here as words; pass ", Argument("overwrite", True), ".")

    monkeypatch.setattr(Features, "open", refuse)
    result = CliRunner().invoke(app, ["fit", "train", "--out", "d"])
    assert result.stderr == "error: overwrite=True and head=False stand here as words; pass --overwrite.\n"


def test_no_message_is_changed_by_replacing_text() -> None:
    """``str.replace`` takes text for both; that of data classes and of paths does not."""
    for file in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
                texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                assert texts in ([], ["_", "-"]), f"{file.name}:{node.lineno}"


def test_the_library_does_not_speak_of_options() -> None:
    """In the files whose errors have arguments; a command that is to be run may be written out."""
    package = ROOM.parent
    rooms = ("models", "features", "energies", "residual", "heat", "selection")
    for file in [f for room in rooms for f in (package / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " --" in f" {node.value}":
                assert "heat-ood " in node.value, f"{file.name}:{node.lineno}"
