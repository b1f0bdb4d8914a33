"""The paper's numbers: as its source prints them, and consistent where it is."""

import re
from pathlib import Path

import numpy as np
import pytest

from heat_ood.benchmarks._paper import data, paper_costs, paper_doubts, paper_entries

TEX = Path(__file__).parents[3] / "shared" / "paper" / "heat.tex"
TABLES = [(table["label"], table["suite"], table["experiment"]) for table in data()["tables"]]
NUMBER = re.compile(r"\d+\.\d")
NEW_LINE = r"\\"


def numbers_of(label: str) -> list[list[float]]:
    """All rows of numbers of a table in the paper's source, by the text before its label."""
    if not TEX.exists():
        pytest.skip(f"the paper's source is not at {TEX}")
    before = TEX.read_text(encoding="utf-8").split(rf"\label{{{label}}}")[0]
    body = before[before.rindex(r"\begin{tabular}") : before.rindex(r"\end{tabular}")]
    body = re.sub(r"gray\]\{\.95\}|\{0\.1pt\}|\[1pt\]|(?<!\\)%.*", "", body)
    rows = [[float(n) for n in NUMBER.findall(row)] for row in body.split(NEW_LINE)]
    return [row for row in rows if row]


def rows_of(label: str) -> list[list[float]]:
    """All rows of numbers of a table in our file, in the order of the source."""
    tables = [table for table in data()["tables"] if table["label"] == label]
    return [[float(n) for n in NUMBER.findall(line)] for table in tables for line in table["rows"].values()]


@pytest.mark.parametrize("label", sorted({label for label, *_ in TABLES} - {"tab:ablation_fusion"}))
def test_every_number_is_the_source_s(label):
    printed, ours = numbers_of(label), rows_of(label)
    assert len(ours) >= 2
    assert ours == printed


def test_the_composition_table_has_both_data_sets_in_one_row():
    ours = rows_of("tab:ablation_fusion")
    half = len(ours) // 2
    assert [a + b for a, b in zip(ours[:half], ours[half:], strict=True)] == numbers_of("tab:ablation_fusion")


def test_all_result_tables_of_the_source_are_here():
    if not TEX.exists():
        pytest.skip(f"the paper's source is not at {TEX}")
    labels = set(re.findall(r"\\label\{(tab:[^}]*)\}", TEX.read_text(encoding="utf-8")))
    assert labels == {label for label, *_ in TABLES} | {"tab:compute_cost"}


@pytest.mark.parametrize(
    ("suite", "experiment", "name", "where", "metric", "percent"),
    [
        ("cifar10", "main", "HEAT", "cifar100", "fpr_at_95_id", 43.1),
        ("cifar10", "main", "HEAT", "average", "auroc", 94.8),
        ("cifar10", "main", "vim", "svhn", "fpr_at_95_id", 3.6),
        ("cifar100", "main", "ssd", "textures", "auroc", 92.4),
        ("cifar100", "main", "HEAT", "cifar10", "fpr_at_95_id", 83.7),
        ("imagenet", "main", "dice", "inaturalist", "fpr_at_95_id", 26.6),
        ("imagenet", "main", "HEAT with dice", "textures", "auroc", 97.5),
        ("imagenet-supcon", "main", "knn", "sun", "auroc", 88.4),
        ("imagenet-openood", "main", "HEAT", "mnist", "aupr_in", 100.0),
        ("imagenet-openood", "main", "react", "species", "fpr_at_95_id", 68.4),
        ("imagenet-openood", "main", "mahalanobis", "average", "auroc", 76.8),
        ("imagenet-vit", "main", "vim-residual", "inaturalist", "auroc", 98.6),
        ("cifar10", "correction", "gmm-std, corrected", "lsun", "fpr_at_95_id", 28.2),
        ("cifar100", "correction", "energy, corrected", "svhn", "auroc", 90.2),
        ("cifar100", "residual", "ebm", "textures", "auroc", 84.5),
        ("cifar10", "composition", "gmm-std + energy, corrected", "average", "fpr_at_95_id", 23.6),
        ("cifar100", "composition", "gmm + gmm-std + energy, corrected", "average", "auroc", 83.0),
        ("cifar10", "lambda", "λ = 10", "average", "fpr_at_95_id", 31.5),
        ("cifar10", "lambda", "no residual", "average", "fpr_at_95_id", 35.1),
        ("cifar100", "beta", "β = 0", "average", "fpr_at_95_id", 63.9),
        ("cifar100", "low-data", "ebm, 100 %", "average", "auroc", 79.5),
    ],
)
def test_entries_have_our_names(suite, experiment, name, where, metric, percent):
    (entry,) = [e for e in paper_entries(suite, experiment) if e.name == name]
    evaluation = entry.runs[0].evaluation
    row = evaluation.average if where == "average" else evaluation[where]
    assert entry.kind == "paper"
    assert entry.runs[0].seed == -1
    assert getattr(row, metric) == pytest.approx(percent / 100, abs=1e-9)


