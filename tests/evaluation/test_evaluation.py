"""Rows, the average, and what they turn into: Markdown, JSON, CSV."""

import base64
import csv
import io
import json
import math
from dataclasses import replace
from functools import partial
from io import BytesIO
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image

from heat_ood.errors import FormatError, InputError
from heat_ood.evaluation import Evaluation, compare, evaluate, evaluate_scores, unusual
from heat_ood.features._features import Features
from heat_ood.metrics import METRICS, percentile_intervals, replicates, summary


class Norm:
    """A detector that counts its calls."""

    def __init__(self):
        self.calls = []

    def score(self, x):
        self.calls.append(len(x))
        return x.avg.norm(dim=1)


def normal(n, shift, seed):
    return np.random.default_rng(seed).normal(shift, 1, n)


S = normal(300, 0, 0)
SETS = {"near": normal(200, 1, 1), "far": normal(100, 3, 2)}


@pytest.fixture(scope="module")
def evaluation():
    return evaluate_scores(S, SETS)


def features(n, seed, scale=1.0):
    return Features(avg=scale * torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)))


def test_rows_are_the_summaries(evaluation):
    assert len(evaluation) == 2
    assert evaluation.names == tuple(row.name for row in evaluation) == ("near", "far")
    for row in evaluation:
        assert {m: getattr(row, m) for m in METRICS} == vars(summary(S, SETS[row.name]))
        assert (row.n_id, row.n_ood) == (300, len(SETS[row.name]))
        assert evaluation[row.name] is row
        assert set(row.intervals) == set(METRICS)
        for m, (low, high) in row.intervals.items():
            assert low <= getattr(row, m) <= high
    with pytest.raises(KeyError, match="near, far"):
        evaluation["nearer"]


def test_average_counts_each_set_once(evaluation):
    for m in METRICS:
        assert getattr(evaluation.average, m) == pytest.approx(
            (getattr(evaluation["near"], m) + getattr(evaluation["far"], m)) / 2
        )
    assert (evaluation.average.n_id, evaluation.average.n_ood) == (300, 300)


def test_the_averages_interval_shares_the_id_resamples():
    # OOD sets of equal scores do not vary: all the spread is that of ID, and it must not average out over sets.
    ood = {str(i): np.full(3, 0.5) for i in range(8)}
    evaluation = evaluate_scores(S, ood)
    assert evaluation.average.intervals["auroc"] == pytest.approx(evaluation["0"].intervals["auroc"], abs=1e-12)
    # A single ID score does not vary either: the spread is that of OOD, and it does average out.
    evaluation = evaluate_scores([0.5], {str(i): SETS["near"] for i in range(8)})
    width = np.diff(evaluation.average.intervals["auroc"]).item()
    assert width < 0.6 * np.diff(evaluation["0"].intervals["auroc"]).item()


def test_intervals_come_from_the_bootstrap(evaluation):
    alone = evaluate_scores(S, {"far": SETS["far"]})
    assert alone["far"] == evaluation["far"]  # whatever sets stand beside it
    assert alone.average.intervals == alone["far"].intervals
    other = evaluate_scores(S, SETS, bootstrap=50, level=0.5, seed=7)
    assert (other.resamples, other.level, other.seed) == (50, 0.5, 7)
    assert other["far"].intervals != evaluation["far"].intervals
    rows = [replicates(S, t, 50, 7, stream=crc32(name.encode())) for name, t in SETS.items()]
    expected = percentile_intervals(np.mean(rows, axis=0), 0.5)
    assert other.average.intervals == expected


def test_a_detector_scores_each_set_once():
    detector, test = Norm(), features(60, 0)
    ood = {"a": features(50, 1, 1.5), "b": features(40, 2, 2.0)}
    evaluation = evaluate(detector, test, ood)
    assert detector.calls == [60, 50, 40]
    assert evaluation == evaluate_scores(Norm().score(test), {k: Norm().score(v) for k, v in ood.items()})


def test_batches_do_not_matter():
    detector, test, ood = Norm(), features(60, 0), features(45, 1)
    assert evaluate(detector, test, ood, batch_size=16) == evaluate(Norm(), test, ood)
    assert detector.calls == [16, 16, 16, 12, 16, 16, 13]


def test_a_single_set_is_named_ood():
    assert evaluate(Norm(), features(9, 0), features(8, 1)).names == ("ood",)
    assert evaluate_scores(S, SETS["far"]).names == ("ood",)


