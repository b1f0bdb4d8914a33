"""The picture of the rooms in docs/architecture.md, drawn from the code.

    python tools/draw_rooms.py            # writes docs/images/rooms.svg
    python tools/draw_rooms.py --check    # fails where the code's graph is another

A room stands right of all that it imports. Of the arrows only those are drawn that do not follow from others: where a
room imports a second and that one a third, the first may import the third as well.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np

from rooms import ORDER, PACKAGE, graph

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

ROOT = Path(__file__).parents[1]
PICTURE = Path("docs/images/rooms.svg")
FOLDER, FILE = "#fbd5bf", "#e8eef4"
HALF, SWEEPS = 0.36, 12
Graph = Mapping[str, set[str]]
Spot = str | tuple[str, str, int]
"""A room, or where an arrow between two rooms passes a column."""


def rooms() -> dict[str, set[str]]:
    """The code's graph."""
    known = graph()
    return {room: known[room] for room in ORDER}


def plain(known: Graph) -> dict[str, list[str]]:
    """The graph as the picture's file keeps it."""
    return {room: sorted(known[room], key=ORDER.index) for room in ORDER}


def reached(room: str, known: Graph) -> set[str]:
    """All that a room imports, directly or not."""
    return known[room].union(*(reached(other, known) for other in known[room]))


def arrows(known: Graph) -> dict[str, set[str]]:
    """The imports that do not follow from others."""
    return {
        room: {one for one in others if not any(one in reached(other, known) for other in others)}
        for room, others in known.items()
    }


def level(room: str, known: Graph) -> int:
    """How many rooms stand one behind the other below it."""
    return 1 + max((level(other, known) for other in known[room]), default=-1)


def ways(known: Graph) -> list[list[Spot]]:
    """Each arrow as a way from a room to one on its left, through a spot of its own in every column between."""
    found: list[list[Spot]] = []
    for room, others in arrows(known).items():
        for other in sorted(others, key=ORDER.index):
            between = range(level(room, known) - 1, level(other, known), -1)
            found.append([room, *((room, other, x) for x in between), other])
    return found


def places(known: Graph) -> dict[Spot, tuple[float, float]]:
    """Where everything stands: by its level, and in a column near what it has to do with."""
    paths, columns, near = ways(known), dict[int, list[Spot]](), dict[Spot, list[Spot]]()
    for spot in dict.fromkeys([*known, *(spot for path in paths for spot in path)]):
        columns.setdefault(level(spot, known) if isinstance(spot, str) else spot[2], []).append(spot)
    for path in paths:
        for one, other in pairwise(path):
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
    found = {spot: at for x in columns for spot, at in placed(x, columns[x]).items()}
    for _ in range(SWEEPS):
        for x, column in sorted(columns.items()):
            column.sort(key=lambda spot: -float(np.mean([found[other][1] for other in near.get(spot, [spot])])))
            found |= placed(x, column)
    return found


def placed(x: int, column: Sequence[Spot]) -> dict[Spot, tuple[float, float]]:
    """A column about the middle; where only an arrow passes, half the height will do."""
    heights = np.array([1.0 if isinstance(spot, str) else 0.5 for spot in column])
    tops = heights.sum() / 2 - heights.cumsum() + heights / 2
    return {spot: (float(x), float(y)) for spot, y in zip(column, tops, strict=True)}


def draw(known: Graph, path: Path) -> None:
    at = places(known)
    xs, ys = zip(*at.values(), strict=True)
    size = (1.18 * (max(xs) + 1), 0.55 * (max(ys) - min(ys) + 1))
    with plt.rc_context({"svg.hashsalt": "rooms", "font.size": 10}):
        figure, panel = plt.subplots(figsize=size, layout="constrained")
        panel.set(xlim=(-0.5, max(xs) + 0.5), ylim=(min(ys) - 0.5, max(ys) + 0.5))
        panel.axis("off")
        for way in ways(known):
            curve = bent([at[spot] for spot in way])
            panel.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=10, color="#777777"))
        for room in known:
            x, y = at[room]
            colour = FOLDER if (PACKAGE / room).is_dir() else FILE
            corner = (x - HALF, y - 0.3)
            box = FancyBboxPatch(corner, 2 * HALF, 0.6, "round,pad=0,rounding_size=0.08", fc=colour, ec="#555555")
            panel.add_patch(box)
            panel.text(x, y, room, ha="center", va="center")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, facecolor="white", metadata={"Date": None, "Description": json.dumps(plain(known))})
        plt.close(figure)


def bent(points: Sequence[tuple[float, float]]) -> Curve:
    """A smooth way from the left side of the first box to the right side of the last, level where it passes a spot."""
    (x, y), *between, (end, last) = points
    points = [(x - HALF, y), *between, (end + HALF, last)]
    corners, codes = [points[0]], [Curve.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (x0 + x1) / 2
        corners += [(middle, y0), (middle, y1), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    return Curve(corners, codes)


def drawn_graph(path: Path) -> object:
    """The graph that a picture shows."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL)
    return json.loads(html.unescape(found[1])) if found else None


def differences(root: Path = ROOT) -> list[str]:
    """The picture, if it shows another graph than the code's."""
    return [] if drawn_graph(root / PICTURE) == plain(rooms()) else [str(PICTURE)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the picture is not current")
    if parser.parse_args().check:
        sys.exit(f"{PICTURE} is not the code's graph. Run python tools/draw_rooms.py." if differences() else 0)
    draw(rooms(), ROOT / PICTURE)


if __name__ == "__main__":
    main()
