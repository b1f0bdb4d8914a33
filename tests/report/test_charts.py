"""Charts: where values stand, what tells lines apart, and what is said in words."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from heat_ood.report._axes import linear_axis, log_axis, share_axis, signed_axis
from heat_ood.report._charts import (
    DASHES,
    HEIGHT,
    STYLES,
    WIDTH,
    Bar,
    Line,
    bars,
    changes,
    clipped,
    edge,
    histogram,
    lines,
    reliability,
    roc,
)


def numbers(points: str) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split(","))) for pair in points.split()]


def drawn(svg: str, tag: str, name: str) -> list[ElementTree.Element]:
    """Elements of a class, in order."""
    return [e for e in ElementTree.fromstring(svg).iter(tag) if name in e.get("class", "").split()]


def texts(svg: str) -> list[str]:
    return [e.text for e in ElementTree.fromstring(svg).iter("text") if e.text]


# Axes


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (0.31, 0.352, ["0.31", "0.32", "0.33", "0.34", "0.35", "0.36"]),
        (-3, 3, ["-4", "-2", "0", "2", "4"]),
        (5, 5, ["5", "6"]),
        (0, 0, None),
        (1e6, 3e6, None),
    ],
)
def test_linear_ticks_are_round_and_hold_the_values(low, high, expected):
    axis = linear_axis("y", low, high)
    assert expected is None or [text for _, text in axis.ticks] == expected
    assert 0 <= axis.place(low) <= axis.place(high) <= 1
    assert 2 <= len(axis.ticks) <= 8
    assert (axis.place(axis.ticks[0][0]), axis.place(axis.ticks[-1][0])) == pytest.approx((0, 1))


def test_a_log_axis_has_infinity_beyond_a_gap():
    axis = log_axis("λ", [0.1, 1, 10, 100, math.inf], infinite="none")
    places = [axis.place(v) for v in (0.1, 1, 10, 100)]
    assert np.diff(places) == pytest.approx([places[1]] * 3)
    assert places[-1] < 0.9 < axis.place(math.inf) == 1
    assert axis.ticks[-1] == (math.inf, "none")
    assert log_axis("x", [0.01, 1.0], percent=True).ticks == ((0.01, "1"), (1.0, "100"))
    assert log_axis("x", [3.0]).place(3.0) == 0


def test_a_signed_axis_is_symmetric_with_both_infinities():
    axis = signed_axis("β", [-math.inf, -10, -1, 0, 1, 10, math.inf])
    assert [axis.place(v) for v in (-math.inf, 0, math.inf)] == pytest.approx([0, 0.5, 1])
    assert axis.place(-10) + axis.place(10) == pytest.approx(1)
    assert 0 < axis.place(-10) < axis.place(-1) < 0.5
    assert [text for _, text in axis.ticks] == ["−∞", "−10", "−1", "0", "1", "10", "∞"]


@pytest.mark.parametrize(
    "axis", [signed_axis("β", [*np.linspace(-10, 10, 41)]), log_axis("λ", [*np.geomspace(1, 99, 40)])]
)
def test_ticks_do_not_crowd(axis):
    places = [axis.place(v) for v, _ in axis.ticks]
    assert len(places) >= 2
    assert min(np.diff(places)) >= 0.07


# Charts

CURVE = Line("HEAT", [(0.0, 0.0), (0.2, 0.95), (1.0, 1.0)], 0, "91.2", marks=[(0.2, 0.95)])


def test_a_roc_curve_runs_from_corner_to_corner_and_marks_fpr95():
    svg = roc([CURVE], "svhn")
    (line,) = (e for e in drawn(svg, "polyline", "line"))
    first, _, last = numbers(line.get("points"))
    assert first[0] < last[0]
    assert first[1] > last[1], "up is more"
    (mark, _) = drawn(svg, "circle", "mark")
    (guide,) = drawn(svg, "line", "guide")
    assert float(mark.get("cy")) == pytest.approx(float(guide.get("y1")), abs=0.1)
    assert "91.2" in texts(svg)


@pytest.mark.parametrize("style", range(STYLES))
def test_every_line_has_a_dash_and_a_marker_of_its_own(style):
    assert len(set(DASHES)) == STYLES

    def marker(number: int) -> str:
        svg = roc([Line("x", CURVE.points, number, marks=CURVE.marks)], "s")
        marks = [e for e in ElementTree.fromstring(svg).iter() if "mark" in e.get("class", "")]
        return marks[0].tag + str({k: v for k, v in marks[0].items() if k != "class"})

    assert all(marker(style) != marker(other) for other in range(STYLES) if other != style)


CHARTS = {
    "roc": lambda: roc([CURVE], "svhn"),
    "lines": lambda: lines(
        [
            Line(
                "HEAT",
                [(1.0, 0.3), (10.0, 0.4), (math.inf, 0.5)],
                0,
                "",
                [0.01, math.nan, 0.02],
                [(1.0, 0.3), (math.inf, 0.5)],
            )
        ],
        log_axis("λ", [1.0, 10.0, math.inf]),
        linear_axis("percent", 0.2, 0.6, percent=True),
        "By λ",
    ),
    "reliability": lambda: reliability([Line("HEAT", [(0.05, 0.06)], marks=[(0.05, 0.06)])], 0.1, 100),
    "histogram": lambda: histogram([0, 1, 2], [0.5, 0.5], [0.0, 1.0], 1.5, "HEAT", "Scores of HEAT"),
    "bars": lambda: bars([Bar("HEAT", 0.3, "30.0", 0.02, "heat"), Bar("x", math.nan, "–")], "FPR95: HEAT 30.0", 1.0),
    "changes": lambda: changes([("gmm", 0.5, 0.4), ("knn", 0.4, 0.5)], "gmm from 50 to 40", -1),
}


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_xml_with_a_text_alternative_and_nothing_that_is_not_a_number(name):
    svg = CHARTS[name]()
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert len(root.get("aria-label")) > 10
    assert not re.search(r"\bnan\b|\binf\b", svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    for element in root.iter():
        for x, y in numbers(element.get("points", "")):
            assert -1 <= x <= width + 1
            assert -1 <= y <= height + 1


def test_infinite_points_stand_apart_from_the_line():
    svg = CHARTS["lines"]()
    (whisker, line) = drawn(svg, "polyline", "line")
    assert len(numbers(line.get("points"))) == 2
    assert "thin" in whisker.get("class")
    assert "∞: 50.0" in ElementTree.fromstring(svg).get("aria-label")


def test_bars_are_to_scale():
    svg = bars([Bar("a", 0.5, "50"), Bar("b", 0.25, "25"), Bar("c", 2.0, "200")], "x", high=1.0)
    full, half, over = (float(e.get("width")) for e in drawn(svg, "rect", "bar"))
    rail = float(drawn(svg, "rect", "rail")[0].get("width"))
    assert (full / rail, half / rail, over / rail) == pytest.approx((0.5, 0.25, 1), abs=0.001)


def test_a_change_for_the_worse_is_said_in_words():
    assert [t for t in texts(CHARTS["changes"]()) if "→" in t] == ["50.0 → 40.0 ▼", "40.0 → 50.0 ▲ worse"]
    same = changes([("gmm", 0.5001, 0.5002)], "x", -1)
    assert "50.0 → 50.0" in texts(same)


def test_a_small_change_looks_small():
    svg = changes([("gmm", 0.5001, 0.5002)], "x", -1)
    (before,), (after,) = drawn(svg, "circle", "before"), drawn(svg, "circle", "after")
    assert abs(float(after.get("cx")) - float(before.get("cx"))) < 0.01 * WIDTH


def test_the_label_of_an_axis_is_clear_of_its_numbers():
    svg = lines(
        [Line("a", [(1.0, 0.9865), (2.0, 0.9885)])],
        log_axis("λ", [1.0, 2.0]),
        linear_axis("percent", 0.9865, 0.9885, percent=True),
        "x",
    )
    numbers = [e for e in ElementTree.fromstring(svg).iter("text") if e.text and e.get("text-anchor") == "end"]
    ends = [float(e.get("x")) - 6.5 * len(e.text) for e in numbers]
    assert max(len(e.text) for e in numbers) == 5
    assert min(ends) > 11, "where the label stands"


def test_histograms_are_to_scale():
    svg = CHARTS["histogram"]()
    (ood,) = drawn(svg, "polygon", "ood")
    tops = [y for _, y in numbers(ood.get("points"))]
    (ours,) = drawn(svg, "polygon", "id")
    half = [y for _, y in numbers(ours.get("points"))]
    floor = max(tops)
    assert floor - min(half) == pytest.approx((floor - min(tops)) / 2)


def test_text_is_escaped_and_shortened():
    svg = roc([Line("<script>alert(1)</script> and a very long name indeed", CURVE.points)], "a & b")
    assert "<script" not in svg
    assert any(text.endswith("…") for text in texts(svg))


def test_the_share_axis_fills_the_frame():
    axis = share_axis("x")
    assert (axis.place(0), axis.place(1)) == (0, 1)
    assert WIDTH > HEIGHT


@pytest.mark.parametrize(
    ("score", "text"), [(-2053.4, "−2,053"), (0.12345, "0.123"), (-1.734, "−1.73"), (999.6, "1,000"), (3e9, "3e+09")]
)
def test_the_ends_of_an_axis_of_scores(score: float, text: str) -> None:
    assert edge(score) == text


@pytest.mark.parametrize(("threshold", "at"), [(1.5, 250.0), (0.25, 50.0), (2.5, None)])
def test_a_histogram_has_its_threshold(threshold, at):
    svg = histogram([0, 1, 2], [0.5, 0.5], [0.0, 1.0], threshold, "HEAT", "Scores")
    found = re.findall(r'<line x1="([0-9.]+)" x2="([0-9.]+)"[^>]*class="threshold"', svg)
    assert [float(x) for pair in found for x in pair] == ([] if at is None else [at, at])
    assert ("95 % of ID" in svg) == (at is not None)


def curve(fpr):
    points = [(0.0, 0.0), (0.0, 0.9), (fpr, 0.95), (1.0, 1.0)]
    return Line("a", points, 0, "99.0", marks=[(fpr, 0.95)])


def test_roc_curves_that_collapse_are_drawn_in_their_corner():
    zoomed, whole = roc([curve(0.01), curve(0.04)], "svhn"), roc([curve(0.01), curve(0.4)], "svhn")
    assert "corner" in zoomed
    assert "corner" not in whole
    ticks = re.findall(r">([0-9.]+)</text>", zoomed)
    assert ticks[:11] == ["80", "85", "90", "95", "100", "0", "2", "4", "6", "8", "10"]
    for line in re.findall(r'<polyline points="([^"]*)"', zoomed):
        places = [tuple(map(float, pair.split(","))) for pair in line.split()]
        assert all(44 <= a <= 328 and 10 <= b <= 198 for a, b in places), "no line leaves the chart"
        assert len(places) >= 3


def test_a_line_is_cut_at_both_borders():
    assert clipped([(0.0, 0.0), (0.2, 1.0), (1.0, 1.0)], 0.6, 0.5) == [(0.1, 0.5), (0.2, 1.0), (0.6, 1.0)]
    assert clipped([(0.0, 0.0), (1.0, 0.4)], 0.5, 0.5) == []
    assert clipped([(0.0, 0.9), (0.0, 1.0), (1.0, 1.0)], 0.1, 0.5) == [(0.0, 0.9), (0.0, 1.0), (0.1, 1.0)]
