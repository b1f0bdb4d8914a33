"""The numbers that the HEAT paper printed, as entries that stand beside ours."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..evaluation import AVERAGE, Evaluation, Row
from ..metrics import METRICS
from ..results import Cost, Entry, Run

__all__ = ["SEED", "paper_costs", "paper_doubts", "paper_entries"]

SEED = -1
"""Of what was not run here."""


@dataclass
class Printed:
    """What the paper printed of one method, metrics by set; the average is a set of its own."""

    labels: list[str]
    numbers: dict[str, dict[str, float]]


def paper_entries(suite: str, experiment: str, sets: Sequence[str] | None = None) -> tuple[Entry, ...]:
    """The paper's rows for an experiment on a suite, NaN where it has no number; none where it has no rows.

    The methods have the names that they have here: the paper's "EL" is ``energy``.

    Args:
        suite: as "cifar10".
        experiment: as "main".
        sets: keep only these OOD sets; the average goes where one of the paper's is left out.

    Example:
        >>> heat = paper_entries("cifar10", "main")[-1]
        >>> heat.name, heat.kind, heat.runs[0].evaluation["svhn"].auroc
        ('HEAT', 'paper', 0.998)
    """
    covered = {name for table in data()["tables"] if table["suite"] == suite for name in table.get("sets", ())}
    kept = covered if sets is None else covered & set(sets)

    def row(name: str, found: Printed, **place: Any) -> Entry | None:
        return entry_of(name, found, kept, average=kept == covered, **place)

    entries = [row(name, found) for name, found in printed(suite, experiment).items()]
    for point in data()["points"]:
        if suite in point["suites"] and experiment == point["experiment"]:
            found = printed(suite, point["from"]["experiment"])[point["from"]["row"]]
            entries.append(row(point["name"], found, series=point["series"], x=point["x"]))
    return tuple(entry for entry in entries if entry is not None)


def paper_costs() -> tuple[Cost, ...]:
    """The paper's cost of each part, on its own hardware; shares are of HEAT's with the backbone."""
    rows = data()["cost"]["rows"]
    return tuple(Cost(name, value, value / rows["HEAT"]) for name, value in rows.items())


def paper_doubts() -> tuple[str, ...]:
    """Where the paper does not agree with itself by more than rounding, one line each."""
    return tuple(f"{doubt['label']}, {doubt['row']}: {doubt['note']}" for doubt in data()["doubts"])


@cache
def data() -> dict[str, Any]:
    """The file as it is."""
    return tomllib.loads(files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))


def printed(suite: str, experiment: str) -> dict[str, Printed]:
    """All tables of an experiment joined, by method; the first table to print a number is the one that counts."""
    found: dict[str, Printed] = {}
    for table in data()["tables"]:
        if (table["suite"], table["experiment"]) != (suite, experiment):
            continue
        for name, line in table["rows"].items():
            row = found.setdefault(data()["names"][name], Printed([], {}))
            row.labels.append(table["label"])
            for key, numbers in cells(table, line).items():
                row.numbers.setdefault(key, numbers)
    return found


def cells(table: Mapping[str, Any], line: str) -> dict[str, dict[str, float]]:
    """The numbers of a row by set, as fractions; of groups only the average of all is kept."""
    body, _, last = line.partition("|")
    by_set = dict(zip(table.get("sets", ()), body.split(), strict="sets" in table))
    if table.get("last", AVERAGE) == AVERAGE:
        by_set[AVERAGE] = last.strip()
    metrics = table["metrics"]
    return {
        key: {m: round(float(n) / 100, 4) for m, n in zip(metrics, cell.split("/"), strict=True)}
        for key, cell in by_set.items()
    }


def entry_of(name: str, found: Printed, sets: set[str], average: bool, **place: Any) -> Entry | None:
    """None where nothing of the row is kept."""
    rows = tuple(row_of(key, numbers) for key, numbers in found.numbers.items() if key in sets)
    mean = found.numbers.get(AVERAGE, {}) if average else {}
    if not rows and not mean:
        return None
    evaluation = Evaluation(rows, row_of(AVERAGE, mean))
    return Entry(name, "paper", (Run(SEED, evaluation),), {"table": ", ".join(found.labels)}, **place)


def row_of(name: str, numbers: Mapping[str, float]) -> Row:
    metrics: dict[str, Any] = {metric: numbers.get(metric, math.nan) for metric in METRICS}
    return Row(name, 0, 0, **metrics)
