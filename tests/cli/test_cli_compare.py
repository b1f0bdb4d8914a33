"""``heat-ood compare``: the table, JSON, and what it refuses."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from heat_ood import HEAT, Features
from heat_ood.cli import app
from heat_ood.cli._commands.compare import of_rule
from heat_ood.energies import create_prior
from heat_ood.heat._choice import AGAINST_CONTRAST
from heat_ood.selection import RULES, compare, compare_bounds

pytestmark = pytest.mark.filterwarnings("ignore:The residual:RuntimeWarning")
QUICK = replace(AGAINST_CONTRAST, epochs=1, hidden=8, depth=2, batch=64)
CLASSES, D = 10, 6
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own with stored features of ten classes and of two kinds of distortion."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(compare_bounds.__kwdefaults__, "residual", QUICK)
    g = torch.Generator().manual_seed(0)
    y, means = torch.arange(400) % CLASSES, 2 * torch.rand(CLASSES, D, generator=g)
    avg = (means[y] + 0.3 * torch.randn(400, D, generator=g)).relu()
    Features(avg, labels=y, head=(means, None)).save("train")
    Features(avg[:80] + torch.rand(80, D, generator=g), labels=y[:80] % 2, head=(means, None)).save("contrast")


@pytest.fixture
def run() -> Run:
    """Run the command and check its exit code; with ``--json`` the parsed standard output."""

    def call(*arguments: Any, code: int = 0) -> Any:
        result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in arguments and code == 0 else result

    return call


def as_json(found: Any) -> dict[str, Any]:
    rows = {name: {task: vars(verdict) for task, verdict in row.items()} for name, row in found.rows.items()}
    numbers = {"mean_auroc": found.mean, "behind_the_best": found.worst, "best": found.best}
    return {"priors": list(found.priors), "rows": rows, **numbers}


def numbers_of(result: dict[str, Any]) -> dict[str, Any]:
    """Without the command that applies them."""
    return {name: value for name, value in result.items() if name not in ("applied", "command")}


def test_the_table_is_that_of_the_library(run: Run) -> None:
    found, result = compare(Features.open("train"), Features.open("contrast")), run("train", "--contrast", "contrast")
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    assert lines == [[cell.strip() for cell in line] for line in found.table[1:]]
    assert len(lines) == len(RULES) + len(found.priors)
    assert all(title in result.stdout for title in (*found.table[0], "energy, relative-gmm, gmm, by ID data alone"))
    assert f"best on average: {found.best}" in result.stderr


@pytest.mark.parametrize("options", [("--contrast", "contrast", "--folds", 2), ("--seed", 3), ("--folds", 3)])
def test_json_has_the_numbers_of_the_library(run: Run, options: tuple[Any, ...]) -> None:
    settings = dict(zip((o.removeprefix("--") for o in options[::2]), options[1::2], strict=True))
    contrast = Features.open(settings.pop("contrast")) if "contrast" in settings else None
    assert numbers_of(run("train", *options, "--json")) == as_json(
        compare(Features.open("train"), contrast, **settings)
    )


def test_bounds_without_classes(run: Run) -> None:
    found = compare_bounds(Features.open("train"), Features.open("contrast"), residual=QUICK, folds=0)
    assert numbers_of(run("train", "--contrast", "contrast", "--bounds", "--folds", 0, "--json")) == as_json(found)


def test_bounds(run: Run) -> None:
    found = compare_bounds(Features.open("train"), Features.open("contrast"), residual=QUICK, seed=2)
    options = ("train", "--contrast", "contrast", "--bounds", "--seed", 2)
    assert numbers_of(run(*options, "--json")) == as_json(found)
    result = run(*options)
    assert "unseen distortions" in result.stdout
    assert "unseen classes" in result.stdout
    assert "bound 0.25, odds 20" in result.stdout
    assert f"best on average: {found.best}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--bounds"), "--bounds judges by distortions. Pass --contrast, which heat-ood contrast makes."),
        (("train", "--folds", 0), "There is nothing to judge by: pass --contrast PATH, --folds NUMBER, or both."),
        (("train", "--folds", 6), "there are 10 classes for --folds 6. Use fewer folds, or none: --folds 0."),
        (("nowhere",), "nowhere"),
    ],
    ids=["bounds without contrast", "nothing to judge by", "too many folds", "no features"],
)
def test_what_cannot_be_used(run: Run, arguments: tuple[Any, ...], message: str) -> None:
    result = run(*arguments, code=1)
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not result.stdout


@pytest.mark.parametrize("options", [(), ("train", "--folds", -1), ("train", "--seed", -1), ("train", "--rule", "x")])
def test_a_wrong_command_line_exits_with_2(run: Run, options: tuple[Any, ...]) -> None:
    run(*options, code=2)


def test_the_defaults_are_the_library_s(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    rules, bounds = (inspect.signature(function).parameters for function in (compare, compare_bounds))
    text = run("--help").stdout
    assert f"[default: ({rules['folds'].default}; {bounds['folds'].default} with --bounds)]" in text
    assert f"[default: ({rules['seed'].default})]" in text
    assert rules["seed"].default == bounds["seed"].default


def test_the_help_shows_an_example(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "heat-ood compare features/train --contrast features/contrast" in run("--help").stdout
    assert "compare" in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize(
    "options", [(), ("--contrast", "contrast"), ("--contrast", "contrast", "--bounds", "--folds", 0)]
)
def test_it_ends_with_the_command_that_applies_what_it_found(
    run: Run, options: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heat_ood.heat._choice.AGAINST_CONTRAST", QUICK)
    monkeypatch.setattr("heat_ood.heat.AGAINST_CONTRAST", QUICK)
    found = run("train", *options, "--json")
    text = run("train", *options).stdout
    assert f"next: {found['command']}" in text.replace("\n", "")
    _, *arguments = shlex.split(found["command"])
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert HEAT.load("detector").fitted


@pytest.mark.parametrize("rule", [*RULES, "gmm alone"])
def test_every_rule_is_applied_or_known_to_have_no_option(rule: str) -> None:
    """What fit makes of the options scores samples in the order that the rule gives."""
    names = ("energy", "relative-gmm", "gmm")
    given = of_rule(rule, names)
    if rule in ("Fisher", "Fisher, decorrelated", "Stouffer", "decorrelated") or rule.startswith("one-sided"):
        assert given is None
        return
    assert given is not None
    line = ["fit", "train", "--out", "d", "--no-residual", *given]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    train = Features.open("train")
    detector = HEAT.load("d")
    fitting, held = detector.split(train)
    parts = {name: create_prior(name).fit(fitting) for name in names}
    energies, real = (
        torch.stack([parts[name].score(features).double() for name in names], 1) for features in (train, held)
    )
    wanted = energies[:, names.index("gmm")] if rule == "gmm alone" else RULES[rule](names, real)(energies)
    score = detector.score(train).double()
    assert torch.corrcoef(torch.stack([score, wanted]))[0, 1] > 0.99999
