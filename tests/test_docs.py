"""The docs say what was measured, of every method."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from heat_ood import methods
from heat_ood.results._results import Results

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
RESULTS = ROOT / "docs" / "results"
NUMBERS = r"(\d+\.\d / \d+\.\d)"
NETS = ("cifar10", "cifar100")
SHOWN = ("fpr_at_95_id", "auroc")
COMPOSED = {"heat": "| **`heat`** |", "plain composition": "| plain composition (`HEAT(residual=None)`) |"}


def stored(net: str, experiment: str) -> Results | None:
    """The results of a benchmark, where it has been run."""
    file = RESULTS / f"shared-{net}" / experiment / "results.json"
    return Results.load(file) if file.exists() else None


SUITES = {(net, experiment): stored(net, experiment) for net in NETS for experiment in ("main", "correction")}
EARLIER = json.loads((RESULTS / "methods.json").read_text()) if (RESULTS / "methods.json").exists() else {}
"""Where a benchmark has not been run yet, what an earlier script found."""


def measured(row: str, net: str) -> str | None:
    """FPR95 / AUROC of a row as printed, "gmm, corrected" or "knn, smooth" among them; None where there are none."""
    name, _, form = row.partition(", ")
    results = SUITES[net, "correction" if form else "main"]
    if results is None:
        runs = [found[row]["average"] for key, found in EARLIER.items() if key.startswith(f"{net}/") and row in found]
        return printed(*([run[metric] for run in runs] for metric in SHOWN)) if runs else None
    wanted = name if form == "smooth" else row
    for entry in results.measured:
        if entry.name == wanted:
            return printed(*([results.mean(entry, metric).mean] for metric in SHOWN))
    return None


def printed(*values: list[float]) -> str:
    return " / ".join(f"{100 * np.mean(v):.1f}" for v in values)


@pytest.mark.parametrize("name", [n for n in methods() if n != "heat"])
def test_every_method_is_explained(name: str) -> None:
    assert f"**`{name}`**" in TEXT
    assert f"| `{name}` |" in TEXT


@pytest.mark.parametrize("name", [n for n in methods() if n not in ("heat", "ensemble", "gmm-std", "gmm-joint")])
def test_the_numbers_in_the_text_are_the_measured_ones(name: str) -> None:
    start = TEXT.index(f"**`{name}`**")
    found = re.search(rf"Measured {NUMBERS} · {NUMBERS}", TEXT[start:])
    assert found is not None
    assert found.groups() == tuple(measured(name, net) for net in NETS)


@pytest.mark.parametrize(
    ("row", "before"), [("gmm-std", ", std "), ("gmm-joint", ", joint "), ("knn, smooth", "; smooth ")]
)
def test_so_are_those_of_other_forms(row: str, before: str) -> None:
    found = re.search(rf"{before}{NUMBERS} · {NUMBERS}", TEXT)
    assert found is not None
    assert found.groups() == tuple(measured(row, net) for net in NETS)


@pytest.mark.parametrize("name", [*(n for n in methods() if n not in ("heat", "ensemble")), *COMPOSED])
def test_the_numbers_in_the_table_are_the_measured_ones(name: str) -> None:
    (line,) = [line for line in TEXT.splitlines() if line.startswith(COMPOSED.get(name, f"| `{name}` |"))]
    own = "HEAT" if name == "heat" else name
    rows = [measured(row, net) for net in NETS for row in (own, f"{name}, corrected")]
    assert None not in rows[::2]
    assert re.findall(NUMBERS, line) == [row for row in rows if row is not None]


def readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_and_its_picture_show_the_results() -> None:
    script = readme()
    assert script.differences(script.stored()) == [], "run python benchmarks/readme.py"


def test_another_number_in_the_readme_would_be_found(tmp_path: Path) -> None:
    script = readme()
    for file in (script.FEW, script.FULL, script.PICTURE):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes((ROOT / file).read_bytes())
    found = script.stored()
    assert script.differences(found, tmp_path) == []
    text = (tmp_path / script.FEW).read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| **HEAT** |")]
    (tmp_path / script.FEW).write_text(text.replace(line, line.replace("±", "+")), encoding="utf-8")
    assert script.differences(found, tmp_path) == [str(script.FEW)]
    script.draw([found[0]], tmp_path / script.PICTURE)
    (tmp_path / script.FULL).unlink()
    expected = {str(script.FEW), str(script.FULL)} | ({str(script.PICTURE)} if len(found) > 1 else set())
    assert set(script.differences(found, tmp_path)) == expected
