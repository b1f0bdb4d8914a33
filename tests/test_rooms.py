"""The house: rooms in one order, each left by its door alone, and nothing public by accident."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import rooms  # noqa: E402

FILES = sorted(rooms.PACKAGE.rglob("*.py"))
PUBLIC_SUBMODULES = {("benchmarks", "backbone"), ("benchmarks", "digits")}
"""Modules within a room that users name: ``heat_ood.benchmarks.backbone:resnet34_cifar10`` is a model's name."""


def public_modules() -> Iterator[ModuleType]:
    """What a user may import: no part of its name is underscored."""
    for file in FILES:
        parts = file.relative_to(rooms.PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if not any(part.startswith("_") for part in parts):
            yield importlib.import_module(".".join(["heat_ood", *parts]))


# The order


def test_every_room_has_its_place() -> None:
    assert set(rooms.graph()) == set(rooms.ORDER)


def test_no_room_imports_from_its_right() -> None:
    """Eagerly, lazily, for a type or by a string: all of them are read from the code."""
    wrong = [
        f"{one.file.name}:{one.line} imports {one.room}"
        for one in rooms.all_imports()
        if one.room in rooms.ORDER and rooms.ORDER.index(one.room) > rooms.ORDER.index(rooms.room_of(one.file))
    ]
    assert wrong == []


def test_no_room_goes_through_the_front_door() -> None:
    wrong = [
        f"{one.file.name}:{one.line} imports {one.name}"
        for one in rooms.all_imports()
        if one.room not in rooms.ORDER and one.name != "__version__" and rooms.room_of(one.file) != "cli"
    ]
    assert wrong == []


def test_no_room_reaches_past_the_door_of_another() -> None:
    wrong = [
        f"{one.file.name}:{one.line} imports {one.room}.{one.inner}"
        for one in rooms.all_imports()
        if one.room != rooms.room_of(one.file) and one.inner
    ]
    assert wrong == []


def test_underscored_names_stay_in_their_room() -> None:
    wrong = [
        f"{one.file.name}:{one.line} imports {one.name} of {one.room}"
        for one in rooms.all_imports()
        if one.room != rooms.room_of(one.file) and one.name.startswith("_") and one.name != "__version__"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("from .heat import HEAT", "heat"),
        ("def f():\n    from .heat import HEAT", "heat"),
        ("if TYPE_CHECKING:\n    from .heat._detector import HEAT", "heat"),
        ("import heat_ood.heat", "heat"),
        ('import_module("heat_ood.heat")', "heat"),
        ('MODEL = "heat_ood.heat._detector:HEAT"', "heat"),
        ("from . import heat", "heat"),
        ("from heat_ood.heat import HEAT", "heat"),
    ],
)
def test_the_graph_sees_every_kind_of_import(tmp_path: Path, text: str, room: str) -> None:
    package = tmp_path / "heat_ood"
    package.mkdir()
    (package / "errors.py").write_text(text)
    assert [one.room for one in rooms.imports(package / "errors.py", package)] == [room]


# What is public


def test_few_names_are_public_and_all_are_documented() -> None:
    names = {}
    for module in public_modules():
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            names[f"{getattr(value, '__module__', module.__name__)}.{name}"] = value
            if inspect.isroutine(value) or inspect.isclass(value):
                assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"
    assert 60 < len(names) < 170


def test_what_is_public_says_so() -> None:
    """A module that a user may import has ``__all__``; what it defines beside is underscored."""
    for module in public_modules():
        if module.__name__ in ("heat_ood", "heat_ood.__main__") or module.__name__.endswith("__main__"):
            continue
        assert hasattr(module, "__all__"), module.__name__
        own = Path(str(module.__file__))
        for name in defined(own):
            assert name in module.__all__ or name.startswith("_"), f"{module.__name__}.{name}"


def defined(file: Path) -> Iterator[str]:
    """The names that a file defines at its top, imports aside."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_modules_of_a_room_are_underscored() -> None:
    for file in FILES:
        parts = file.relative_to(rooms.PACKAGE).with_suffix("").parts
        if len(parts) > 1 and parts[-1] not in ("__init__", "__main__") and parts not in PUBLIC_SUBMODULES:
            assert any(part.startswith("_") for part in parts), file


@pytest.mark.parametrize(
    ("room", "old", "new"),
    [
        ("energies", "EnergyLogits", "heat_ood.energies.FreeEnergy"),
        ("energies", "PrincipalResidual", "heat_ood.energies.SubspaceDistance"),
        ("energies", "ResidualFlow", "heat_ood.energies.GaussianFlow"),
        ("benchmarks", "Results", "heat_ood.results.Results"),
        ("benchmarks", "Curve", "heat_ood.evaluation.Curve"),
        ("benchmarks", "build_backbone", "heat_ood.benchmarks.backbone.build_backbone"),
    ],
)
def test_old_names_still_work_and_say_the_new_ones(room: str, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} now"):
        value = getattr(importlib.import_module(f"heat_ood.{room}"), old)
    module, _, name = new.rpartition(".")
    assert value is getattr(importlib.import_module(module), name)


def test_files_hold_one_idea() -> None:
    long = {file.name: count for file in FILES if (count := len(file.read_text("utf-8").splitlines())) > 400}
    assert long == {}


def test_nothing_is_left_open_in_the_code() -> None:
    for file in FILES:
        with tokenize.open(file) as source:
            comments = [t.string for t in tokenize.generate_tokens(source.readline) if t.type == tokenize.COMMENT]
        assert not [c for c in comments if any(word in c for word in ("TODO", "FIXME", "XXX"))], file
