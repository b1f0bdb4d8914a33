"""The tables and details of a report on one experiment; nothing where there is nothing to show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..evaluation import HEADERS, Row
from ..results import (
    FULL_NAMES,
    SHOWN,
    Column,
    Entry,
    Loss,
    Missing,
    Results,
    Value,
    better,
    champion,
    columns,
    grid,
    group_title,
    losses,
    percent,
    title_of,
)
from ._blocks import box, has_lines, row_class, section, switch
from ._markup import Raw, el
from ._words import lost

__all__ = ["details", "losses_of", "tables"]

BOTH = (
    "fpr_at_95_id, the paper's FPR95, is the share of OOD accepted when 95 % of ID is; fpr_at_95_ood, OpenOOD v1.5's, "
    "is the share of ID rejected when 95 % of OOD is caught."
)
ORDER = ("fpr_at_95_id", "auroc", "fpr_at_95_ood", "aupr_in", "aupr_out")


# Tables


def tables(results: Results) -> Raw | None:
    """A sortable table for each metric."""
    if not results.entries:
        return None
    if results.experiment == "evaluation":
        return by_set(results)
    panes = {HEADERS[metric]: box(metric_table(results, metric), FULL_NAMES[metric]) for metric in ORDER}
    note = (
        "Percent, mean over seeds ± their standard deviation; the interval is the bootstrap's, over test samples. "
        "Bold: the best measured number of a column; underlined: the second. Click a heading to sort. "
    ) + BOTH
    kinds = "All points" if has_lines(results) else "All methods"
    return section(kinds if results.measured else "The paper's numbers", switch("metric", panes), note=note)


def by_set(results: Results) -> Raw:
    """All metrics of one method: a row for each set, and their average."""
    run = results.measured[0].runs[0].evaluation
    heads = [
        el("th", HEADERS[m], scope="col", data_first="ascending" if better(m) < 0 else "descending") for m in ORDER
    ]
    top = el("thead", el("tr", el("th", "OOD set", scope="col"), el("th", "samples", scope="col"), *heads))
    bodies = [
        el("tbody", *(el("tr", el("th", row.name, scope="row"), *set_cells(row), class_=name) for row in rows))
        for name, rows in ((None, run.rows), ("heat", (run.average,)))
    ]
    note = (
        f"Percent; below each number is its {100 * run.level:g} % bootstrap interval. "
        if run.resamples
        else "Percent. "
    )
    table = el("table", top, *bodies, class_="sortable")
    return section("All OOD sets", box(table, "all metrics by OOD set"), note=note + BOTH)


def set_cells(row: Row) -> list[Raw]:
    cells = [el("td", f"{row.n_ood:,}", data_sort=row.n_ood)]
    for metric in ORDER:
        ends = row.intervals.get(metric)
        small = el("small", f"{percent(ends[0])} to {percent(ends[1])}", class_="below") if ends else None
        cells.append(el("td", percent(getattr(row, metric)), small, data_sort=getattr(row, metric)))
    return cells


def losses_of(results: Results) -> Raw | None:
    """Where HEAT does not win, by name and number."""
    text = lost(results)
    if text is None:
        return None
    found: dict[str, dict[str, Loss]] = {}
    for loss in losses(results):
        found.setdefault(loss.column, {})[loss.metric] = loss
    names = [name for metric in SHOWN for name in (f"best {FULL_NAMES[metric]}", "HEAT's")]
    head = el("thead", el("tr", el("th", "column", scope="col"), *(el("th", name, scope="col") for name in names)))
    rows = [
        el("tr", el("th", column, scope="row"), *(cell for metric in SHOWN for cell in loss_cells(by.get(metric))))
        for column, by in found.items()
    ]
    table = box(el("table", head, el("tbody", *rows)), "where HEAT does not win")
    return el(
        "div", el("p", text), el("details", el("summary", "Where, and who does"), table, open=True), class_="loss"
    )


def loss_cells(loss: Loss | None) -> list[Raw]:
    if loss is None:
        return [el("td", "HEAT"), el("td", "")]
    return [el("td", el("b", loss.best), f" {loss.winner}"), el("td", loss.own)]


def metric_table(results: Results, metric: str) -> Raw:
    """The average first, then the groups, then the sets, then those that stand apart; ours from best to worst, the
    paper's rows below."""
    shown, values = columns(results), grid(results, metric)
    rank = {"average": 0, "group": 1, "set": 2}
    order = sorted(range(len(shown)), key=lambda c: (shown[c].apart, rank[column_kind(shown[c])]))
    known = any(row[order[0]].interval for row in values)
    heads = [heading(results, shown[c], metric, first=c == order[0]) for c in order]
    if known:
        heads.insert(1, el("th", el("small", "average"), "interval", scope="col"))
    top = el("thead", el("tr", el("th", "method", scope="col"), el("th", "kind", scope="col", class_="kind"), *heads))

    average = [row[order[0]].fraction for row in values]
    bodies = []
    for paper in (False, True):
        rows = [i for i, entry in enumerate(results.entries) if (entry.kind == "paper") == paper]
        rows.sort(key=lambda i: (math.isnan(average[i]), -better(metric) * average[i]))
        found = [table_row(results, results.entries[i], [values[i][c] for c in order], known) for i in rows]
        bodies += [el("tbody", *found)] if found else []
    return el("table", top, *bodies, class_="sortable")