def mean_and_printed() -> list[tuple[str, str, str, float, float]]:
    """(label, row, metric, mean of the sets, average printed) wherever a table gives both."""
    found = []
    for table in data()["tables"]:
        weights = [4, 2] if "groups" in table else [1] * len(table["sets"])
        for name, line in table["rows"].items():
            *cells, last = ([float(n) for n in cell.split("/")] for cell in line.replace("|", "").split())
            if cells:
                means = np.average(cells, axis=0, weights=weights)
                found += [
                    (table["label"], name, m, a, b) for m, a, b in zip(table["metrics"], means, last, strict=True)
                ]
    return found


def test_averages_agree_with_the_sets_but_for_the_doubts_that_are_listed():
    off = {(label, name, m): (a, b) for label, name, m, a, b in mean_and_printed() if abs(a - b) > 0.1 + 1e-9}
    listed = {(d["label"], d["row"], d["metric"]): d for d in data()["doubts"] if "printed" in d}
    assert off.keys() == listed.keys()
    for key, (computed, printed) in off.items():
        assert listed[key]["printed"] == printed
        assert listed[key]["computed"] == pytest.approx(computed, abs=0.05)


def test_where_two_tables_print_one_number_they_agree_but_for_the_doubt_that_is_listed():
    seen: dict[tuple[str, ...], set[str]] = {}
    for table in data()["tables"]:
        for name, line in table["rows"].items():
            for where, cell in zip(table.get("sets", ()), line.split("|")[0].split(), strict="sets" in table):
                for metric, number in zip(table["metrics"], cell.split("/"), strict=True):
                    key = (table["suite"], data()["names"][name], where, metric)
                    seen.setdefault(key, set()).add(number)
    off = {key for key, numbers in seen.items() if len(numbers) > 1}
    assert {(suite, name) for suite, name, *_ in off} == {("cifar10", "gmm"), ("cifar100", "gmm")}
    assert len(off) == 5
    assert any("five cells of GMM" in doubt for doubt in paper_doubts())


def test_costs_add_up():
    costs = {cost.name: cost for cost in paper_costs()}
    parts = sum(costs[name].milliseconds for name in ("ResNet-50", "GMM", "GMM-std", "EL"))
    assert parts + 3 * costs["EBM"].milliseconds == pytest.approx(costs["HEAT"].milliseconds)
    assert costs["HEAT"].share == 1
    assert costs["ResNet-50"].share == pytest.approx(500 / 519.4)


def test_other_networks_get_only_the_sets_of_the_same_name_and_no_average():
    sets = ("cifar100", "tinyimagenet", "scenes", "clothing", "textures", "svhn")
    entries = paper_entries("cifar10", "main", sets)
    assert [entry.name for entry in entries] == [entry.name for entry in paper_entries("cifar10", "main")]
    evaluation = entries[-1].runs[0].evaluation
    assert evaluation.names == ("cifar100", "tinyimagenet", "textures", "svhn")
    assert np.isnan(evaluation.average.auroc)
    assert paper_entries("cifar10", "composition", sets) == ()


def test_a_suite_that_is_not_in_the_paper_has_no_rows():
    assert paper_entries("demo", "main") == ()
    assert paper_entries("imagenet", "beta") == ()