def test_without_intervals():
    plain = evaluate_scores(S, SETS, intervals=False)
    assert all(not row.intervals for row in (*plain, plain.average))
    assert plain.to_dict()["bootstrap"] is None
    assert "[" not in plain.to_markdown()
    assert Evaluation.from_json(plain.to_json()) == plain


def test_bad_arguments():
    with pytest.raises(InputError, match="no OOD set"):
        evaluate_scores(S, {})
    with pytest.raises(InputError, match="'average'"):
        evaluate_scores(S, {"average": S})
    with pytest.raises(InputError, match="string"):
        evaluate_scores(S, {1: S})
    with pytest.raises(InputError, match="the OOD set 'x' has 1 non-finite among 3 scores, the first at index 2"):
        evaluate_scores(S, {"x": [0, 1, np.nan]})
    with pytest.raises(InputError, match="the ID set is empty"):
        evaluate(Norm(), features(9, 0)[:0], features(9, 0), batch_size=4)
    with pytest.raises(InputError, match="batch"):
        evaluate(Norm(), features(9, 0), features(9, 0), batch_size=0)


# Formats


def test_json_round_trip(evaluation, tmp_path):
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    data = json.loads(evaluation.to_json())
    assert data["convention"] == "score: higher = more OOD"
    assert data["rows"][0]["auroc"] == evaluation["near"].auroc
    assert data["bootstrap"] == {"resamples": 200, "level": 0.95, "seed": 0}
    evaluation.save(tmp_path / "result.json")
    assert Evaluation.from_json((tmp_path / "result.json").read_text(encoding="utf-8")) == evaluation


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "{}", '{"format": "other", "version": 1}'])
def test_json_of_something_else(text):
    with pytest.raises(FormatError, match=r"The evaluation is (not of the format|damaged: it is not JSON).*to_json"):
        Evaluation.from_json(text)


def test_json_that_is_damaged(evaluation):
    with pytest.raises(FormatError, match="version 3"):
        Evaluation.from_json(json.dumps(evaluation.to_dict() | {"version": 3}))
    for key, value in (
        ("rows", None),
        ("rows", [{}]),
        ("average", []),
        ("bootstrap", {"x": 1}),
        ("rows", ["x"]),
        ("x", 1),
    ):
        with pytest.raises(FormatError, match="damaged"):
            Evaluation.from_json(json.dumps(evaluation.to_dict() | {key: value}))


def test_nan_is_text_that_json_can_hold(evaluation):
    unknown = replace(evaluation, average=replace(evaluation.average, auroc=math.nan))
    text = unknown.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert math.isnan(Evaluation.from_json(text).average.auroc)
    assert math.isnan(Evaluation.from_json(text.replace('"nan"', "NaN")).average.auroc), "as 0.1 wrote it"


def test_csv(evaluation, tmp_path):
    evaluation.save(tmp_path / "result.CSV")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "result.CSV").read_text())))
    assert [line["name"] for line in lines] == ["near", "far", "average"]
    for line, row in zip(lines, (*evaluation, evaluation.average), strict=True):
        for m in METRICS:
            assert float(line[m]) == getattr(row, m)
            assert (float(line[m + "_low"]), float(line[m + "_high"])) == row.intervals[m]


def test_markdown(tmp_path):
    evaluation = evaluate_scores([0, 1, 1, 2], {"a|b": [1, 2, 3]}, bootstrap=10)
    lines = evaluation.to_markdown(intervals=False).splitlines()
    assert lines[0] == "| OOD set | n_ood | AUROC ↑ | AUPR-in ↑ | AUPR-out ↑ | fpr_at_95_id ↓ | fpr_at_95_ood ↓ |"
    assert lines[2] == r"| a\|b | 3 | 79.2 | 79.2 | 72.2 | 66.7 | 75.0 |"
    assert lines[3] == "| **average** | 3 | 79.2 | 79.2 | 72.2 | 66.7 | 75.0 |"
    assert "4 ID samples; score: higher = more OOD." in lines[-1]
    evaluation.save(tmp_path / "result.md")
    text = (tmp_path / "result.md").read_text(encoding="utf-8")
    assert "79.2 [" in text
    assert "95 % bootstrap intervals, 10 resamples" in text


def test_repr_is_an_aligned_table(evaluation):
    title, *lines = repr(evaluation).splitlines()
    assert "higher = more OOD" in title
    assert len({len(line) for line in lines}) == 1
    assert [line.split()[0] for line in lines[1:]] == ["near", "far", "average"]


