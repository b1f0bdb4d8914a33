"""Tables: what is marked, what is missing, where HEAT loses, and every format."""

import csv
import io
import math
from dataclasses import replace

import pytest

from heat_ood.results._findings import champion, columns, duel, in_words, judged, losses, points
from heat_ood.results._results import Entry, Results, Run
from heat_ood.results._tables import grid, notes, to_csv, to_latex, to_markdown
from results_data import cost, entry, evaluation, rich, small, without


def cells(text: str, name: str) -> list[str]:
    """The cells of a row of the first Markdown table."""
    (line, *_) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_markdown_by_hand():
    text = to_markdown(small())
    assert cells(text, "msp") == ["60.0 / 80.0", "50.0 / 85.0", "55.0 ± 0.0 / 82.5 ± 0.0"]
    assert cells(text, "gmm") == ["**41.0** / **90.0**", "*45.0* / *86.0*", "*43.0* ± 0.7 / *88.0* ± 0.0"]
    assert cells(text, "HEAT") == ["*45.0* / *89.0*", "**30.0** / **92.0**", "**37.5** ± 0.7 / **90.5** ± 0.0"]
    assert "|  | near: a | far: b | average |" in text
    assert "a: FPR95 (fpr_at_95_id) 41.0 by gmm against 45.0; AUROC 90.0 by gmm against 89.0." in text


def test_columns_have_groups_their_averages_and_the_average():
    names = [column.title for column in columns(rich())]
    assert names == [
        *("cifar100", "tinyimagenet", "near average", "scenes", "clothing", "mid average"),
        *("textures", "svhn", "far average", "average"),
    ]
    one = rich(groups={"ood": tuple(rich().sets)})
    assert [column.title for column in columns(one)] == [*one.sets, "average"]


def apart() -> Results:
    """HEAT loses on a, which stands apart."""
    return replace(small(), apart=("near",))


def test_a_group_apart_is_shown_and_counts_nowhere():
    text = to_markdown(apart())
    assert cells(text, "gmm") == ["41.0 / 90.0", "*45.0* / *86.0*", "*45.0* ± 0.0 / *86.0* ± 0.0"]
    assert cells(text, "HEAT") == ["45.0 / 89.0", "**30.0** / **92.0**", "**30.0** ± 0.0 / **92.0** ± 0.0"]
    assert "|  | near, apart: a | far: b | average |" in text
    assert "against 1 OOD sets" in text
    assert "near: reported apart, in no average" in text
    assert losses(apart()) == []
    assert losses(small())
    assert [column.title for column in judged(apart())] == ["b", "average"]
    assert r"\multicolumn{1}{c}{\textit{near, apart}}" in to_latex(apart())
    wide = rich(apart=("far",))
    assert "| far, apart: textures | far, apart: svhn | far, apart: average | average |" in to_markdown(wide)


def test_ties_as_printed_share_their_mark():
    rows = [entry(name, "baseline", {"a": (fpr, 90.0)}) for name, fpr in (("x", 10.01), ("y", 10.02), ("z", 10.2))]
    results = Results("s", "t", "i", "b", {"ood": ("a",)}, "main", tuple(rows))
    assert [row[0].mark for row in grid(results, "fpr_at_95_id")] == ["best", "best", "second"]
    assert [row[0].mark for row in grid(results, "auroc")] == ["best", "best", "best"]


def test_paper_rows_stand_apart_and_are_never_marked():
    first = replace(rich(), entries=rich().entries[::-1])
    text = to_markdown(first)
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert names.index("HEAT (paper)") > names.index("msp")
    assert "*" not in "".join(cells(text, "HEAT (paper)"))
    assert "copied from the paper" in text
    paper = next(i for i, e in enumerate(first.entries) if e.kind == "paper")
    assert not any(value.mark for value in grid(first, "auroc")[paper])


def test_missing_sets_are_gaps_with_directions():
    text = to_markdown(without("svhn"))
    svhn = [column.title for column in columns(without())].index("svhn")
    assert cells(text, "HEAT")[svhn] == "–"
    assert cells(text, "HEAT (paper)")[svhn] == "15.0 / 93.0"
    assert "svhn (get it from the web page of the set; put it in data/svhn/)" in text


def test_the_full_table_has_every_metric_with_intervals():
    text = to_markdown(rich())
    assert "| average | AUROC ↑ | AUPR-in ↑ | AUPR-out ↑ | fpr_at_95_id ↓ | fpr_at_95_ood ↓ |" in text
    row = [line for line in text.splitlines() if line.startswith("| HEAT |")][1]
    assert row.count("[") == 5
    assert "OpenOOD v1.5's" in text
    assert to_markdown(rich(), full=False).count("| HEAT |") == 1


