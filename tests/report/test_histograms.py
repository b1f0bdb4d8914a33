"""The pictures are written, robust to odd scores, and say what they cut."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from heat_ood.errors import InputError
from heat_ood.metrics import auroc
from heat_ood.report import panels, score_histograms
from heat_ood.report._histograms import density, limits
from heat_ood.report._style import COLOURS, STYLES

RNG = np.random.default_rng(0)
S, NEAR, FAR = RNG.normal(size=2000), RNG.normal(2, 1, size=1000), RNG.normal(500, 1, size=100)


def text_of(path):
    """SVG keeps each text in a comment beside its glyphs."""
    return path.read_text(encoding="utf-8")


def test_png(tmp_path):
    path = score_histograms(S, {"near": NEAR}, tmp_path / "h.png", threshold=1.6, title="HEAT")
    picture = imread(path)
    assert picture.shape[:2] == (4 * 160, 8.5 * 160)
    assert (picture[0, 0, :3] == 1).all()  # white
    assert (picture[..., :3] < 0.9).any()


def test_svg_names_sets_auroc_and_threshold(tmp_path):
    text = text_of(
        score_histograms(torch.as_tensor(S), {"near": NEAR}, tmp_path / "h.svg", threshold=1.6, title="HEAT")
    )
    for expected in ("ID, n = 2,000", "near, AUROC 9", "threshold 1.6", "HEAT", "score (higher = more OOD)", "density"):
        assert f"<!-- {expected}" in text
    assert "AUROC" not in text_of(score_histograms(S, {"near": NEAR}, tmp_path / "g.svg", show_auroc=False))


def test_a_far_set_neither_squeezes_the_others_nor_vanishes(tmp_path):
    low, high = limits(S, [NEAR, FAR], None)
    assert low > -6
    assert high < 8
    assert "(100 % off right)" in text_of(score_histograms(S, {"near": NEAR, "far": FAR}, tmp_path / "h.svg"))
    assert limits(S, [FAR], None)[1] > 500  # nothing else to show
    assert limits(S, [NEAR], 20.0)[1] > 20


def test_a_tall_peak_is_cut_and_named(tmp_path):
    sets = {str(i): RNG.uniform(-3, 3, size=500) for i in range(3)}
    assert "<!-- ID, n = 500 (peak" in text_of(score_histograms(np.zeros(500), sets, tmp_path / "h.svg"))


def test_density_keeps_the_share_off_the_axis():
    edges = np.linspace(0, 1, 11)
    assert density(np.array([0.05, 0.15, 7.0, 9.0]), edges).sum() * 0.1 == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("s", "t"),
    [
        ([1.0], [1.0]),
        ([0.0] * 9, [1.0]),
        (1e8 + 1e-7 * S, 1e8 + 1e-7 * NEAR),
        (1e-30 * S, 1e-30 * NEAR),
        ([0.0], [1e12]),
    ],
    ids=["one-score", "constant", "large-offset", "tiny", "far-apart"],
)
def test_odd_scores(tmp_path, s, t):
    assert score_histograms(s, {"ood": t}, tmp_path / "h.png", threshold=float(s[0])).stat().st_size > 0


def test_odd_names_are_shown_as_they_are(tmp_path):
    text = text_of(score_histograms(S, {"_hidden": NEAR, "$a$ \\frac": NEAR}, tmp_path / "h.svg", title="50 $ or $x_"))
    assert "_hidden" in text


def test_no_ood_set_draws_id_alone(tmp_path):
    assert score_histograms(S, {}, tmp_path / "h.png").exists()


def test_panels_keep_a_sets_colour(tmp_path):
    path = panels({"MSP": (S, {"a": NEAR, "b": NEAR + 1}), "HEAT": (S, {"b": NEAR + 1})}, tmp_path / "p.svg")
    text = text_of(path)
    assert "<!-- MSP" in text
    assert "<!-- HEAT" in text
    lines = [text.lower().count(f"stroke: {colour}") for colour in COLOURS[:3]]
    assert lines == [2, 3, 0]  # a line in each panel and one in the legend of all
    assert imread(panels({"MSP": (S, {"a": NEAR})}, tmp_path / "p.png")).size


def test_panels_have_one_legend_and_a_threshold_each(tmp_path):
    columns = {"MSP": (S, {"a": NEAR, "ID": NEAR}), "HEAT": (S, {"a": NEAR + 1, "ID": NEAR})}
    text = text_of(panels(columns, tmp_path / "p.svg", thresholds={"HEAT": 1.25}))
    assert text.count('id="legend_') == 1
    assert text.count("<!-- ID, n = ") == 1
    found = [f"{100 * auroc(S, t):.1f}" for t in (NEAR, NEAR + 1)]
    assert f"<!-- a, MSP: AUROC {found[0]}; HEAT: AUROC {found[1]} " in text
    assert f"<!-- ID, AUROC {found[0]} " in text  # a set of this name is not the ID samples
    assert text.count("<!-- threshold 1.25 ") == text.count("<!-- threshold ") == 1


def test_many_sets_stay_distinct():
    pairs = {(COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)]) for i in range(42)}
    assert len(pairs) == 42


def test_pyplot_is_left_alone(tmp_path):
    code = (
        "import sys; from heat_ood.report import score_histograms; "
        f"score_histograms([0, 1], {{'a': [2]}}, {str(tmp_path / 'h.png')!r}); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bad_arguments(tmp_path):
    with pytest.raises(InputError, match=r"h\.png or h\.svg"):
        score_histograms(S, {"near": NEAR}, tmp_path / "h.jpg")
    with pytest.raises(InputError, match="threshold"):
        score_histograms(S, {"near": NEAR}, tmp_path / "h.png", threshold=float("nan"))
    with pytest.raises(InputError, match="the OOD set 'x' is empty"):
        score_histograms(S, {"x": []}, tmp_path / "h.png")
    with pytest.raises(InputError, match="no panel"):
        panels({}, tmp_path / "h.png")
