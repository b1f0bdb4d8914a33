"""The pictures as figures: right numbers, any kind of scores, one's own axes, and no global state."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import heat_ood.plot as plot
from heat_ood.errors import InputError
from heat_ood.evaluation import Evaluation, evaluate_scores
from heat_ood.metrics import auroc, fpr_at_95_id

RNG = np.random.default_rng(0)
S, NEAR, FAR = RNG.normal(size=400), RNG.normal(1.5, 1, size=300), RNG.normal(9, 1, size=200)
SETS = {"near": NEAR, "far": FAR}


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def drawn(figure: Figure) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, np.ndarray.tolist])
@pytest.mark.parametrize("draw", [plot.scores, plot.roc])
def test_arrays_tensors_and_lists_draw_the_same(draw: Any, kind: Any) -> None:
    assert drawn(draw(kind(S), {"near": kind(NEAR)})) == drawn(draw(S, {"near": NEAR}))


def test_scores_show_each_set_and_the_threshold() -> None:
    figure = plot.scores(S, SETS, threshold=1.6, title="HEAT")
    assert legend(figure)[0] == "ID, n = 400"
    assert legend(figure)[1].startswith(f"near, AUROC {100 * auroc(S, NEAR):.1f}")
    (axes,) = figure.axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[1.6, 1.6]]
    assert "threshold 1.6" in [text.get_text() for text in axes.texts]
    assert axes.get_title(loc="left") == "HEAT"
    assert not plot.scores(S, SETS).axes[0].lines
    assert legend(plot.scores(S, NEAR))[1].startswith("ood, ")


def test_roc_curves_pass_through_fpr95() -> None:
    figure = plot.roc(S, SETS)
    fpr = fpr_at_95_id(S, NEAR)
    curve, dot, *_ = figure.axes[0].lines
    x, y = np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    assert np.trapezoid(y, x) == pytest.approx(auroc(S, NEAR), abs=0.02)
    assert dot.get_xdata()[0] == pytest.approx(fpr, abs=1e-4)
    assert legend(figure) == [
        f"near, AUROC {100 * auroc(S, NEAR):.1f}, FPR95 {100 * fpr:.1f}",
        "far, AUROC 100.0, FPR95 0.0",
    ]


def test_roc_curves_that_collapse_are_shown_in_their_corner() -> None:
    (whole,), (zoomed,) = plot.roc(S, SETS).axes, plot.roc(S, {"far": FAR}).axes
    assert (whole.get_xlim(), whole.get_ylim()) == ((0, 1), (0, 1))
    assert zoomed.get_xlim()[1] <= 0.05
    assert zoomed.get_ylim()[0] >= 0.5
    assert "corner" in zoomed.get_xlabel()
    assert "corner" not in whole.get_xlabel()


def test_an_evaluation_is_drawn_as_its_scores_are() -> None:
    evaluation = evaluate_scores(S, SETS, curves=True)
    assert drawn(plot.roc(evaluation)) == drawn(plot.roc(S, SETS))
    assert drawn(plot.roc(Evaluation.from_json(evaluation.to_json()))) == drawn(plot.roc(S, SETS))


def test_reliability_counts_false_alarms() -> None:
    p = (np.arange(1000) + 1) / 1000
    figure = plot.reliability({"good": p, "twice": np.minimum(p / 2, 1)}, rates=(0.01, 0.05, 0.1))
    good, twice = figure.axes[0].lines[-2:]
    assert np.asarray(good.get_ydata()) == pytest.approx([0.01, 0.05, 0.1])
    assert np.asarray(twice.get_ydata()) == pytest.approx([0.02, 0.1, 0.2])
    assert figure.axes[0].get_ylim()[1] > 0.2
    assert legend(figure)[2:] == ["good, n = 1,000", "twice, n = 1,000"]


def test_reliability_of_a_detector() -> None:
    class Detector:
        name = "half"

        def p_value(self, x: Any) -> Any:
            return torch.as_tensor(x, dtype=torch.float64) / 2

    figure = plot.reliability(Detector(), [0.1, 0.2, 0.9, 1.0], rates=(0.1,))
    assert figure.axes[0].lines[-1].get_ydata().tolist() == [0.5]
    with pytest.raises(InputError, match=r"reliability\(detector, held_out\)"):
        plot.reliability(Detector())


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plot.scores(S, SETS, ax=ax),
        lambda ax: plot.roc(S, SETS, ax=ax),
        lambda ax: plot.reliability([0.5], ax=ax),
    ],
)
def test_axes_of_ones_own(draw: Any) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert draw(right) is figure
    assert len(figure.axes) == 2
    assert right.get_legend() is not None
    assert left.get_legend() is None
    assert drawn(figure)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.scores([], SETS), "the ID set is empty"),
        (lambda: plot.scores(S, SETS, threshold=float("nan")), "threshold"),
        (lambda: plot.roc(S), r"roc\(id_scores"),
        (lambda: plot.roc(evaluate_scores(S, SETS, curves=True), SETS), "already"),
        (lambda: plot.roc(Evaluation((), evaluate_scores(S, SETS, curves=True).average)), "without curves"),
        (lambda: plot.reliability(S), r"not between 0 and 1.*not scores"),
        (lambda: plot.reliability([0.5], [0.5]), "go with a detector"),
        (lambda: plot.reliability({}), "no p-values"),
        (lambda: plot.reliability([0.5], rates=(5,)), "between 0 and 1"),
    ],
)
def test_bad_arguments(draw: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw()


def test_matplotlib_is_loaded_when_it_is_used_and_pyplot_never() -> None:
    code = (
        "import sys, heat_ood.plot as p; a = 'matplotlib' in sys.modules; p.scores([0, 1], [2]); p.roc([0, 1], [2]); "
        "p.reliability([0.5]); sys.exit(a or 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
