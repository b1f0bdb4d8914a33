"""A command is one file: it registers itself, it is found, and what is said of it stands with it."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from heat_ood.cli import _commands
from heat_ood.cli._app import build
from heat_ood.cli._model_options import ModelOptions, with_model_options
from heat_ood.cli._registry import COMMANDS, command, defaults_of, discover

FOLDER = Path(_commands.__path__[0])
FILES = sorted(file for file in FOLDER.glob("*.py") if file.name != "__init__.py")
SOURCE = Path(__file__).parents[2] / "src"
TODAY = (
    *(
        "demo",
        "protect",
        "check",
        "serve",
        "extract",
        "merge",
        "contrast",
        "compare",
        "fit",
        "calibrate",
        "score",
        "export",
    ),
    *("evaluate", "info", "methods", "benchmark", "report", "train-backbone"),
)
NEW = '''
from typing import Annotated, Any

import typer

from heat_ood.cli._registry import command
from heat_ood.errors import Argument, InputError


@command(order=55, interrupted="half of it is there", defaults=lambda: {"size": 42}, arguments={"amount": "size"})
def count_sheep(
    size: Annotated[int | None, typer.Option(help="How many.")] = None,
    fail: Annotated[str, typer.Option(help="How it ends.")] = "",
) -> None:
    """Count sheep."""
    if fail == "interrupted":
        raise KeyboardInterrupt
    if fail:
        raise InputError("There are too many. Pass ", Argument("amount", 3), ".")
    typer.echo("one, two")
'''


@pytest.fixture
def with_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[typer.Typer]:
    """The command line of a package that has one file more, and nothing else that is new."""
    (tmp_path / "count_sheep.py").write_text(NEW)
    monkeypatch.setattr(_commands, "__path__", [*_commands.__path__, str(tmp_path)])
    yield build()
    del COMMANDS["count-sheep"], sys.modules[f"{_commands.__name__}.count_sheep"], _commands.count_sheep  # type: ignore[attr-defined]


def test_a_new_command_is_a_new_file(with_a_new_file: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(with_a_new_file, list(arguments))

    listed = [line.split()[1] for line in run("--help").stdout.splitlines() if line.startswith("│ ")]
    assert [name for name in listed if not name.startswith("-")] == [*TODAY[:9], "count-sheep", *TODAY[9:]]
    assert "[default: (42)]" in run("count-sheep", "--help").stdout
    assert run("count-sheep").stdout == "one, two\n"
    interrupted = run("count-sheep", "--fail", "interrupted")
    assert (interrupted.exit_code, interrupted.stderr) == (130, "interrupted; half of it is there\n")
    failed = run("count-sheep", "--fail", "now")
    assert (failed.exit_code, failed.stderr) == (1, "error: There are too many. Pass --size 3.\n")


def test_every_file_registers_the_one_command_that_it_is_named_after() -> None:
    modules = {file.stem: f"{_commands.__name__}.{file.stem}" for file in FILES}
    found = {name.replace("-", "_"): known.run.__module__ for name, known in discover().items()}
    assert found == modules
    for stem, module in modules.items():
        assert importlib.import_module(module).__all__ == [stem]


def test_no_command_is_named_elsewhere() -> None:
    """Neither imported nor listed: as a string of its own a name would be a list's."""
    for file in FOLDER.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert "_commands." not in f"{node.module}."
            if isinstance(node, ast.Constant) and file.parent != FOLDER:
                assert node.value not in TODAY


def test_the_help_lists_them_as_ever() -> None:
    assert tuple(discover()) == TODAY


def test_two_commands_of_one_name_are_refused() -> None:
    def fit() -> None: ...

    with pytest.raises(ValueError, match=r"There is a command fit already, in heat_ood.cli._commands.fit"):
        command(order=1)(fit)
    assert COMMANDS["fit"].run is not fit


@pytest.mark.parametrize("name", TODAY)
def test_what_stands_with_a_command_is_about_it(name: str) -> None:
    """Defaults and other names are of parameters that it has."""
    known = COMMANDS[name]
    names = set(inspect.signature(known.run).parameters)
    assert set(known.arguments.values()) <= names
    assert known.interrupted
    if known.defaults is not dict:
        assert names & set(known.defaults())


def test_parsing_and_plain_help_import_nothing_heavy() -> None:
    """A wrong command line, and the help of a command that shows no default of the library."""
    for arguments in (["--help"], ["info", "--help"], ["fit", "--epochs", "many"], ["extract", "--out"]):
        code = (
            "import sys\nfrom heat_ood.cli import main\n"
            f"sys.argv = ['heat-ood', *{arguments}]\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "print(sorted({'torch', 'sklearn', 'numpy', 'matplotlib', 'PIL'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCE)
        assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_options_of_the_model_are_those_of_its_class() -> None:
    seen: list[Any] = []

    @with_model_options
    def look(model_options: ModelOptions, other: int = 3) -> None:
        seen.append((model_options, other))

    look(**defaults_of(look) | {"model": "timm:x", "head": "fc"})
    assert seen == [(ModelOptions(model="timm:x", head="fc"), 3)]