def test_unknown_suffix(evaluation, tmp_path):
    with pytest.raises(InputError, match=r"result\.md, result\.json or result\.csv"):
        evaluation.save(tmp_path / "result.txt")


def test_compare():
    good = evaluate_scores([0, 1], {"a": [2, 3], "b": [2, 3]}, intervals=False)
    mixed = evaluate_scores([0, 1], {"b": [0, 1], "a": [2, 3]}, intervals=False)
    lines = compare({"good": good, "mixed": mixed}).splitlines()
    assert lines[0] == "|  | a | b | average |"
    assert lines[2] == "| good | **0.0** / **100.0** | **0.0** / **100.0** | **0.0** / **100.0** |"
    assert lines[3] == "| mixed | **0.0** / **100.0** | 100.0 / 50.0 | 50.0 / 75.0 |"
    assert "fpr_at_95_id ↓ / AUROC ↑" in lines[-1]


def test_compare_needs_the_same_sets():
    one, other = evaluate_scores(S, {"a": S}, intervals=False), evaluate_scores(S, {"b": S}, intervals=False)
    with pytest.raises(InputError, match="'y' was evaluated on b, the first on a"):
        compare({"x": one, "y": other})
    with pytest.raises(InputError, match="Nothing to compare"):
        compare({})


# What is kept for pictures


@pytest.fixture(scope="module")
def drawn():
    return evaluate_scores(S, SETS, curves=True)


def test_curves_are_kept_where_they_are_asked_for(evaluation, drawn):
    assert evaluation.curves == {}
    assert "curves" not in evaluation.to_dict()
    assert list(drawn.curves) == ["near", "far"]
    assert list(evaluate(Norm(), features(9, 0), features(8, 1)).curves) == ["ood"]
    assert evaluate(Norm(), features(9, 0), features(8, 1), curves=False).curves == {}
    assert drawn == evaluation, "they are the same numbers"


def test_files_of_the_first_version_still_open(evaluation):
    data = json.loads(evaluation.to_json())
    old = {key: value for key, value in data.items() if key != "curves"} | {"version": 1}
    assert Evaluation.from_dict(old) == replace(evaluation, curves={})


def test_curves_are_kept_with_the_threshold_that_accepts_95_percent(drawn):
    back = Evaluation.from_json(drawn.to_json())
    assert back.curves == drawn.curves
    for name, scores in SETS.items():
        curve = back.curves[name]
        accepted = np.asarray(scores) <= curve.threshold
        assert accepted.mean() == pytest.approx(drawn[name].fpr_at_95_id, abs=1 / len(scores))
        assert np.mean(np.asarray(S) <= curve.threshold + 1e-6) >= 0.95
        width = curve.edges[1] - curve.edges[0]
        guess = replace(curve, threshold=None).accepting_95
        assert guess == pytest.approx(curve.threshold, abs=3 * width), "read off the histogram of an old file"
        assert curve.accepting_95 == curve.threshold


def test_the_images_judged_most_wrongly_are_kept_small():
    images = [(f"{i}.png", partial(Image.new, "L", (200 + i, 100), i)) for i in range(40)]
    id_scores = np.arange(40.0)
    known = unusual("HEAT", id_scores, images, "test")
    assert [picture.file for picture in known] == [f"{i}.png" for i in range(39, 27, -1)]
    assert [picture.caught_by for picture in known[:3]] == [("HEAT",), ("HEAT",), ()]
    missed = unusual("HEAT", id_scores, images, "svhn", -id_scores)
    assert [picture.file for picture in missed[:2]] == ["39.png", "38.png"]
    assert missed[0].missed_by == ("HEAT",)
    assert missed[0].scores == {"HEAT": -39.0}
    for picture in (*known, *missed):
        with Image.open(BytesIO(base64.b64decode(picture.image.partition(",")[2]))) as image:
            assert max(image.size) == 96
    assert unusual("HEAT", id_scores, None, "test") == ()


def test_an_image_that_cannot_be_read_is_left_out():
    def broken():
        raise OSError("gone")

    images = [("a", partial(Image.new, "RGB", (8, 8))), ("b", broken)]
    assert [picture.file for picture in unusual("HEAT", [0.0, 1.0], images, "test")] == ["a"]


def test_as_a_data_frame() -> None:
    found = evaluate_scores([0.0, 1.0, 2.0], {"near": [1.5, 2.5], "far": [9.0]}, intervals=False)
    frame = found.to_frame()
    assert list(frame.index) == ["near", "far", "average"]
    assert frame.loc["far", "auroc"] == 1.0
    assert frame.loc["near", "n_ood"] == 2
