"""Histograms of scores, ID against OOD, as PNG or SVG; pyplot's global state is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..errors import InputError
from ..metrics import Scores, as_scores, auroc
from ._style import ID_COLOUR, INK, LEGEND, dress, line_of, mark, plain

__all__ = ["panels", "score_histograms"]

XLABEL = "score (higher = more OOD)"
# Limits of what a set may do to the axes, so that the others stay readable; the legend says what was cut.
FAR = 4  # widths of the ID scores to either side
TALL = 4  # times the median peak
Floats = npt.NDArray[np.float64]


def score_histograms(
    id_scores: Scores,
    ood_scores: Mapping[str, Scores],
    path: str | PathLike[str],
    *,
    threshold: float | None = None,
    title: str | None = None,
    xlabel: str = XLABEL,
    show_auroc: bool = True,
) -> Path:
    """Draw the densities of ID scores (filled) and of each OOD set (lines) to a ``.png`` or ``.svg`` file.

    Args:
        id_scores: scores of ID samples.
        ood_scores: scores of each OOD set, by name.
        path: where to; the suffix says the format.
        threshold: drawn as a vertical line: at or above it a sample is called OOD.
        title: above the picture.
        xlabel: below it.
        show_auroc: whether the legend gives each set's AUROC in percent.
    """
    figure = Figure(figsize=(8.5, 4), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    draw(axes, id_scores, ood_scores, tuple(ood_scores), threshold, title, xlabel, show_auroc)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), **LEGEND)
    axes.set_ylabel("density", fontsize=11, color=INK)
    return write(figure, path)


def panels(
    columns: Mapping[str, tuple[Scores, Mapping[str, Scores]]],
    path: str | PathLike[str],
    *,
    thresholds: Mapping[str, float] | None = None,
    xlabel: str = XLABEL,
) -> Path:
    """Draw several methods side by side: ``{title: (id_scores, {name: ood_scores})}``, with one legend for all.

    A set has the same colour and line in every panel; each panel has its own axes, as scores have no common unit, and
    the threshold that ``thresholds`` has for its title.
    """
    if not columns:
        raise InputError("There is no panel to draw. Pass a mapping from titles to (id_scores, ood_scores).")
    names = tuple(dict.fromkeys(name for _, sets in columns.values() for name in sets))
    figure = Figure(
        figsize=(4.2 * len(columns), 3.6 + 0.2 * (1 + len(names)) / len(columns)),
        layout="constrained",
        facecolor="white",
    )
    row = figure.subplots(1, len(columns), squeeze=False)[0]
    lines: dict[str | None, Any] = {}
    said: dict[str | None, dict[str, str]] = {}
    for axes, (title, (id_scores, ood_scores)) in zip(row, columns.items(), strict=True):
        draw(axes, id_scores, ood_scores, names, (thresholds or {}).get(title), title, xlabel, True)
        for name, line, label in zip((None, *ood_scores), *axes.get_legend_handles_labels(), strict=True):
            lines.setdefault(name, line)
            said.setdefault(name, {})[title] = label.removeprefix(f"{shown(name)}, ")
    labels = [f"{shown(name)}, {together(parts)}" for name, parts in said.items()]
    figure.legend(list(lines.values()), labels, loc="outside lower left", ncols=len(columns), **LEGEND)
    row[0].set_ylabel("density", fontsize=11, color=INK)
    return write(figure, path)


def shown(name: str | None) -> str:
    return "ID" if name is None else plain(name)


def together(parts: Mapping[str, str]) -> str:
    """What a legend says of a set in several panels: once, where it is the same in all."""
    if len(set(parts.values())) == 1:
        return next(iter(parts.values()))
    return "; ".join(f"{plain(title)}: {text}" for title, text in parts.items())


def draw(
    axes: Axes,
    id_scores: Scores,
    ood_scores: Mapping[str, Scores],
    names: tuple[str, ...],
    threshold: float | None,
    title: str | None,
    xlabel: str,
    show_auroc: bool,
) -> None:
    """One panel without its legend; ``names`` gives each set its colour and line."""
    s = as_scores(id_scores, "the ID set")
    sets = {name: as_scores(scores, f"the OOD set {name!r}") for name, scores in ood_scores.items()}
    if threshold is not None and not np.isfinite(threshold):
        raise InputError(f"The threshold is {threshold}. Pass a finite number, or None to draw none.")
    low, high = limits(s, list(sets.values()), threshold)
    samples = float(np.median([len(x) for x in (s, *sets.values())]))
    edges = np.linspace(low, high, 1 + int(np.clip(4 * samples ** (1 / 3), 12, 64)))
    heights = {name: density(t, edges) for name, t in sets.items()}
    id_height = density(s, edges)
    peaks = [float(h.max()) for h in (id_height, *heights.values()) if h.any()]
    top = min(max(peaks), TALL * float(np.median(peaks)))

    label = f"ID, n = {len(s):,}" + cut(s, id_height, low, high, top)
    axes.stairs(id_height, edges, fill=True, color=ID_COLOUR, alpha=0.65, label=label)
    for name, t in sets.items():
        i, height = names.index(name), heights[name]
        label = (
            plain(name) + (f", AUROC {100 * auroc(s, t):.1f}" if show_auroc else "") + cut(t, height, low, high, top)
        )
        axes.stairs(np.where(height > 0, height, np.nan), edges, label=label, **line_of(i))

    axes.set_xlim(low, high)
    axes.set_ylim(0, 1.05 * top)
    if threshold is not None:
        mark(axes, threshold, f"threshold {threshold:.4g}")
    dress(axes, xlabel, title=title, room=threshold is not None)


def limits(s: Floats, sets: list[Floats], threshold: float | None) -> tuple[float, float]:
    """The 0.1 to 99.9 percentiles of ID and of the sets that are not far, or of all where every set is far."""
    ends = [np.percentile(x, [0.1, 50, 99.9]) for x in (s, *sets)]
    reach = FAR * (ends[0][2] - ends[0][0]) or np.inf
    first, last = float(ends[0][0] - reach), float(ends[0][2] + reach)
    near = [e for e in ends[1:] if first <= e[1] <= last]
    shown = [ends[0], *near] if near else ends
    low, high = float(min(e[0] for e in shown)), float(max(e[2] for e in shown))
    if near:
        low, high = max(low, first), min(high, last)
    if threshold is not None:
        low, high = min(low, threshold), max(high, threshold)

    size = max(abs(low), abs(high))
    margin = 0.02 * (high - low) if high - low > 1e-12 * size else max(0.5, 1e-6 * size)
    return low - margin, high + margin


def density(x: Floats, edges: Floats) -> Floats:
    """Samples a unit of score, as a share of all samples: what lies beyond the edges is not spread over the rest."""
    counts, _ = np.histogram(x, edges)
    return counts / (len(x) * np.diff(edges))


def cut(x: Floats, height: Floats, low: float, high: float, top: float) -> str:
    """What the axes do not show of a set, for its legend."""
    left, right = 100 * np.mean(x < low), 100 * np.mean(x > high)
    notes = {
        f"{left:.0f} % off left": left >= 1,
        f"{right:.0f} % off right": right >= 1,
        f"peak {height.max():.3g}": height.max() > 1.05 * top,
    }
    text = ", ".join(note for note, applies in notes.items() if applies)
    return f" ({text})" if text else ""


def write(figure: Figure, path: str | PathLike[str]) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise InputError(f"Cannot draw to {path.name!r}. Name the file {path.stem}.png or {path.stem}.svg.")
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    return path
