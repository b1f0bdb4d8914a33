"""Files are written whole or not at all, are what they say they are, and hold values that come back."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import heat_ood
from heat_ood.errors import Argument, FormatError, InputError
from heat_ood.files import Format, is_part, locked, plain, replacing, restored, write

# Writing


@pytest.mark.parametrize("content", ["text, ∞\n", b"\x00\xff"])
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_a_file_is_written_or_replaced(tmp_path: Path, content: str | bytes, durable: bool, old: bool) -> None:
    file = tmp_path / "new" / "folder" / "it.txt"
    if old:
        write(file, "something longer, that was there before")
    write(file, content, durable=durable)
    assert file.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert [f.name for f in file.parent.iterdir()] == ["it.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException], begun: bool, old: bool
) -> None:
    file = tmp_path / "it.txt"
    if old:
        file.write_text("old")

    def fail() -> None:
        with replacing(file) as part:
            assert part.parent == tmp_path
            assert is_part(part.name, "it.txt")
            if begun:
                part.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert [(f.name, f.read_text()) for f in tmp_path.iterdir()] == ([("it.txt", "old")] if old else [])


def test_what_a_kill_left_is_written_over(tmp_path: Path) -> None:
    """By the names of today and of version 0.1; what is not surely a writer's stays."""
    for name in ("it.txt.part", "it.txt.tmp", ".it.txt.0123456789ab.part"):
        (tmp_path / name).write_text("half of something that is longer")
    for name in ("it.txt.bak", "other.txt.part", ".it.txt.old.part"):
        (tmp_path / name).write_text("the user's own")
    write(tmp_path / "it.txt", "new")
    assert {f.name for f in tmp_path.iterdir()} == {"it.txt", "it.txt.bak", "other.txt.part", ".it.txt.old.part"}
    assert (tmp_path / "it.txt").read_text() == "new"


def test_a_link_that_was_planted_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    for name in ("it.txt.part", "it.txt", ".it.txt.0123456789ab.part"):
        (tmp_path / name).symlink_to(tmp_path / "theirs")
    write(tmp_path / "it.txt", "new")
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / "it.txt").is_symlink()


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "it.txt"
    with replacing(file) as part:
        part.write_text("first")
        write(file, "second")
        assert part.exists()
    assert file.read_text() == "first", "the last to finish wins"
    assert [f.name for f in tmp_path.iterdir()] == ["it.txt"]


def test_one_writer_of_a_folder_at_a_time(tmp_path: Path) -> None:
    def ask() -> None:
        with locked(tmp_path / "it", wait=False):
            pass

    with locked(tmp_path / "it"), pytest.raises(InputError, match="Another process"):
        ask()
    ask()
    assert list((tmp_path / "it").iterdir()) == []


@pytest.mark.parametrize("durable", [False, True])
def test_durable_waits_for_the_disk_before_the_old_file_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    calls: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        assert os.fstat(number).st_size == 3
        calls.append("fsync")
        sync(number)

    def replaced(*paths: Any) -> None:
        calls.append("replace")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write(tmp_path / "it.txt", "new", durable=durable)
    assert calls == ["fsync", "replace"] if durable else ["replace"]


SCRIPT = """
import sys
from pathlib import Path
from heat_ood.files import write

number = 0
while True:
    write(Path(sys.argv[1]), f"{number} " * 200_000, durable=number % 2 == 0)
    if number == 0:
        print("begun", flush=True)
    number += 1
"""


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(heat_ood.__file__).parents[1])}
    file, chance = tmp_path / "it.txt", random.Random(0)
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(file)], stdout=subprocess.PIPE, text=True, env=environment
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            time.sleep(chance.uniform(0.0, 0.05))
            child.send_signal(signal.SIGKILL)
        numbers = file.read_text().split(" ")
        assert len(numbers) == 200_001
        assert len(set(numbers[:-1])) == 1, "one of the contents, whole"


