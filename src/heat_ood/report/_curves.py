"""Lines over λ, β or the share of the data, as the paper draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..evaluation import HEADERS
from ..results import FULL_NAMES, SHOWN, Entry, Results, percent
from . import _charts as charts
from ._axes import Axis, linear_axis, log_axis, signed_axis
from ._blocks import figure, section
from ._charts import Line
from ._markup import Raw, el

__all__ = ["curves"]

LEVEL = 1
"""The style of a level: no chart that has one has a second line of ours."""


def curves(results: Results) -> Raw | None:
    """One chart a metric; rows that belong to no line stand in the table alone."""
    entries = [entry for entry in results.entries if entry.x is not None]
    if not entries:
        return None
    # What has no residual is no point among λs: it is what they are held to.
    flat = [entry for entry in entries if results.experiment == "lambda" and entry.x == math.inf]
    points = [entry for entry in entries if entry not in flat] or flat
    axis = axis_of(results.experiment, [entry.x for entry in points if entry.x is not None])
    drawn, outside, hollow = [], list[str](), False
    for metric in SHOWN:
        lines = [*lines_of(results, points, metric), *levels(results, flat, metric, axis)]
        ours = [line for line in lines if line.joined] or lines
        y = linear_axis("percent", *charts.reach(ours), percent=True)
        near, far = split(lines, y)
        theirs = [(f"{e.name} (paper)", results.mean(e, metric).mean) for e in flat if e.kind == "paper"]
        far += [f"{name} {percent(mean)}" for name, mean in theirs if not math.isnan(mean)]
        outside += [f"{HEADERS[metric][:-2]} of {text}" for text in far]
        hollow |= any(not line.joined for line in near)
        if near:
            chart = charts.lines(near, axis, y, f"Average {FULL_NAMES[metric]} by {axis.label}")
            drawn.append(figure(f"average {HEADERS[metric]}", chart))
    note = "The average over OOD sets; the band is the spread over seeds. HEAT and the plain composition have no such "
    note += "setting: they stand in the table."
    note += " Hollow markers are the paper's numbers, with its own networks." if hollow else ""
    note += f" Outside the charts: {'; '.join(outside)}." if outside else ""
    return section("Curves", el("div", *drawn, class_="charts"), note=note)


def lines_of(results: Results, entries: Sequence[Entry], metric: str) -> list[Line]:
    names = sorted(dict.fromkeys(entry.series or entry.name for entry in entries), key=lambda n: n != "HEAT")
    lines: list[Line | None] = []
    for paper in (False, True):
        for style, name in enumerate(names):
            own = [e for e in entries if (e.series or e.name) == name and (e.kind == "paper") == paper]
            lines.append(line_of(results, own, f"{name} (paper)" if paper else name, metric, style, joined=not paper))
    return [line for line in lines if line is not None]


def levels(results: Results, entries: Sequence[Entry], metric: str, axis: Axis) -> list[Line]:
    """Our numbers that hold across the chart."""
    ends, found = [axis.ticks[0][0], axis.ticks[-1][0]], []
    for entry in entries:
        mean, spread = results.mean(entry, metric)
        if entry.kind != "paper" and not math.isnan(mean) and ends[0] < ends[1]:
            found.append(Line(entry.name, [(x, mean) for x in ends], LEVEL, "", [spread] * 2))
    return found


def line_of(
    results: Results, entries: Sequence[Entry], name: str, metric: str, style: int, joined: bool
) -> Line | None:
    found = sorted((entry.x, *results.mean(entry, metric)) for entry in entries if entry.x is not None)
    found = [point for point in found if not math.isnan(point[1])]
    points = [(x, mean) for x, mean, _ in found]
    return Line(name, points, style, "", [s for *_, s in found], points, joined) if found else None


def split(lines: Sequence[Line], y: Axis) -> tuple[list[Line], list[str]]:
    """Lines within the chart, and in words what lies beyond: the paper's, which are not to flatten ours."""
    near, far = [], list[str]()
    for line in lines:
        inside = [point for point in line.points if 0 <= y.place(point[1]) <= 1]
        if line.joined or len(inside) == len(line.points):
            near.append(line)
            continue
        far += [f"{line.name} {percent(point[1])}" for point in line.points if point not in inside]
        spreads = [math.nan] * len(inside)
        near += [replace(line, points=inside, marks=inside, spreads=spreads)] if inside else []
    return near, far


def axis_of(experiment: str, values: Sequence[float]) -> Axis:
    if experiment == "lambda":
        return log_axis("λ", values)
    if experiment == "low-data":
        return log_axis("share of the training data, %", values, percent=True)
    return signed_axis("β" if experiment == "beta" else experiment, values)
