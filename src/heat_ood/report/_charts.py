"""Charts as inline SVG: lines told apart by dash and marker as well as colour, and a text alternative on each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ._axes import Axis, corner, linear_axis, part_axis, share_axis
from ._markup import Raw, el

__all__ = ["STYLES", "Bar", "Line", "bars", "changes", "histogram", "lines", "reach", "reliability", "roc"]

WIDTH, HEIGHT, NARROW = 340, 236, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 38
ROW = 18
STYLES = 6
"""Colours, dashes and markers before one repeats."""
DASHES = (None, "7 3", "2 2.5", "9 3 2 3", "5 2 1 2 1 2", "12 4")
LONGEST = 30
LEAST = 0.02
"""What a chart of changes spans at the least: a change of a hundredth of a point is not to look like a leap."""


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Args:
        name: for the key.
        points: pairs (x, y).
        style: the number of its colour, dash and marker.
        note: at the right end of the key.
        spreads: half the height of the band at each point; NaN draws none.
        marks: the points that get a marker.
        joined: whether the points are joined.
    """

    name: str
    points: Sequence[tuple[float, float]]
    style: int = 0
    note: str = ""
    spreads: Sequence[float] = ()
    marks: Sequence[tuple[float, float]] = ()
    joined: bool = True


@dataclass(frozen=True)
class Bar:
    """A bar: its name, its value, the text beside it, how far it varies, and whether it is set apart."""

    name: str
    value: float
    text: str
    spread: float = math.nan
    kind: str = field(default="plain")


def roc(curves: Sequence[Line], title: str) -> Raw:
    """ID accepted against OOD accepted; the marker of each line stands where 95 % of ID is accepted.

    Where all lines run into the upper left corner, it is drawn alone.
    """
    right, low = corner([a for line in curves for a, _ in line.marks])
    x, y = share_axis("OOD accepted, %"), share_axis("ID accepted, %")
    if right < 1:
        x = part_axis("OOD accepted, % · the upper left corner alone", 0, right)
        y = part_axis("ID accepted, %", low, 1)
        curves = [replace(line, points=clipped(line.points, right, low)) for line in curves]
    level = Y(y.place(0.95))
    guides = [el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=level, y2=level, class_="guide")]
    guides.append(el("text", "95 % of ID", x=WIDTH - RIGHT, y=level + 14, class_="small", text_anchor="end"))
    described = "; ".join(f"{line.name}: {line.note}" for line in curves)
    return plot(x, y, curves, f"ROC curves, {title}. {described}", guides)


def clipped(points: Sequence[tuple[float, float]], right: float, low: float) -> list[tuple[float, float]]:
    """What lies left of ``right`` and above ``low`` of a line that never falls, cut at the borders.

    Example:
        >>> clipped([(0.0, 0.0), (0.2, 1.0), (1.0, 1.0)], 0.6, 0.5)
        [(0.1, 0.5), (0.2, 1.0), (0.6, 1.0)]
    """
    inside: list[tuple[float, float]] = []
    for (a, b), (c, d) in pairwise(points):
        if d < low or a > right:
            continue
        first = (a, b) if b >= low else (a + (c - a) * (low - b) / (d - b), low)
        last = (c, d) if c <= right else (right, b + (d - b) * (right - a) / (c - a))
        if first[0] <= right and last[1] >= low:
            inside += [point for point in (first, last) if not inside or point != inside[-1]]
    return inside