# Headers

PAGES = Format("heat-ood pages", 2)


def check(content: Any) -> dict[str, Any]:
    return PAGES.check(content, "a.json", "Pass a page.", "Print it again.")


def test_a_header_that_holds() -> None:
    content = PAGES.stamp({"text": "…"})
    assert list(content) == ["format", "version", "text"]
    assert check(content) is content
    assert PAGES.unstamp(content) == {"text": "…"}
    assert check(content | {"version": 1})["version"] == 1


@pytest.mark.parametrize("content", [None, 3, "heat-ood pages", [], {}, {"format": "other", "version": 1}, {"x": 1}])
def test_something_else(content: Any) -> None:
    with pytest.raises(FormatError, match=r"a\.json is not of the format 'heat-ood pages'\. Pass a page\."):
        check(content)


@pytest.mark.parametrize("version", [None, True, False, 0, -1, "1", "2", 1.0, [1]])
def test_a_version_that_is_none(version: Any) -> None:
    with pytest.raises(FormatError, match=r"a\.json is damaged: its version is .*\. Print it again\."):
        check({"format": "heat-ood pages", "version": version})


@pytest.mark.parametrize("version", [3, 99, 10**30])
def test_a_newer_version(version: int) -> None:
    with pytest.raises(FormatError, match=rf"a\.json has format version {version}.*up to 2.*pip install -U heat-ood"):
        check({"format": "heat-ood pages", "version": version})


def test_a_remedy_can_hold_arguments() -> None:
    remedy = ("Print it with ", Argument("ink", "red"), ".")
    for content in ({}, {"format": "heat-ood pages"}):
        with pytest.raises(FormatError) as caught:
            PAGES.check(content, "a.json", remedy, remedy)
        assert str(caught.value).endswith(". Print it with ink='red'.")
        assert caught.value.spelt(lambda a: f"--{a.name} {a.value}").endswith(". Print it with --ink red.")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000])