def test_csv_is_complete_and_unrounded():
    results = rich()
    rows = list(csv.DictReader(io.StringIO(to_csv(results))))
    assert len(rows) == (5 * 3 + 1) * 7
    row = next(r for r in rows if (r["name"], r["kind"], r["seed"], r["set"]) == ("HEAT", "heat", "1", "svhn"))
    expected = results.entries[4].runs[1].evaluation["svhn"]
    assert float(row["auroc"]) == expected.auroc
    assert float(row["auroc_low"]) == expected.intervals["auroc"][0]
    assert row["group"] == "far"


def test_csv_leaves_out_what_is_not_known():
    nan = Entry("x", "paper", (Run(-1, evaluation({"a": (math.nan, 90.0)})),))
    (row, _) = csv.DictReader(io.StringIO(to_csv(replace(small(), entries=(nan,)))))
    assert row["fpr_at_95_id"] == ""
    assert row["auroc"] == "0.9"


def test_latex_marks_and_escapes():
    odd = entry("50% & a_b, λ = 1", "baseline", {"a": (70.0, 70.0), "b": (70.0, 70.0)})
    paper = Entry("HEAT", "paper", (Run(-1, evaluation({"a": (1.0, 99.0)}, (math.nan, math.nan))),))
    text = to_latex(replace(small(), entries=(paper, *small().entries, odd)))
    assert r"gmm & \textbf{41.0} / \textbf{90.0} & \underline{45.0} / \underline{86.0}" in text
    assert r"50\% \& a\_b, $\lambda$ = 1 & 70.0" in text
    assert "\\midrule\nHEAT (paper) & 1.0 / 99.0 & -- & --" in text
    assert text.count(r"\multicolumn{1}{c}") == 2
    body = text[text.index("Method") : text.index(r"\bottomrule")]
    assert {line.count(" & ") for line in body.splitlines() if line.endswith(r"\\")} == {3}


def test_costs_are_a_table():
    text = to_markdown(cost())
    assert "| HEAT | 25 | 100.0 |" in text
    assert "| backbone | 20 | 80.0 |" in text


@pytest.mark.parametrize("suffix", [".md", ".csv", ".tex"])
def test_every_format_is_saved_by_its_suffix(tmp_path, suffix):
    writers = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
    path = rich().save(tmp_path / f"results{suffix}")
    assert path.read_text(encoding="utf-8") == writers[suffix](rich())


# Findings


def test_heat_s_losses_by_name_and_number():
    found = losses(small())
    assert [(loss.column, loss.metric, loss.winner, loss.best, loss.own) for loss in found] == [
        ("a", "fpr_at_95_id", "gmm", "41.0", "45.0"),
        ("a", "auroc", "gmm", "90.0", "89.0"),
    ]
    assert in_words(found).startswith("a: FPR95 (fpr_at_95_id) 41.0 by gmm against 45.0; AUROC")


def test_heat_that_wins_everywhere_is_said_to():
    results = replace(small(), entries=(small().entries[0], small().entries[2]))
    assert losses(results) == []
    assert any("every column" in note for note in notes(results))


def test_the_champion_is_heat_itself_or_the_only_one_of_its_kind():
    heat = small().entries[2]
    other = entry("HEAT with dice", "heat", {"a": (1.0, 99.0), "b": (1.0, 99.0)})
    assert champion(replace(small(), entries=(other, heat))) is heat
    assert champion(replace(small(), entries=(other,))) is other
    assert champion(replace(small(), entries=(other, replace(other, name="x")))) is None
    assert champion(replace(small(), entries=())) is None
    parts = [replace(other, name=name) for name in ("gmm, corrected", "gmm + energy, corrected", "energy, corrected")]
    assert champion(replace(small(), entries=tuple(parts))) is parts[1]
    assert champion(replace(small(), entries=(replace(heat, x=1.0, series="s"),))) is None


def test_a_duel_by_hand():
    results = small()
    msp, gmm, heat = results.entries
    match = duel(results, heat, gmm)
    assert match.lead == pytest.approx(0.43 - 0.375)
    assert match.spread == pytest.approx(math.hypot(0.01, 0.01) / math.sqrt(2))
    assert match.clear is True
    assert match.verdict == "more than the spread over seeds, 1.0 points"
    assert duel(results, heat, gmm, "auroc", ("a",)).lead == pytest.approx(-0.01)
    assert duel(results, msp, gmm, "auroc").clear is True

    near = replace(heat, runs=tuple(Run(s, evaluation({"a": (40.0, 90), "b": (f, 90)})) for s, f in ((0, 40), (1, 52))))
    assert duel(replace(results, entries=(gmm, near)), near, gmm).clear is False
    one = replace(heat, runs=heat.runs[:1])
    alone = replace(results, entries=(replace(gmm, runs=gmm.runs[:1]), one))
    assert duel(alone, one, alone.entries[0]).clear is None
    assert "one seed" in duel(alone, one, alone.entries[0]).verdict


def test_small_differences_get_another_digit():
    assert (points(0.0123), points(-0.0123), points(0.0004)) == ("1.2 points", "1.2 points", "0.04 points")