def reliability(curves: Sequence[Line], high: float, n: int | None) -> Raw:
    """Measured against nominal false-alarm rate; the band is what chance does to a rate measured on n samples."""
    x, y = (linear_axis(f"{what} false alarms, %", 0, high, percent=True) for what in ("nominal", "measured"))
    top = x.ticks[-1][0]
    rates = [top * i / 24 for i in range(25)]
    guides = []
    if n:
        ends = [(r, 2 * math.sqrt(r * (1 - r) / n)) for r in rates]
        shape = [(r, min(r + e, top)) for r, e in ends] + [(r, max(r - e, 0)) for r, e in reversed(ends)]
        guides.append(el("polygon", points=path(shape, x, y), class_="band"))
    guides.append(el("polyline", points=path([(0, 0), (top, top)], x, y), class_="guide"))
    said = "; ".join(f"{c.name}: " + ", ".join(f"{100 * a:g} → {100 * b:.1f} %" for a, b in c.points) for c in curves)
    return plot(x, y, curves, f"Nominal and measured false-alarm rates. {said}", guides)


def lines(series: Sequence[Line], x: Axis, y: Axis, title: str) -> Raw:
    """Values in percent over a setting, with a band of the spread over seeds; lines without marks are levels."""
    names = dict(x.ticks)
    said = "; ".join(
        f"{line.name}: " + ", ".join(f"{names.get(a, f'{a:g}')}: {100 * b:.1f}" for a, b in line.marks)
        if line.marks
        else f"{line.name}: {100 * line.points[0][1]:.1f} throughout"
        for line in series
    )
    return plot(x, y, series, f"{title}. {said}")


def reach(series: Sequence[Line]) -> tuple[float, float]:
    """The lowest and the highest that lines and their bands come to."""
    ends = [
        p + sign * (0 if math.isnan(s) else s)
        for line in series
        for (_, p), s in zip(line.points, line.spreads or [0.0] * len(line.points), strict=True)
        for sign in (-1, 1)
    ]
    return min(ends), max(ends)


def histogram(
    edges: Sequence[float],
    id_density: Sequence[float],
    ood_density: Sequence[float],
    threshold: float,
    title: str,
    described: str,
) -> Raw:
    """The scores of ID (hatched) and of OOD (outlined), and the threshold that accepts 95 % of ID."""
    height, ceiling = 166, 46
    top = max(*id_density, *ood_density, 1e-9)
    first, last = edges[0], edges[-1]
    floor = height - 30

    def place(score: float) -> float:
        return 10 + (WIDTH - 20) * (score - first) / (last - first)

    def outline(density: Sequence[float]) -> str:
        corners = [(edges[0], 0.0)]
        for i, value in enumerate(density):
            corners += [(edges[i], value), (edges[i + 1], value)]
        corners.append((edges[-1], 0.0))
        return " ".join(f"{place(e):.1f},{floor - (floor - ceiling) * v / top:.1f}" for e, v in corners)

    parts = [
        el("polygon", points=outline(id_density), class_="id"),
        el("polygon", points=outline(ood_density), class_="ood"),
        el("line", x1=10, x2=WIDTH - 10, y1=floor, y2=floor, class_="axis"),
        el("text", short(title, 34), x=10, y=14, class_="name"),
        el("rect", x=WIDTH - 92, y=5, width=14, height=10, class_="id"),
        el("text", "ID", x=WIDTH - 74, y=14),
        el("rect", x=WIDTH - 54, y=5, width=14, height=10, class_="ood"),
        el("text", "OOD", x=WIDTH - 36, y=14),
        el("text", edge(first), x=10, y=height - 14, class_="small"),
        el("text", edge(last), x=WIDTH - 10, y=height - 14, class_="small", text_anchor="end"),
        el("text", "score →", x=WIDTH / 2, y=height - 14, class_="small", text_anchor="middle"),
    ]
    if first <= threshold <= last:
        at = f"{place(threshold):.1f}"
        left = threshold > (first + last) / 2
        name = el("text", "95 % of ID", x=at, y=ceiling - 10, class_="small", text_anchor="end" if left else "start")
        parts += [el("line", x1=at, x2=at, y1=ceiling - 6, y2=floor, class_="threshold"), name]
    return svg(height - 6, described, parts)


def edge(score: float) -> str:
    """The end of an axis of scores: three digits, never fewer than the whole number has."""
    text = f"{score:,.0f}" if 999.5 <= abs(score) < 1e7 else f"{score:.3g}"
    return text.replace("-", "−")