def column_kind(column: Column) -> str:
    if column.sets is None:
        return "average"
    return "set" if column.sets == (column.title,) else "group"


def heading(results: Results, column: Column, metric: str, first: bool) -> Raw:
    kind = column_kind(column)
    group = None if column.group is None else group_title(results, column.group)
    small = {"group": "average", "set": group if len(results.groups) > 1 else None}.get(kind)
    best = "ascending" if better(metric) < 0 else "descending"
    text = [el("small", small) if small else None, group if kind == "group" else column.title]
    return el("th", *text, scope="col", data_first=best, aria_sort=best if first else None)


def table_row(results: Results, entry: Entry, values: Sequence[Value], interval: bool) -> Raw:
    cells = [value_cell(value, average=i == 0) for i, value in enumerate(values)]
    if interval:
        cells.insert(1, interval_cell(values[0]))
    name = el("th", title_of(entry), scope="row")
    return el("tr", name, el("td", entry.kind, class_="kind"), *cells, class_=row_class(entry, champion(results)))


def interval_cell(value: Value) -> Raw:
    if value.interval is None:
        return el("td", "", data_sort=math.nan)
    low, high = value.interval
    return el("td", el("small", f"{percent(low)} to {percent(high)}"), data_sort=low)


def value_cell(value: Value, average: bool) -> Raw:
    text = el("span", value.text, class_=value.mark) if value.mark else value.text
    spread = average and not math.isnan(value.spread)
    small = el("small", f" ± {100 * value.spread:.1f}") if spread else None
    hint = None
    if value.interval is not None:
        hint = f"bootstrap interval {percent(value.interval[0])} to {percent(value.interval[1])}"
    return el("td", text, small, data_sort=value.fraction, title=hint)


# Details


def details(results: Results) -> Raw:
    """All that is needed to run it again."""
    facts = {"suite": results.suite, "ID set": results.id, "backbone": results.backbone}
    facts |= {f"OOD sets, {group_title(results, group)}": ", ".join(names) for group, names in results.groups.items()}
    facts |= dict(flat(results.about))
    pairs = [x for key, value in facts.items() for x in (el("dt", key), el("dd", value))]
    parts: list[Any] = [el("dl", *pairs)]
    if results.missing:
        rows = [missing_row(missing) for missing in results.missing]
        titles = ("missing set", "get it from", "put it in")
        head = el("thead", el("tr", *(el("th", title, scope="col", class_="text") for title in titles)))
        parts.append(box(el("table", head, el("tbody", *rows)), "missing sets"))
    about = el("details", el("summary", "Versions, hardware, command, data"), *parts, open=bool(results.missing))
    return section("Details", about, methods(results))


def methods(results: Results) -> Raw | None:
    """What each method took, and the settings it had."""
    if not results.measured:
        return None
    titles = ("method", "fit, s", "score, µs a sample", "settings")
    heads = [el("th", title, scope="col", class_="text" if title == "settings" else None) for title in titles]
    rows = []
    for entry in results.measured:
        fit, score = (mean_of(entry, name) for name in ("fit_seconds", "score_seconds"))
        cells = [el("td", number(fit), data_sort=fit), el("td", number(1e6 * score), data_sort=score)]
        settings = ", ".join(f"{key}={value}" for key, value in entry.settings.items())
        rows.append(el("tr", el("th", entry.name, scope="row"), *cells, el("td", settings, class_="text")))
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="sortable")
    return el("details", el("summary", "Time and settings of every method"), box(table, "time and settings"))


def mean_of(entry: Entry, name: str) -> float:
    found = [value for run in entry.runs if (value := getattr(run, name)) is not None]
    return sum(found) / len(found) if found else math.nan


def number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def missing_row(missing: Missing) -> Raw:
    cells = [el("td", text, class_="text") for text in (missing.get, missing.put)]
    return el("tr", el("th", missing.name, scope="row"), *cells)


def flat(about: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in about.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found += flat(value, f"{name}, ")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((name, text))
    return found
