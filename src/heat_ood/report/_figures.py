"""The charts of a report on one experiment; each gives nothing where there is nothing to show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..evaluation import HEADERS
from ..results import FULL_NAMES, SHOWN, Cost, Entry, Results, better, champion, percent, plain_composition, title_of
from . import _charts as charts
from ._blocks import box, figure, has_lines, row_class, section, switch
from ._charts import Bar, Line
from ._curves import curves
from ._markup import Raw, el, join
from ._words import corrections

__all__ = ["figures", "highlights"]

MANY = 6
"""Methods in a chart of lines or bars."""
PAPER = " (paper)"


def highlights(results: Results) -> list[Entry]:
    """HEAT, the plain composition, the best methods besides, and the plainest: the rows that charts show."""
    chosen = [entry for entry in (champion(results), plain_composition(results)) if entry is not None]
    plainest = [entry for entry in results.measured if entry.name == "msp"]
    rest = [entry for entry in results.ranked(SHOWN[0]) if entry not in chosen and entry not in plainest]
    rest.sort(key=lambda entry: entry.kind not in ("baseline", "prior"))
    return [*chosen, *rest[: MANY - len(chosen) - len(plainest)], *plainest]


def figures(results: Results) -> Raw:
    """All charts that the results have numbers for."""
    parts = [
        curves(results),
        changes(results),
        bars(results),
        rocs(results),
        histograms(results),
        alarms(results),
        costs(results),
    ]
    return join(parts)


def bars(results: Results) -> Raw | None:
    """FPR95 by group, the paper's first figure."""
    shown = highlights(results)
    if len(results.measured) < 2 or has_lines(results):
        return None
    theirs = [entry for entry in results.paper if entry.name == "HEAT"]
    groups: dict[str, Sequence[str] | None] = {
        name: [s for s in sets if s in results.found]
        for name, sets in results.groups.items()
        if len(results.groups) > 1 and name not in results.apart
    }
    groups = {name: sets for name, sets in groups.items() if sets} | {"average": None}
    drawn = []
    for name, sets in groups.items():
        rows = [bar_of(results, entry, sets) for entry in (*shown, *theirs)]
        rows = [row for row in rows if not math.isnan(row.value)]
        said = "; ".join(f"{row.name} {row.text}" for row in rows)
        title = "average of all sets" if sets is None else f"{name}: {', '.join(sets)}"
        drawn.append(figure(title, charts.bars(rows, f"{FULL_NAMES[SHOWN[0]]}, {title}: {said}", high=1.0)))
    note = "FPR95 (fpr_at_95_id) in percent, shorter is better; the thin line is the spread over seeds."
    note += " Hatched is the paper's HEAT, with its own network." if theirs else ""
    return section("Near to far", el("div", *drawn, class_="charts narrow"), note=note)


def bar_of(results: Results, entry: Entry, sets: Sequence[str] | None) -> Bar:
    mean = results.mean(entry, SHOWN[0], sets)
    kind = entry.kind if entry.kind in ("heat", "paper") else "plain"
    return Bar(title_of(entry), mean.mean, percent(mean.mean), mean.spread, kind)


def changes(results: Results) -> Raw | None:
    """Each row and its corrected form."""
    pairs = corrections(results)
    if not pairs or results.experiment == "main":
        return None
    drawn = []
    for metric in SHOWN:
        rows = [(n, results.mean(a, metric).mean, results.mean(b, metric).mean) for n, a, b in pairs]
        said = "; ".join(f"{name} from {percent(before)} to {percent(after)}" for name, before, after in rows)
        chart = charts.changes(rows, f"{FULL_NAMES[metric]} before and after the correction: {said}", better(metric))
        drawn.append(figure(f"average {HEADERS[metric]}", chart))
    note = "From uncorrected (hollow) to corrected (filled), percent."
    return section("What the correction does", el("div", *drawn, class_="charts"), note=note)


def rocs(results: Results) -> Raw | None:
    if has_lines(results):
        return None
    shown, drawn = highlights(results), []
    if len(shown) == 1:
        found = [roc_of(results, shown[0], name, i) for i, name in enumerate(results.found)]
        lines = [replace(one, name=name) for one, name in zip(found, results.found, strict=True) if one]
        drawn += [figure("all OOD sets", charts.roc(lines, shown[0].name))] if lines else []
    for name in results.found if len(shown) > 1 else ():
        lines = [line for i, entry in enumerate(shown) if (line := roc_of(results, entry, name, i))]
        if lines:
            drawn.append(figure(name, charts.roc(lines, name)))
    if not drawn:
        return None
    note = "" if len(shown) == 1 else "Mean over seeds. "
    note += "A line's marker stands at its FPR95: what it accepts of OOD where 95 % of ID is accepted. "
    return section("ROC curves", el("div", *drawn, class_="charts"), note=note + "The number is the AUROC.")