def bars(rows: Sequence[Bar], described: str, high: float | None = None) -> Raw:
    """Horizontal bars from zero, the name and the number above each."""
    top = high or max((row.value for row in rows if not math.isnan(row.value)), default=1.0) or 1.0
    width = NARROW
    wide = width - 4
    parts: list[Any] = []
    for i, row in enumerate(rows):
        y = 14 + 34 * i
        parts.append(el("text", short(row.name, 32), x=2, y=y, class_=f"name {row.kind}"))
        parts.append(el("text", row.text, x=width - 2, y=y, class_="number", text_anchor="end"))
        parts.append(el("rect", x=2, y=y + 5, width=wide, height=8, class_="rail"))
        if math.isnan(row.value):
            continue
        length = wide * min(row.value / top, 1)
        parts.append(el("rect", x=2, y=y + 5, width=f"{length:.1f}", height=8, class_=f"bar {row.kind}"))
        if row.spread > 0:
            reach = wide * row.spread / top
            ends = (max(length - reach, 0) + 2, min(length + reach, wide) + 2)
            parts.append(el("line", x1=f"{ends[0]:.1f}", x2=f"{ends[1]:.1f}", y1=y + 9, y2=y + 9, class_="whisker"))
    return svg(34 * len(rows) + 4, described, parts, width)


def changes(rows: Sequence[tuple[str, float, float]], described: str, better: int) -> Raw:
    """From a hollow to a filled dot on one scale for all rows; the numbers above each, worse changes marked."""
    ends = [v for _, a, b in rows for v in (a, b) if not math.isnan(v)] or [0.0, 1.0]
    middle, half = (min(ends) + max(ends)) / 2, max(max(ends) - min(ends), LEAST) / 2
    low, high = middle - half, middle + half
    parts: list[Any] = []

    def place(value: float) -> float:
        return 10 + (WIDTH - 20) * (value - low) / (high - low)

    for i, (name, before, after) in enumerate(rows):
        y = 14 + 36 * i
        first, last = (round(100 * v, 1) for v in (before, after))
        sign = " ▲" if last > first else " ▼" if last < first else ""
        worse = better * (last - first) < 0
        text = f"{first:.1f} → {last:.1f}{sign}{' worse' if worse else ''}"
        parts.append(el("text", short(name, 26), x=2, y=y, class_="name"))
        parts.append(el("text", text, x=WIDTH - 2, y=y, class_="number", text_anchor="end"))
        parts.append(el("line", x1=2, x2=WIDTH - 2, y1=y + 11, y2=y + 11, class_="grid"))
        a, b = f"{place(before):.1f}", f"{place(after):.1f}"
        parts.append(el("line", x1=a, x2=b, y1=y + 11, y2=y + 11, class_="change" + (" worse" if worse else "")))
        parts.append(el("circle", cx=a, cy=y + 11, r=4, class_="before"))
        parts.append(el("circle", cx=b, cy=y + 11, r=4.5, class_="after" + (" worse" if worse else "")))
    return svg(36 * len(rows) + 2, described, parts)


# Their parts


