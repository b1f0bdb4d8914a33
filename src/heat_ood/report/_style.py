"""How pictures of scores look: colours, lines, axes; one place for files, figures and the report's own drawings."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

__all__ = ["COLOURS", "ID_COLOUR", "INK", "LEGEND", "STYLES", "dress", "line_of", "mark", "plain"]

ID_COLOUR, INK = "#8a9bb0", "#333333"
# Okabe and Ito's colours, which colour-blind readers tell apart, and six styles: 42 pairs before one repeats.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
STYLES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (10, 2)),
)
LEGEND: dict[str, Any] = {"fontsize": 9.5, "frameon": False, "labelcolor": INK, "handlelength": 3, "borderaxespad": 0}


def line_of(i: int) -> dict[str, Any]:
    """The colour and dash of the i-th line."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i % len(STYLES)], "linewidth": 1.8}


def mark(axes: Axes, threshold: float, text: str) -> None:
    """A vertical line where samples begin to be called OOD, with its name above."""
    axes.axvline(threshold, color=INK, linewidth=1.2)
    low, high = axes.get_xlim()
    right = threshold < (low + high) / 2
    axes.annotate(
        text,
        (threshold, 1),
        xycoords=("data", "axes fraction"),
        xytext=(4 if right else -4, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="bottom",
        fontsize=10,
        color=INK,
    )


def dress(axes: Axes, xlabel: str, ylabel: str | None = None, title: str | None = None, room: bool = False) -> None:
    """Titles, and axes without a frame; ``room`` keeps the title clear of what stands on top of the axes."""
    if title:
        axes.set_title(plain(title), fontsize=13, color=INK, loc="left", pad=18 if room else 8)
    axes.set_xlabel(plain(xlabel), fontsize=11, color=INK)
    if ylabel:
        axes.set_ylabel(plain(ylabel), fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(labelsize=10, colors=INK)
    axes.set_facecolor("white")


def plain(text: str) -> str:
    """Text that matplotlib shows as it is: no formula, and no label hidden by an underscore."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
