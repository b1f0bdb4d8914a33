"""Results that no run has: each is refused when it is read, or can be shown in every form."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heat_ood.errors import FormatError, HeatError
from heat_ood.report import lost, report, summary
from heat_ood.results import Results, read_results
from heat_ood.results._tables import to_csv, to_latex, to_markdown
from results_data import rich, small

NASTY = [
    *(
        "nan",
        "inf",
        "-inf",
        1e308,
        -1e308,
        5e-324,
        -1,
        0,
        2,
        10**400,
        -(10**400),
        2**63,
        True,
        None,
        "",
        "\ud800",
        "x" * 999,
    ),
    *("<script>", [], {}, [1], {"a": 1}, "=1+1", "|`*[x](y)", "\x1b[31m", 1.5, "1e999", [["a"]], "average", "HEAT"),
]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places(value[key], (*place, key))


def within(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


@pytest.mark.parametrize("seed", range(6))
def test_mutated_results_are_refused_or_shown(seed: int, tmp_path: Path) -> None:
    rng, known = random.Random(seed), small().to_dict()
    kinds = defaultdict(list)
    for place in places(known):
        kinds[tuple("#" if isinstance(key, int) else key for key in place)].append(place)
    outcomes = set()
    for _ in range(60):
        content = copy.deepcopy(known)
        content["experiment"] = rng.choice(["main", "lambda", "beta", "low-data", "cost", "evaluation", "correction"])
        for _ in range(rng.choice([1, 1, 2])):
            place = rng.choice(kinds[rng.choice(list(kinds))])
            try:
                within(content, place[:-1])[place[-1]] = rng.choice(NASTY)
            except (KeyError, IndexError, TypeError):  # changed before
                continue
        (tmp_path / "r.json").write_text(json.dumps(content))
        try:
            found = read_results(tmp_path / "r.json")
        except HeatError:
            outcomes.add("refused")
            continue
        for show in (report, summary, lost, to_csv, to_markdown, to_latex):
            show(found)
        outcomes.add("shown")
    assert outcomes == {"refused", "shown"}


def changed(place: tuple[Any, ...], value: Any) -> str:
    content = rich().to_dict()
    within(content, place[:-1])[place[-1]] = value
    return json.dumps(content)


RUN = ("entries", 0, "runs", 0)
CURVE = (*RUN, "curves", "svhn")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((*RUN, "evaluation", "average", "auroc"), 1e308),
        ((*RUN, "evaluation", "average", "auroc"), 10**400),
        ((*RUN, "evaluation", "average", "n_id"), 10**400),
        ((*RUN, "evaluation", "rows", 0, "n_ood"), -1),
        ((*RUN, "evaluation", "rows", 0, "fpr_at_95_id"), "inf"),
        ((*RUN, "seed"), 10**400),
        ((*RUN, "fit_seconds"), "inf"),
        ((*RUN, "alarms"), {"x": 0.5}),
        ((*RUN, "alarms"), {"nan": 0.5}),
        ((*CURVE, "edges", 0), 1e308),
        ((*CURVE, "edges", 0), "nan"),
        ((*CURVE, "id_density", 0), "inf"),
        ((*CURVE, "id_accepted", 3), 7),
        (("entries", 0, "x"), "nan"),
    ],
)
def test_numbers_that_no_run_has_are_refused(place: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(FormatError, match="The text is damaged: "):
        Results.from_json(changed(place, value))


def test_too_many_entries_are_refused_at_once() -> None:
    content = small().to_dict()
    one = content["entries"][0]
    content["entries"] = [{**one, "name": str(i)} for i in range(20_001)]
    with pytest.raises(FormatError, match="more than 20,000"):
        Results.from_json(json.dumps(content))


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / "r.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    for read in (read_results, Results.load):
        with pytest.raises(FormatError, match="not a regular file"):
            read(path)


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "r.json", "wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(FormatError, match="at most 134,217,728"):
        read_results(tmp_path / "r.json")


# Names


EVIL = "=cmd|x'</script><b>[a](javascript:1) `c` \\input{/etc/passwd}\r\n\u2028% $x_1^2$ & ~ \x1b[31m"


@pytest.fixture
def evil() -> Results:
    text = json.dumps(small().to_dict()).replace('"msp"', json.dumps(EVIL)).replace('"near"', json.dumps("@" + EVIL))
    return Results.from_json(text)


def test_csv_runs_no_name(evil: Results) -> None:
    for row in csv.reader(io.StringIO(to_csv(evil))):
        assert len(row) == 24
        for cell in row:
            assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
            assert not cell.startswith("-") or float(cell) < 0


def test_markdown_keeps_its_tables_and_makes_no_link(evil: Results) -> None:
    text = to_markdown(evil)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {line.replace("\\\\", "").replace("\\|", "").count("|") for line in rows}
    assert len(widths) <= 2, "two tables"
    assert "](javascript" not in text.replace("\\](", "")
    assert "<b>" not in text.replace("\\<", "")


def test_a_command_is_code_and_nothing_else() -> None:
    content = small().to_dict() | {"about": {"command": "a`[x](javascript:1)`b"}}
    assert "Made by `` a`[x](javascript:1)`b ``." in to_markdown(Results.from_json(json.dumps(content)))


def test_latex_holds_no_command_of_a_name(evil: Results) -> None:
    text = to_latex(evil)
    body = [line for line in text.split("\n") if not line.startswith("%")]
    assert not any("\\input" in line for line in body)
    assert not any(character in text for character in "\r\x0b\x0c\x1b\u2028\x85")
    assert all(
        line.startswith(("%", "\\", " &", "Method")) or line.rstrip().endswith("\\\\") for line in text.split("\n")[:-1]
    )


def test_the_page_holds_no_tag_of_a_name(evil: Results) -> None:
    page = report(evil)
    assert page.count("</script>") == 1
    assert "<b>[a]" not in page