def X(share: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * share


def Y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def path(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return " ".join(f"{X(x.place(a)):.1f},{Y(y.place(b)):.1f}" for a, b in points)


def plot(x: Axis, y: Axis, series: Sequence[Line], described: str, guides: Sequence[Raw] = ()) -> Raw:
    """Axes, what lies below the lines, the lines, and a key under them."""
    parts: list[Any] = [axes(x, y), *guides]
    for line in series:
        parts += [band(line, x, y), *whiskers(line, x, y)] if line.spreads else []
    for line in series:
        if line.joined:
            parts.append(
                el(
                    "polyline",
                    points=path([p for p in line.points if math.isfinite(p[0])], x, y),
                    class_=f"line s{line.style % STYLES}",
                    stroke_dasharray=DASHES[line.style % STYLES],
                )
            )
        parts += [marker(line.style, X(x.place(a)), Y(y.place(b)), line.joined) for a, b in line.marks]
    for i, line in enumerate(series):
        parts.append(key(line, HEIGHT + 10 + ROW * i))
    return svg(HEIGHT + ROW * len(series) + 2, described, parts)


def axes(x: Axis, y: Axis) -> list[Raw]:
    parts = []
    for value, text in y.ticks:
        at = Y(y.place(value))
        parts.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}", class_="grid"))
        parts.append(el("text", text, x=LEFT - 6, y=f"{at + 4:.1f}", text_anchor="end"))
    for value, text in x.ticks:
        at = X(x.place(value))
        anchor = "end" if at > WIDTH - RIGHT - 8 and len(text) > 3 else "middle"
        parts.append(el("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=Y(0), y2=Y(0) + 4, class_="axis"))
        parts.append(el("text", text, x=f"{at:.1f}", y=Y(0) + 16, text_anchor=anchor))
    parts.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=Y(0), y2=Y(0), class_="axis"))
    parts.append(el("text", x.label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle"))
    middle = (Y(0) + Y(1)) / 2
    parts.append(el("text", y.label, transform=f"translate(11 {middle:.0f}) rotate(-90)", text_anchor="middle"))
    return parts


def band(line: Line, x: Axis, y: Axis) -> Raw | None:
    ends = [(a, b, s) for (a, b), s in zip(line.points, line.spreads, strict=True) if s > 0 and math.isfinite(a)]
    shape = [(a, b + s) for a, b, s in ends] + [(a, b - s) for a, b, s in reversed(ends)]
    return el("polygon", points=path(shape, x, y), class_=f"band s{line.style % STYLES}") if len(ends) > 1 else None


def whiskers(line: Line, x: Axis, y: Axis) -> list[Raw]:
    """The spread of points at infinity, which no band reaches."""
    ends = [(a, b, s) for (a, b), s in zip(line.points, line.spreads, strict=True) if s > 0 and math.isinf(a)]
    return [
        el("polyline", points=path([(a, b - s), (a, b + s)], x, y), class_=f"line thin s{line.style % STYLES}")
        for a, b, s in ends
    ]


def marker(style: int, x: float, y: float, filled: bool = True) -> Raw:
    """A circle, square, triangle, diamond, cross or triangle on its point; hollow for what is not ours."""
    name = f"mark s{style % STYLES}" + ("" if filled else " hollow")
    r = 4.0
    shapes = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -r - 1), (r + 1, r), (-r - 1, r)],
        3: [(0, -r - 1.5), (r + 1.5, 0), (0, r + 1.5), (-r - 1.5, 0)],
        5: [(0, r + 1), (r + 1, -r), (-r - 1, -r)],
    }
    if style % STYLES == 4:
        return el(
            "path", d=f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}", class_=f"{name} cross"
        )
    if style % STYLES in shapes:
        corners = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in shapes[style % STYLES])
        return el("polygon", points=corners, class_=name)
    return el("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=r, class_=name)


def key(line: Line, y: float) -> list[Raw]:
    dash = DASHES[line.style % STYLES]
    sample = el("line", x1=2, x2=34, y1=y, y2=y, class_=f"line s{line.style % STYLES}", stroke_dasharray=dash)
    parts = [sample] if line.joined else []
    parts += [marker(line.style, 18, y, line.joined)] if line.marks else []
    parts.append(el("text", short(line.name, LONGEST), x=42, y=y + 4, class_="name"))
    parts.append(el("text", line.note, x=WIDTH - 2, y=y + 4, class_="number", text_anchor="end"))
    return parts


def svg(height: float, described: str, parts: Sequence[Any], width: int = WIDTH) -> Raw:
    return el(
        "svg",
        *parts,
        role="img",
        aria_label=described,
        viewBox=f"0 0 {width} {height:g}",
        class_="chart",
    )


def short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
