"""Pictures of scores as matplotlib figures: histograms, ROC curves, and whether false alarms are as many as asked for.

Each function makes a figure of its own, or draws into the axes that it is given, and returns the figure: show it, or
save it with ``figure.savefig("scores.png")``. pyplot is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .errors import InputError
from .evaluation import Curve, Evaluation
from .metrics import Scores, as_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["reliability", "roc", "scores"]

_RATES = tuple(i / 200 for i in range(1, 41))
"""Up to 20 %: nobody asks for more false alarms."""


def scores(
    id_scores: Scores,
    ood_scores: Mapping[str, Scores] | Scores,
    *,
    threshold: float | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """The densities of ID scores (filled) and of each OOD set (lines).

    Args:
        id_scores: one number a sample, higher = more OOD: an array, a tensor or a list.
        ood_scores: the scores of each OOD set by name; a single set is named "ood".
        threshold: drawn as a vertical line, as ``detector.threshold(fpr=0.05)`` gives it: above it, a sample is OOD.
        title: above the picture.
        ax: the axes to draw into; None makes a figure.

    Example:
        >>> figure = scores([0.1, 0.4, 0.2, 0.3], {"svhn": [0.9, 1.2], "dtd": [0.3, 0.8]}, threshold=0.5)
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['ID, n = 4', 'svhn, AUROC 100.0', 'dtd, AUROC 81.2']
    """
    from .report import XLABEL, draw

    sets = _sets(ood_scores)
    axes = _axes(ax, (8.5, 4))
    draw(axes, id_scores, sets, tuple(sets), threshold, title, XLABEL, True)
    axes.set_ylabel("density")
    return _done(axes, ax)


def roc(
    id_scores: Scores | Evaluation,
    ood_scores: Mapping[str, Scores] | Scores | None = None,
    *,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """ID accepted against OOD accepted, a line for each OOD set; the dot stands where 95 % of ID is accepted.

    Where every curve runs into the upper left corner, that corner alone is shown, and the axes say so.

    Args:
        id_scores: one number a sample, higher = more OOD; or what :func:`heat_ood.evaluate` gave, and nothing else.
        ood_scores: the scores of each OOD set by name; a single set is named "ood".
        title: above the picture.
        ax: the axes to draw into; None makes a figure.

    Example:
        >>> figure = roc([0.1, 0.4, 0.2, 0.3], {"svhn": [0.9, 1.2], "dtd": [0.3, 0.8]})
        >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
        ['svhn, AUROC 100.0, FPR95 0.0', 'dtd, AUROC 81.2, FPR95 50.0']
    """
    from .report import corner, dress, line_of, plain

    found = _evaluated(id_scores, ood_scores)
    shapes = [(curve.ood_accepted, curve.id_accepted) for curve in found.curves.values()]
    right, low = corner([_at_95(curve) for curve in found.curves.values()])
    axes = _axes(ax, (7.5, 4.2))
    for i, (name, (x, y)) in enumerate(zip(found.curves, shapes, strict=True)):
        row, curve = found[name], found.curves[name]
        label = f"{name}, AUROC {100 * row.auroc:.1f}, FPR95 {100 * row.fpr_at_95_id:.1f}"
        axes.plot([*x, 1.0], [*y, 1.0], label=plain(label), **line_of(i))
        axes.plot([_at_95(curve)], [0.95], marker="o", markersize=6, color=line_of(i)["color"], clip_on=False)

    axes.axhline(0.95, color="#999999", linewidth=0.8, linestyle=(0, (1, 3)))
    axes.set_xlim(0, right)
    axes.set_ylim(low, 1)
    _in_percent(axes)
    zoomed = ", the corner alone" if right < 1 else ""
    dress(axes, f"OOD accepted, %{zoomed}", "ID accepted, %", title)
    return _done(axes, ax)


def reliability(
    p_values: Any,
    held_out: Any = None,
    *,
    rates: Sequence[float] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """The share of ID samples that are called OOD, measured, against the rate that was asked for.

    On the dotted line the promise is kept; the band is two standard errors of a rate measured on so many samples.

    Args:
        p_values: of ID samples used neither to fit nor to calibrate: an array, a tensor, a list, or a mapping from
            names to them; or a calibrated detector, together with ``held_out``.
        held_out: the samples that the detector judges.
        rates: the false-alarm rates to ask for; None takes those up to 20 %.
        title: above the picture.
        ax: the axes to draw into; None makes a figure.

    Example:
        >>> figure = reliability([i / 100 for i in range(1, 101)], rates=(0.05, 0.1))
        >>> figure.axes[0].lines[-1].get_ydata().tolist()
        [0.05, 0.1]
    """
    from .report import INK, dress, line_of, plain

    sets = _p_values(p_values, held_out)
    nominal = np.asarray(_RATES if rates is None else sorted(rates), dtype=np.float64)
    if not len(nominal) or not ((nominal > 0) & (nominal < 1)).all():
        raise InputError("False-alarm rates lie between 0 and 1. Pass rates=(0.01, 0.05, 0.1), or None.")
    measured = {name: (p[:, None] <= nominal).mean(0) for name, p in sets.items()}
    top = 1.1 * max(float(nominal.max()), *(float(m.max()) for m in measured.values()))

    axes = _axes(ax, (6, 4.5))
    line = np.linspace(0, top, 100)
    chance = 2 * np.sqrt(line * np.clip(1 - line, 0, None) / min(map(len, sets.values())))
    axes.fill_between(line, line - chance, line + chance, color="#999999", alpha=0.2, linewidth=0, label="chance")
    axes.plot(line, line, color=INK, linewidth=1, linestyle=(0, (1, 3)), label="as asked for")
    marker = "o" if len(nominal) <= 10 else ""
    for i, (name, rate) in enumerate(measured.items()):
        axes.plot(nominal, rate, marker=marker, label=plain(f"{name}, n = {len(sets[name]):,}"), **line_of(i))
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    _in_percent(axes)
    dress(axes, "false-alarm rate asked for, %", "measured, %", title)
    return _done(axes, ax)


# What was given


def _sets(ood_scores: Mapping[str, Scores] | Scores) -> dict[str, Scores]:
    return dict(ood_scores) if isinstance(ood_scores, Mapping) else {"ood": ood_scores}


def _evaluated(id_scores: Any, ood_scores: Any) -> Evaluation:
    """What is drawn of an evaluation, or of scores."""
    from .evaluation import evaluate_scores

    if not isinstance(id_scores, Evaluation):
        if ood_scores is None:
            raise InputError("ROC curves need OOD scores too. Pass roc(id_scores, {name: ood_scores}).")
        return evaluate_scores(id_scores, _sets(ood_scores), intervals=False, curves=True)
    if ood_scores is not None:
        raise InputError("An evaluation holds its OOD sets already. Pass it alone, or scores of both kinds.")
    if not id_scores.curves:
        raise InputError("This evaluation was written without curves. Evaluate again, or pass scores.")
    return id_scores


def _p_values(given: Any, held_out: Any) -> dict[str, Any]:
    if hasattr(given, "p_value"):
        if held_out is None:
            raise InputError("A detector judges samples: pass held-out ID data too, reliability(detector, held_out).")
        name = str(getattr(given, "name", type(given).__name__))
        given = {"HEAT" if name == "heat" else name: given.p_value(held_out)}
    elif held_out is not None:
        raise InputError("Held-out data go with a detector. Pass reliability(detector, held_out), or p-values alone.")
    named = dict(given) if isinstance(given, Mapping) else {"measured": given}
    found = {name: as_scores(p, f"the p-values of {name!r}") for name, p in named.items()}
    if not found:
        raise InputError("There are no p-values to draw. Pass a vector, or a mapping from names to vectors.")
    for name, p in found.items():
        if p.min() < 0 or p.max() > 1:
            raise InputError(
                f"The p-values of {name!r} lie between {p.min():.4g} and {p.max():.4g}, not between 0 and 1. Pass what "
                "detector.p_value gives, not scores."
            )
    return found


def _at_95(curve: Curve) -> float:
    """The share of OOD accepted where 95 % of ID is."""
    return curve.ood_accepted[int(np.searchsorted(curve.id_accepted, 0.95 - 1e-9))]


# Figures


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes that were given, or those of a new figure that belongs to nobody else."""
    if ax is not None:
        return ax
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def _in_percent(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda share, _: f"{100 * share:g}")


def _done(axes: Axes, given: Axes | None) -> Figure:
    """The figure, with a legend: beside the axes where the figure is ours, within them where it is not."""
    from .report import LEGEND

    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if given is None else {"loc": "best"}
    axes.legend(**LEGEND | beside)
    return cast("Figure", axes.figure)