def test_a_file_that_is_not_json(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.json is damaged: it is not JSON \(.*\)\. Print it again\."):
        PAGES.read(file, "Pass a page.", "Print it again.")
    with pytest.raises(FormatError, match=r"The text is damaged: it is not JSON .*\. Print it again\."):
        PAGES.parse(content, "The text", "Pass a page.", "Print it again.")


def test_a_file_with_a_header_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.json", json.dumps(PAGES.stamp({"text": "∞"}), ensure_ascii=False))
    assert PAGES.read(tmp_path / "a.json", "", "") == PAGES.stamp({"text": "∞"})
    with pytest.raises(FileNotFoundError):
        PAGES.read(tmp_path / "b.json", "", "")


# Values as JSON, and back


@dataclass(frozen=True)
class Point:
    """Two numbers."""

    x: float
    y: float = 0.0


class Own:
    """Says itself what it is in JSON."""

    def __init__(self, number: int) -> None:
        self.number = number

    def to_dict(self) -> dict[str, Any]:
        return {"own": self.number, "at": (1, 2)}

    @classmethod
    def from_dict(cls, data: Any) -> Own:
        if "own" not in data:
            raise FormatError("it is not one")
        return cls(data["own"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Line:
    """Something of everything."""

    name: str
    points: tuple[Point, ...]
    ends: tuple[float, int]
    dashed: bool
    width: float | None = None
    marks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    intervals: dict[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    own: Own | None = None


LINE = Line(
    "a", (Point(1.0, -math.inf), Point(2.5)), (0.5, 3), True, 2.0, {"m": (1, 2), "n": ()}, {"i": math.inf}, own=Own(4)
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        ("text", "text"),
        (0.1, 0.1),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (np.float32(0.5), 0.5),
        (np.float64(-np.inf), "-inf"),
        (np.float16(np.nan), "nan"),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.inf], [2.0, 3.0]]), [[1.0, "inf"], [2.0, 3.0]]),
        (torch.tensor([1, 2]), [1, 2]),
        (torch.tensor(0.5), 0.5),
        (Path("a") / "b", "a/b"),
        (torch.float16, "torch.float16"),
        ((1, (2, [3])), [1, [2, [3]]]),
        ({1: {"a": math.nan}}, {"1": {"a": "nan"}}),
        (Point(1.0, math.inf), {"x": 1.0, "y": "inf"}),
        ([Own(2)], [{"own": 2, "at": [1, 2]}]),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_plain_keeps_the_order_and_the_nesting() -> None:
    found = plain(LINE)
    assert list(found) == ["name", "points", "ends", "dashed", "width", "marks", "intervals", "about", "own"]
    assert found["points"] == [{"x": 1.0, "y": "-inf"}, {"x": 2.5, "y": 0.0}]
    assert found["own"] == {"own": 4, "at": [1, 2]}


@pytest.mark.parametrize("value", [LINE, Line("", (), (1.0, 2), False)])
def test_what_was_plain_is_restored(value: Line) -> None:
    assert restored(Line, json.loads(json.dumps(plain(value))), "line") == value


def test_a_default_need_not_be_there() -> None:
    content = {key: plain(LINE)[key] for key in ("name", "points", "ends", "dashed")}
    assert restored(Line, content, "line") == Line(LINE.name, LINE.points, LINE.ends, True)


def test_numbers_are_of_the_type_that_is_said() -> None:
    found = restored(Point, {"x": 1, "y": "nan"}, "point")
    assert type(found.x) is float
    assert math.isnan(found.y)
    assert restored(Line, plain(LINE) | {"about": {"a": ["inf", {"b": "-inf", "c": "text"}]}}, "line").about == {
        "a": [math.inf, {"b": -math.inf, "c": "text"}]
    }


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "list": (lambda d: [d], "line is not a Line"),
    "unknown": (lambda d: d | {"colour": 1}, "line has an unknown 'colour'"),
    "missing": (lambda d: {k: v for k, v in d.items() if k != "dashed"}, "line lacks 'dashed'"),
    "text": (lambda d: d | {"name": 3}, "line.name is 3, not text"),
    "no text": (lambda d: d | {"name": None}, "line.name is None, not text"),
    "bool": (lambda d: d | {"dashed": 1}, "line.dashed is 1, not true or false"),
    "number": (lambda d: d | {"width": "wide"}, "line.width is 'wide', not a number"),
    "bool for number": (lambda d: d | {"width": True}, "line.width is True, not a number"),
    "number for list": (lambda d: d | {"points": 3}, "line.points is not a list"),
    "object for list": (lambda d: d | {"points": {}}, "line.points is not a list"),
    "inner": (lambda d: d | {"points": [{"x": 1.0}, {"x": None}]}, r"line.points\[1\].x is None, not a number"),
    "inner record": (lambda d: d | {"points": [7]}, r"line.points\[0\] is not a Point"),
    "too few": (lambda d: d | {"ends": [1.0]}, "line.ends has 1 items, not 2"),
    "too many": (lambda d: d | {"ends": [1.0, 2, 3]}, "line.ends has 3 items, not 2"),
    "whole": (lambda d: d | {"ends": [1.0, 2.0]}, r"line.ends\[1\] is 2.0, not a whole number"),
    "bool for whole": (lambda d: d | {"marks": {"m": [True]}}, r"line.marks.m\[0\] is True, not a whole number"),
    "list for mapping": (lambda d: d | {"marks": [1]}, "line.marks is not a mapping"),
    "its own error": (lambda d: d | {"own": {}}, r"line.own cannot be read \(it is not one\)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_as_its_type_says_is_an_error_that_says_where(damage: str) -> None:
    change, message = DAMAGES[damage]
    with pytest.raises(FormatError, match=f"^{message}$"):
        restored(Line, change(plain(LINE)), "line")