def roc_of(results: Results, entry: Entry, name: str, style: int) -> Line | None:
    found = [run.curves[name] for run in entry.runs if name in run.curves]
    found = [curve for curve in found if len(curve.id_accepted) == len(found[0].id_accepted)]
    if not found:
        return None
    ours = np.mean([curve.id_accepted for curve in found], axis=0)
    theirs = np.mean([curve.ood_accepted for curve in found], axis=0)
    at = int(np.searchsorted(ours, 0.95 - 1e-9))
    points = [*zip(theirs.tolist(), ours.tolist(), strict=True), (1.0, 1.0)]
    auroc = percent(results.mean(entry, "auroc", (name,)).mean)
    return Line(entry.name, points, style, auroc, marks=points[at : at + 1])


def histograms(results: Results) -> Raw | None:
    if has_lines(results):
        return None
    shown = highlights(results)
    charted = {name: [c for entry in shown if (c := histogram_of(results, entry, name))] for name in results.found}
    charted = {name: drawn for name, drawn in charted.items() if drawn}
    if not charted:
        return None
    note = "The central 99 % of all scores. The upright line is the threshold that accepts 95 % of ID: OOD to its left "
    note += "is accepted, and ID to its right called OOD."
    if len(shown) == 1:
        drawn = [figure(name, chart) for name, (chart,) in charted.items()]
        return section("Scores", el("div", *drawn, class_="charts"), note=note)
    note += " First seed. Scores of different methods have no common unit."
    panes = {n: el("div", *(el("figure", c) for c in drawn), class_="charts") for n, drawn in charted.items()}
    return section("Scores", switch("OOD set", panes), note=note)


def histogram_of(results: Results, entry: Entry, name: str) -> Raw | None:
    curve = entry.runs[0].curves.get(name)
    if curve is None:
        return None
    auroc = percent(results.mean(entry, "auroc", (name,)).mean)
    said = f"Histograms of the scores of {entry.name}: ID and {name}, AUROC {auroc} %; the threshold that accepts 95 % "
    said += f"of ID is {curve.accepting_95:.4g}"
    densities = (curve.edges, curve.id_density, curve.ood_density)
    return charts.histogram(*densities, curve.accepting_95, entry.name, said)


def alarms(results: Results) -> Raw | None:
    """What calibration promised and what came."""
    having = [entry for entry in results.measured if any(run.alarms for run in entry.runs)]
    if not having or has_lines(results):
        return None
    lines = [rates_of(entry, i) for i, entry in enumerate(highlights(results)) if entry in having]
    rates = sorted({float(rate) for entry in having for run in entry.runs for rate in run.alarms})
    n = having[0].runs[0].evaluation.average.n_id
    high = max([*rates, *(y for line in lines for _, y in line.points)])
    heads = [el("th", f"{100 * rate:g} %", scope="col", data_first="ascending") for rate in rates]
    rows = []
    for entry in having:
        measured = dict(rates_of(entry, 0).points)
        cells = [el("td", percent(measured.get(r, math.nan)), data_sort=measured.get(r, math.nan)) for r in rates]
        rows.append(el("tr", el("th", entry.name, scope="row"), *cells, class_=row_class(entry, champion(results))))
    table = el("table", el("thead", el("tr", el("th", "nominal", scope="col"), *heads)), el("tbody", *rows))
    note = f"The share of {n:,} ID test samples called OOD after calibration, mean over seeds, by the rate asked for. "
    note += "On the dotted line the promise is kept; the band is what chance alone does with so many samples."
    listed = el("details", el("summary", "Every method"), box(table, "measured false-alarm rates"))
    chart = figure("false-alarm rate", charts.reliability(lines, high, n))
    return section("Is the false-alarm rate what was asked for?", el("div", chart, class_="charts"), listed, note=note)


def rates_of(entry: Entry, style: int) -> Line:
    rates = sorted({rate for run in entry.runs for rate in run.alarms}, key=float)
    points = [(float(r), float(np.mean([run.alarms[r] for run in entry.runs if r in run.alarms]))) for r in rates]
    return Line(entry.name, points, style, marks=points)


def costs(results: Results) -> Raw | None:
    """Ours and the paper's, each to a scale of its own: the hardware and the networks are others."""
    if not results.costs:
        return None
    theirs = [cost for cost in results.costs if cost.name.endswith(PAPER)]
    ours = [cost for cost in results.costs if cost not in theirs]
    drawn = []
    for title, part in (("here", ours), ("in the paper, on its own hardware", theirs)):
        if part:
            rows = [cost_bar(cost) for cost in part]
            said = "; ".join(f"{row.name} {row.text}" for row in rows)
            drawn.append(figure(title, charts.bars(rows, f"Cost {title}: {said}")))
    note = "Milliseconds a sample, and as a share of HEAT with its backbone."
    return section("Cost", el("div", *drawn, class_="charts"), note=note)


def cost_bar(cost: Cost) -> Bar:
    kind = "paper" if cost.name.endswith(PAPER) else "heat" if cost.name == "HEAT" else "plain"
    size = f"{cost.milliseconds:,.0f}" if cost.milliseconds >= 100 else f"{cost.milliseconds:.3g}"
    return Bar(cost.name.removesuffix(PAPER), cost.milliseconds, f"{size} ms · {100 * cost.share:.3g} %", kind=kind)
