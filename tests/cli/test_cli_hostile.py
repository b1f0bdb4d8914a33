"""What a command prints and writes of names that others chose, and what it says to files that are none."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from cli_data import EXTRACT, Run, features
from forks import Forks, forks
from heat_ood import HEAT, Features
from heat_ood.cli import app
from heat_ood.cli._output import dumped, emit_rows
from peaks import PEAK
from results_data import small

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::heat_ood.errors.Notice")
EVIL = (
    "\x1b[31mred",
    "[red]x[bold]",
    ":smile:",
    "a\rb",
    "\x9b31m",
    "\u202etxt.exe",
    "a\nb: like the data",
)
UNSEEN = [*map(chr, [*range(10), *range(11, 32), *range(127, 160), 0x202E])]


def obeyed(text: str) -> list[str]:
    return [character for character in UNSEEN if character in text]


def call(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own, whose output is bytes."""
    line = [sys.executable, "-m", "heat_ood", *map(os.fsencode, map(str, arguments))]
    return subprocess.run(line, capture_output=True, timeout=120, check=False, **options)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Commands in processes of their own, which have imported all that they need."""
    with forks(tmp_path_factory.mktemp("forks"), "heat_ood.cli", "heat_ood.guarding", "heat_ood.benchmarks") as made:
        yield made


@pytest.fixture
def named(run: Run, here: Path) -> Path:
    """Images whose names are not to be trusted, as features, and a detector of them."""
    (here / "named").mkdir()
    for name in (*EVIL, "=1+1", "-2", "@x", "plain"):
        pixels = np.random.default_rng(len(name)).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(here / "named" / f"{name}.png", "PNG")
    Image.fromarray(pixels).save(os.fsencode(here / "named") + b"/\xff.png", "PNG")
    run(*EXTRACT, "--images", "named", "--out", "f")
    HEAT(("gmm",), residual=None).fit(Features.open("f")).save("d")
    return here


def test_names_are_shown_and_not_obeyed(run: Run, named: Path) -> None:
    result = run("score", "d", "f", "--limit-rows", 50)
    assert obeyed(result.stdout) == []
    assert r"\x1b[31mred.png" in result.stdout
    assert "[red]x[bold].png" in result.stdout
    assert ":smile:.png" in result.stdout
    for name in ("\x1b[31mred", "a\nerror: no", "[/x]"):
        result = run("info", name, code=1)
        assert obeyed(result.stderr) == []
        assert len(result.stderr.splitlines()) == 1


def test_json_gives_the_names_back_and_obeys_none(named: Path) -> None:
    found = call("score", "d", "f", "--json")
    assert obeyed(found.stdout.decode()) == []
    names = {row["file"] for row in json.loads(found.stdout)["rows"]}
    assert names == set(os.listdir("named"))
    assert "\udcff.png" in names


def test_a_spreadsheet_runs_no_name(run: Run, named: Path) -> None:
    run("score", "d", "f", "--csv", "out.csv")
    with open("out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_name = {row["file"]: row for row in rows}
    assert {"'=1+1.png", "'-2.png", "'@x.png", "plain.png", r"\udcff.png"} <= set(by_name)
    assert len(rows) == len(os.listdir("named"))
    assert all(np.isfinite(float(row["score"])) for row in rows), "a number stays one, though it may be negative"


def test_names_that_are_no_text_pass_through_every_output(named: Path) -> None:
    ood = b"\xff=f"
    line = [sys.executable, "-m", "heat_ood", "evaluate", "d", "--id", "f", "--ood", ood]
    line += [part for suffix in ("md", "json", "csv") for part in ("--save", f"e.{suffix}")]
    assert subprocess.run(line, capture_output=True, timeout=120, check=False).returncode == 0
    assert call("report", "e.json", "--out", "r.html").returncode == 0
    for file in ("e.md", "e.json", "e.csv", "r.html"):
        assert r"\udcff" in Path(file).read_text(encoding="utf-8")
    assert json.loads(Path("e.json").read_text(encoding="utf-8"))["rows"][0]["name"] == "\udcff"


@pytest.mark.parametrize("name", ["[/red]", "\x1b[2J", "a|b"])
def test_evaluate_measures_a_table_with_any_name(run: Run, detector: Path, name: str) -> None:
    result = run("evaluate", detector, "--id", "test", "--ood", f"{name}=far")
    assert obeyed(result.stdout) == []


@pytest.mark.parametrize("what", ["pipe", "/dev/zero", "loop"])
@pytest.mark.parametrize(
    "command",
    [
        ("extract", "--model", "tiny_model_of_cli:small", "--images", None, "--out", "o"),
        ("extract", "--model", "tiny_model_of_cli:small", "--weights", None, "--images", ".", "--out", "o"),
        ("report", None),
        ("benchmark", None),
        ("score", "detector", None),
    ],
)
def test_no_command_waits_for_what_is_no_file(
    detector: Path, commands: Forks, what: str, command: tuple[Any, ...]
) -> None:
    path = {"pipe": "x.npz", "loop": "loop.npz"}.get(what, what)
    os.mkfifo("x.npz")
    os.symlink("loop.npz", "loop.npz")
    Image.new("RGB", (8, 8)).save("one.png")
    arguments = (path if part is None else part for part in command)
    found = commands.run("from heat_ood.cli import main\nmain()", *arguments)
    assert found.returncode == 1
    assert b"error: " in found.stderr
    assert b"Traceback" not in found.stderr


def test_special_files_of_a_folder_are_said_in_one_line(run: Run, pictures: Path) -> None:
    for i in range(3):
        os.mkfifo(pictures / "ant" / f"p{i}.png")
    result = run(*EXTRACT, "--images", pictures, "--out", "f")
    lines = [line for line in result.stderr.splitlines() if "skipped" in line]
    assert lines == [
        f"note: 3 entries of {pictures} are skipped: pipes, devices, or links that lead in a circle (ant/p0.png)."
    ]


def test_a_flood_on_standard_input_is_cut_off() -> None:
    zero = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
    found = call("check", "guard", "-", stdin=zero.stdout)
    zero.kill()
    zero.communicate()
    assert found.returncode == 1
    assert b"Standard input has more than" in found.stderr


@pytest.mark.parametrize("record", [{"files": 3}, {"files": [1] * 120}, {"images": []}, {"preprocessing": "x"}])
def test_a_record_beside_features_that_is_not_of_its_form(run: Run, detector: Path, record: dict[str, Any]) -> None:
    Path("far.json").write_text(json.dumps({"format": "heat-ood images", "version": 1, **record}))
    assert "file" not in run("score", detector, "far", "--json")["rows"][0]
    run("info", "far")
    run("evaluate", detector, "--id", "test", "--ood", "far=far", "--save", "e.json")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "\x00",
        "\ufeff{}",
        '{"format": "heat-ood/results", "version": 1e400}',
        "9" * 5000,
    ],
)
def test_results_that_are_none(run: Run, text: str) -> None:
    Path("r.json").write_text(text, encoding="utf-8")
    assert run("report", "r.json", code=1).stderr.startswith("error: ")
    Path("r.json").write_bytes(b"\xff\xfe" + text.encode("utf-8"))
    assert run("report", "r.json", code=1).stderr.startswith("error: ")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{b = " * 5_000,
        "title = 0x" + "f" * 9000,
        "title = " + "9" * 9000,
        "\udcff",
        "title = 1e999",
        "\x00",
    ],
)
def test_suites_that_are_none(run: Run, text: str) -> None:
    Path("s.toml").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert run("benchmark", "s.toml", code=1).stderr.startswith("error: ")


# Many samples


@pytest.mark.parametrize("n", [0, 1, 3])
def test_json_row_by_row_is_the_same_text(n: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"sample": i, "file": f"a\u2028\n{i}", "score": float("inf"), "ood": True} for i in range(n)]
    emit_rows({"detector": "d", "fpr": None}, "rows", iter(rows))
    assert capsys.readouterr().out == dumped({"detector": "d", "fpr": None, "rows": rows}) + "\n"


def peak(*arguments: str) -> int:
    """The most memory, in MB, that a command took."""
    code = PEAK + "import sys; from heat_ood.cli import app\ntry: app(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print(peak() // 1024, file=sys.stderr)"
    line = [sys.executable, "-c", code, *arguments]
    found = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300, check=True)
    return int(found.stderr.split()[-1])


def test_a_score_of_many_samples_takes_little_memory(detector: Path) -> None:
    """All rows at once took 201 MB for 200,000 samples, without p-values; made as they are printed, below 1 MB."""
    features(0, n=200_000).save("many")
    assert peak("score", str(detector), "many", "--json") - peak("score", str(detector), "test", "--json") < 100


def test_hostile_names_reach_no_reader_of_a_table(run: Run) -> None:
    evil = "</script><img src=x onerror=alert(1)> | [a](javascript:x) `b` \\input{x} \r\n=1"
    text = json.dumps(small().to_dict()).replace('"msp"', json.dumps(evil))
    Path("r.json").write_text(text)
    run("report", "r.json", "--out", "r.html")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    assert page.count("</script>") == 1
    assert CliRunner().invoke(app, ["report", "r.json", "--json"]).exit_code == 0
