"""The docs say what was measured, of every method."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from heat_ood import methods

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "docs" / "results" / "methods.json").read_text(encoding="utf-8"))
NUMBERS = r"(\d+\.\d / \d+\.\d)"


def measured(row: str, net: str) -> str:
    runs = [found[row]["average"] for key, found in RESULTS.items() if key.startswith(f"{net}/") and row in found]
    return " / ".join(f"{100 * np.mean([run[m] for run in runs]):.1f}" for m in ("fpr_at_95_id", "auroc"))


@pytest.mark.parametrize("name", [n for n in methods() if n != "heat"])
def test_every_method_is_explained(name: str) -> None:
    assert f"**`{name}`**" in TEXT
    assert f"| `{name}` |" in TEXT


@pytest.mark.parametrize("name", [n for n in methods() if n not in ("heat", "ensemble", "gmm-std", "gmm-joint")])
def test_the_numbers_in_the_text_are_the_measured_ones(name: str) -> None:
    start = TEXT.index(f"**`{name}`**")
    found = re.search(rf"Measured {NUMBERS} · {NUMBERS}", TEXT[start:])
    assert found is not None
    assert found.groups() == (measured(name, "cifar10"), measured(name, "cifar100"))


@pytest.mark.parametrize("name", [n for n in methods() if n not in ("heat", "ensemble")])
def test_the_numbers_in_the_table_are_the_measured_ones(name: str) -> None:
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{name}` |")]
    corrected = f"{name}, corrected"
    rows = [name, corrected] if corrected in RESULTS["cifar10/0"] else [name]
    assert re.findall(NUMBERS, line) == [measured(row, net) for net in ("cifar10", "cifar100") for row in rows]
