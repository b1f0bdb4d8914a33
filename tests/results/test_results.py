"""Results: written and read back equal, strictly, and averaged as said."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from heat_ood.errors import FormatError, InputError
from heat_ood.evaluation import evaluate_scores
from heat_ood.results._results import Curve, Entry, Missing, Picture, Results, Run, better
from results_data import GROUPS, cost, entry, evaluation, gallery, lines, measured, png, rich, small, without

ALL = {"small": small, "rich": rich, "without": without, "cost": cost, "gallery": gallery}


@pytest.mark.parametrize("make", [*ALL.values(), lambda: lines("lambda"), lambda: lines("beta")])
def test_json_round_trip_is_equal_and_always_the_same_text(make):
    results = make()
    text = results.to_json()
    assert Results.from_json(text) == results
    assert Results.from_json(text).to_json() == text == make().to_json()


def test_file_round_trip(tmp_path):
    path = rich().save(tmp_path / "results.json")
    assert Results.load(path) == rich()


def test_what_json_cannot_hold_comes_back():
    nan = Run(-1, evaluation({"a": (math.nan, 90.0)}))
    row = Entry("x", "paper", (nan,), {"beta": -math.inf, "sizes": [1, 2], "lam": np.float32(0.5)}, x=math.inf)
    results = replace(small(), entries=(row,), about={"n": np.int64(3), "path": [None, True]})
    text = results.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = Results.from_json(text)
    assert back.entries[0].x == math.inf
    assert back.entries[0].settings == {"beta": -math.inf, "sizes": [1, 2], "lam": 0.5}
    assert math.isnan(back.entries[0].runs[0].evaluation["a"].fpr_at_95_id)
    assert back.about == {"n": 3, "path": [None, True]}
    assert back.to_json() == text


WHOLE = rich(missing=(Missing("svhn", "x", "y"),)).to_json()


def damage(path: list, value: object = None) -> str:
    """The rich results with one value changed, or removed."""
    data = json.loads(WHOLE)
    *way, last = path
    place = data
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


RUN = ["entries", 0, "runs", 0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"),
        ("[]", "not of the format 'heat-ood/results'"),
        ("{}", "not of the format"),
        (damage(["version"], 3), "version 3"),
        (damage(["version"]), "version is None"),
        (damage(["format"], "heat-ood/evaluation"), "not of the format"),
        (damage(["suite"]), "results lacks 'suite'"),
        (damage(["suite"], 3), "results.suite is 3, not text"),
        (damage(["extra"], 1), "unknown 'extra'"),
        (damage(["groups"], ["a"]), "results.groups is not a mapping"),
        (damage(["groups", "near"], "cifar100"), "results.groups.near is not a list"),
        (damage(["groups", "near"], []), "in no group"),
        (damage(["entries"], {}), "results.entries is not a list"),
        (damage(["entries", 0], 7), "is not a Entry"),
        (damage(["entries", 0, "kind"], "best"), "no known kind"),
        (damage(["entries", 0, "runs"], []), "has no runs"),
        (damage(["entries", 1, "name"], "msp"), "two entries 'msp'"),
        (damage([*RUN, "seed"], 0.5), "seed is 0.5, not a whole number"),
        (damage([*RUN, "seed"], True), "seed is True, not a whole number"),
        (damage([*RUN, "seed"], 1), "two runs with one seed"),
        (damage([*RUN, "fit_seconds"], "fast"), "not a number"),
        (damage([*RUN, "alarms", "0.05"], True), "not a number"),
        (damage([*RUN, "evaluation", "rows", 0, "auroc"]), "evaluation cannot be read"),
        (damage([*RUN, "evaluation", "version"], 9), "evaluation cannot be read"),
        (damage([*RUN, "curves", "svhn", "edges"], [0.0, 1.0]), "an edge more than it has bins"),
        (damage([*RUN, "curves", "svhn", "edges", 0], "left"), "not a number"),
        (damage(["missing", 0, "put"]), "lacks 'put'"),
    ],
)
def test_damage_is_an_error_that_says_where(text, match):
    with pytest.raises(FormatError, match=match):
        Results.from_json(text)


def test_a_file_is_named_in_the_error(tmp_path):
    (tmp_path / "a.json").write_text("nothing")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    for name in ("a.json", "b.json"):
        with pytest.raises(FormatError, match=name):
            Results.load(tmp_path / name)
    with pytest.raises(InputError, match=r"\.json, \.md, \.csv, \.tex"):
        small().save(tmp_path / "results.xlsx")


def test_inputs_that_make_no_sense():
    with pytest.raises(InputError, match="need different names"):
        rich(groups={"near": ("a", "a")}, entries=())
    with pytest.raises(InputError, match="none of them 'average'"):
        rich(groups={"near": ("average",)}, entries=())
    with pytest.raises(InputError, match="data:image"):
        Picture("svhn", "https://example.com/a.png")
    with pytest.raises(InputError, match="bins for ID"):
        Curve((0.0, 1.0), (0.0, 1.0), (0.0, 1.0, 2.0), (0.5, 0.5), (1.0,))


def test_mean_and_spread_by_hand():
    results = small()
    gmm, heat = results.entries[1:]
    assert results.mean(gmm, "fpr_at_95_id", ("a",)).mean == pytest.approx(0.41)
    assert results.mean(gmm, "fpr_at_95_id", ("a",)).spread == pytest.approx(math.sqrt(2) / 100)
    assert results.mean(gmm, "fpr_at_95_id").mean == pytest.approx((0.425 + 0.435) / 2)
    assert results.mean(gmm, "fpr_at_95_id").spread == pytest.approx(0.01 / math.sqrt(2))
    assert results.mean(heat, "auroc", ("a", "b")).mean == pytest.approx(0.905)
    assert math.isnan(results.mean(heat, "auroc", ("a", "c")).mean)
    assert math.isnan(results.mean(heat, "auroc", ()).mean)
    with pytest.raises(InputError, match="no metric 'fpr95'"):
        results.mean(heat, "fpr95")


def test_a_group_apart_is_in_no_mean_and_comes_back_from_json():
    results = replace(small(), apart=("near",))
    assert results.found == ("a", "b")
    assert results.counted == ("b",)
    heat = results.entries[2]
    assert results.mean(heat, "auroc").mean == pytest.approx(0.92)
    assert results.mean(heat, "auroc", ("a",)).mean == pytest.approx(0.89)
    assert small().mean(heat, "auroc").mean == pytest.approx(0.905)
    assert [e.name for e in results.ranked("fpr_at_95_id")] == ["HEAT", "gmm", "msp"]
    assert Results.from_json(results.to_json()) == results
    older = json.loads(small().to_json())
    del older["apart"]
    assert Results.from_json(json.dumps(older)) == small()
    with pytest.raises(InputError, match="'mid' stands apart and is no group"):
        replace(small(), apart=("mid",))


def test_one_seed_has_no_spread():
    results = replace(small(), entries=(entry("x", "heat", {"a": (1.0, 99.0), "b": (2.0, 98.0)}),))
    assert math.isnan(results.mean(results.entries[0], "auroc").spread)


def test_ranked_the_best_first_by_either_direction():
    results = small()
    assert [e.name for e in results.ranked("fpr_at_95_id")] == ["HEAT", "gmm", "msp"]
    assert [e.name for e in results.ranked("auroc", ("a",))] == ["gmm", "HEAT", "msp"]
    assert (better("fpr_at_95_ood"), better("aupr_in")) == (-1, 1)


def test_what_was_found_and_what_is_the_paper_s():
    results = without("svhn")
    assert results.sets == tuple(name for names in GROUPS.values() for name in names)
    assert results.found == results.sets[:-1]
    assert results.seeds == (0, 1, 2)
    assert [e.kind for e in results.paper] == ["paper"]
    average = results.mean(results.paper[0], "fpr_at_95_id").mean
    assert average == pytest.approx(np.mean([0.40, 0.35, 0.30, 0.25, 0.20])), "over the sets that we have too"


def test_a_paper_row_with_an_average_alone_has_it():
    row = Entry("x", "paper", (Run(-1, evaluation({}, (25.0, 94.0))),))
    results = replace(small(), entries=(*small().entries, row))
    assert results.mean(row, "auroc").mean == pytest.approx(0.94)
    assert math.isnan(results.mean(row, "auroc", ("a",)).mean)


# Curves


@pytest.mark.parametrize("n", [1, 3, 100, 997])
def test_a_curve_passes_through_fpr95_and_has_the_area(n):
    rng = np.random.default_rng(n)
    id_scores, ood = rng.normal(size=n).round(1), rng.normal(1, 1, 500).round(1)
    curve = Curve.of(id_scores, ood)
    exact = evaluate_scores(id_scores, ood, intervals=False)["ood"]
    assert curve.ood_accepted[95] == pytest.approx(exact.fpr_at_95_id, abs=1e-5)
    assert (len(curve.id_accepted), len(curve.edges), len(curve.id_density)) == (101, 41, 40)
    for shares in (curve.id_accepted, curve.ood_accepted):
        assert shares[0] == 0
        assert (np.diff(shares) >= 0).all()
    assert curve.id_accepted[-1] == 1
    assert max(sum(curve.id_density), sum(curve.ood_density)) <= 1 + 1e-3
    if n == 997:
        x, y = (*curve.ood_accepted, 1.0), (*curve.id_accepted, 1.0)
        assert np.trapezoid(y, x) == pytest.approx(exact.auroc, abs=0.01)


def test_a_curve_by_hand():
    curve = Curve.of([0.0, 1.0, 2.0, 3.0], [2.5, 4.0])
    assert (curve.id_accepted[25], curve.ood_accepted[25]) == (0.25, 0.0)
    assert curve.ood_accepted[100] == 0.5
    assert (sum(curve.id_density) * 4, sum(curve.ood_density) * 2) == (3, 1), "the outermost are not in the range"


def test_a_curve_of_equal_scores_has_bins():
    curve = Curve.of([1.0] * 5, [1.0] * 3)
    assert curve.edges[0] < 1 < curve.edges[-1]
    assert curve.ood_accepted[1] == 1


def test_measured_helper_is_deterministic():
    assert measured("x", "baseline", 1.0) == measured("x", "baseline", 1.0)
    assert png((1, 2, 3)).startswith("data:image/png;base64,")


def test_a_run_keeps_the_curves_of_its_evaluation_once():
    found = evaluate_scores([0.0, 1.0, 2.0], {"far": [3.0, 4.0]}, curves=True)
    run = Run(0, found)
    assert run.curves == found.curves
    assert run.evaluation.curves == {}
    given = {"far": Curve.of([0.0], [1.0])}
    assert Run(0, found, curves=given).curves == given
    assert Results.of(found).to_json().count("id_accepted") == 1


def test_a_curve_of_an_older_file_has_no_threshold_and_one_is_read_off():
    text = json.loads(rich().to_json()) | {"version": 1}
    for row in text["entries"]:
        for one in row["runs"]:
            for curve in one["curves"].values():
                del curve["threshold"]
    back = Results.from_json(json.dumps(text))
    for old, new in zip(back.measured, rich().measured, strict=True):
        for name, curve in old.runs[0].curves.items():
            known = new.runs[0].curves[name]
            assert curve.threshold is None
            assert curve.accepting_95 == pytest.approx(known.threshold, abs=4 * (known.edges[1] - known.edges[0]))
