"""The README's table and picture, and the full table, from the stored results of the shared suites.

    python tools/readme.py            # writes them
    python tools/readme.py --check    # fails where they differ from the results

Reads ``docs/results/shared-*/main/results.json``, as ``heat-ood benchmark SUITE --out docs/results/SUITE/main`` writes
them, and the rows of ``HEAT.paper()`` from ``docs/results/shared-*/paper``, where that was run to its end. The README
has the rows of HEAT, the plain composition and HEAT's priors, and the best of the others; all rows are in
``docs/results/README.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image

from heat_ood.results import (
    Entry,
    Results,
    Value,
    cell,
    champion,
    columns,
    duel,
    grid,
    markdown_style,
    percent,
    plain_composition,
    points,
)

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- results: python tools/readme.py -->", "<!-- /results -->"
OURS = ("heat", "composition", "prior")
"""The kinds of rows that are always shown."""
DRAWN = 2
"""So many of the other methods in the README's table and in the picture."""
MAIN, PRESET, TEXT = Path("main/results.json"), "paper", "HEAT.paper()"
"""Where rows are from, the folder of the preset's, and how their names begin."""
FULL, FEW = Path("docs/results/README.md"), Path("README.md")
PICTURE = Path("docs/images/shared.png")
NUMBERS = "Numbers"
"""The field of the picture's file that holds what it shows."""
OTHERS = {
    "shared-imagenet/README.md": "ImageNet with four images a class, and a control for resolution",
    "beyond.md": "the parts of the default, one by one",
    "methods.md": "methods and their corrected forms, by set",
    "backbone-cifar10.md": "another backbone, CIFAR-10",
    "backbone-cifar100.md": "another backbone, CIFAR-100",
    "other-backbones.md": "a small ViT, a contrastive head, and DICE",
    "text.md": "text",
    "cost.md": "what methods cost",
}
"""The other files of results, which scripts of experiments/ and benchmarks/ write."""
GROUPS = {"near": ("o", "#d55e00"), "mid": ("s", "#0072b2"), "far": ("^", "#009e73")}
"""The mark and the colour of each group of OOD sets."""
PAPER, PLAINEST = "paper's priors, corrected", "msp"
"""Of the picture's rows those of fixed names: the paper's HEAT, and where everybody starts."""


def stored(root: Path = ROOT) -> list[Results]:
    """The results that there are, by name."""
    order = ("shared-cifar10", "shared-cifar100", "shared-imagenet")
    folders = [root / "docs" / "results" / name for name in order]
    return [with_preset(folder) for folder in folders if (folder / MAIN).exists()]


def with_preset(folder: Path) -> Results:
    """The rows of ``main``, and those of the preset that took hours."""
    found, own = Results.load(folder / MAIN), folder / PRESET / MAIN.name
    rows = Results.load(own).measured if own.exists() else ()
    return replace(found, entries=(*found.entries, *(entry for entry in rows if entry.name.startswith(TEXT))))


# Rows


def score(name: str, found: Sequence[Results]) -> float:
    """A method's average AUROC, averaged over the networks that it was measured on."""
    return float(np.mean([r.mean(e, "auroc").mean for r in found for e in r.measured if e.name == name]))


def kinds(found: Sequence[Results]) -> dict[str, str]:
    """All measured rows, the best first, with their kinds."""
    known = {entry.name: entry.kind for results in found for entry in results.measured}
    return {name: known[name] for name in sorted(known, key=lambda name: -score(name, found))}


def table(found: Sequence[Results], rows: dict[str, str]) -> str:
    """Averages and the AUROC of the near sets, for each network."""
    titles = [title for r in found for title in (f"{r.id}: FPR95 ↓ / AUROC ↑", "near-OOD AUROC ↑")]
    lines = ["| | " + " | ".join(titles) + " |", "|---" + "|---:" * len(titles) + "|"]
    parts = [cells(results) for results in found]
    for name, kind in rows.items():
        title = f"**{name}**" if kind in ("heat", "composition") else name
        row = [text for part in parts for text in part.get(name, ("–", "–"))]
        lines.append(f"| {' | '.join([title, *row])} |")
    return "\n".join(lines)


def cells(results: Results) -> dict[str, tuple[str, str]]:
    fpr, auroc = (grid(results, metric) for metric in ("fpr_at_95_id", "auroc"))
    titles = [column.title for column in columns(results)]
    several = len(results.groups["near"]) > 1
    average, near = titles.index("average"), titles.index("near average" if several else results.groups["near"][0])

    def row(i: int) -> tuple[str, str]:
        values: list[Value] = [fpr[i][average], auroc[i][average]]
        return cell(values, markdown_style, spread=True), cell([auroc[i][near]], markdown_style, spread=False)

    return {entry.name: row(i) for i, entry in enumerate(results.entries) if entry.kind != "paper"}


# Words


def verdict(results: Results) -> str:
    """Who is best by each of the table's numbers, where HEAT stands, and what its residuals add."""
    heat, plain = champion(results), plain_composition(results)
    assert heat is not None
    assert plain is not None
    near = tuple(results.groups["near"])
    wins = [
        best(results, heat, title, metric, sets)
        for title, metric, sets in (
            ("FPR95", "fpr_at_95_id", None),
            ("AUROC", "auroc", None),
            ("near-OOD AUROC", "auroc", near),
        )
    ]
    gains = []
    for title, metric in (("FPR95", "fpr_at_95_id"), ("AUROC", "auroc")):
        found = duel(results, heat, plain, metric)
        gains.append(f"{title} {points(found.lead)} {'better' if found.lead >= 0 else 'worse'}")
    return f"{results.id}: {'; '.join(wins)}. HEAT against the plain composition: {', '.join(gains)}."


def best(results: Results, heat: Entry, title: str, metric: str, sets: tuple[str, ...] | None) -> str:
    first, second = results.ranked(metric, sets)[:2]
    other = second if first == heat else heat
    one, two = (f"{e.name} {percent(results.mean(e, metric, sets).mean)}" for e in (first, other))
    return f"best {title} {one} ({two})"


def opening(found: Sequence[Results]) -> str:
    """What stands between the README's marks."""
    rows = kinds(found)
    shown = drawn(found)
    shown[3:3] = [name for name in rows if name.startswith(TEXT)]
    named = table(found, {name: rows[name] for name in shown}).replace(" ± ", "±")  # the README is narrow
    return f"{named}\n\n" + wrapped(f"[All {len(rows)} rows, by set]({FULL.as_posix()}), with a picture.")


def everything(found: Sequence[Results]) -> str:
    """The full table, with where its numbers are from."""
    seeds = " and ".join(sorted({str(len(results.seeds)) for results in found}))
    about = (
        "Every method on the networks and images of `../shared/data`, with its defaults. FPR95 (share of OOD accepted "
        f"when 95 % of ID is) / AUROC in percent, averages over the OOD sets ({sizes(found)}), mean of {seeds} seeds ± "
        "their standard deviation (odin and gram: one run, none on ImageNet); the best of a column in bold, the "
        "second in italics; ordered by AUROC. Written by `python tools/readme.py`."
    )
    items = []
    for results in found:
        folder = f"{results.suite}/{results.experiment}"
        items.append(
            f"{results.id}: [every set and metric]({folder}/results.md), [the report]({folder}/report.html) "
            f"(download it to read it), [JSON]({folder}/results.json), made by "
            f"`heat-ood benchmark {results.suite} --out docs/results/{folder}`"
        )
    others = [f"[{title[0].upper()}{title[1:]}]({file})" for file, title in OTHERS.items()]
    listed = "\n".join(wrapped(item, "- ") for item in (*items, *others))
    told = "\n".join(wrapped(verdict(results), "- ") for results in found)
    picture = "![AUROC on near, mid and far OOD sets](../images/shared.png)"
    return "\n\n".join(["# Results", wrapped(about), table(found, kinds(found)), told, picture, listed]) + "\n"


def sizes(found: Sequence[Results]) -> str:
    """How many OOD sets count on each network."""
    return ", ".join(f"{results.id}: {len(results.counted)}" for results in found)


def counting(results: Results) -> dict[str, tuple[str, ...]]:
    """The groups that count."""
    return {group: tuple(sets) for group, sets in results.groups.items() if group not in results.apart}


def wrapped(text: str, bullet: str = "") -> str:
    """Lines of at most 100 characters."""
    inner = " " * len(bullet)
    return textwrap.fill(text, 100, initial_indent=bullet, subsequent_indent=inner, break_on_hyphens=False)


# The picture


def drawn(found: Sequence[Results]) -> list[str]:
    """The methods of the picture: HEAT, the plain composition, the paper's priors, the best of the others, MSP."""
    rows = kinds(found)
    best = [name for name, kind in rows.items() if kind not in OURS and name != PLAINEST][:DRAWN]
    return [name for name in ("HEAT", "plain composition", PAPER, *best, PLAINEST) if name in rows]


Numbers = dict[str, dict[str, list[list[float | None]]]]


def numbers(found: Sequence[Results]) -> Numbers:
    """What the picture shows: AUROC by network and method, near to far, each with its spread over seeds."""

    def near_to_far(results: Results, entry: Entry) -> list[list[float | None]]:
        means = [results.mean(entry, "auroc", sets) for sets in counting(results).values()]
        return [[None if np.isnan(v) else round(100 * v, 2) for v in mean] for mean in means]

    values = {r.id: {entry.name: near_to_far(r, entry) for entry in r.measured} for r in found}
    return {id_: {name: rows[name] for name in drawn(found) if name in rows} for id_, rows in values.items()}


def draw(found: Sequence[Results], path: Path) -> None:
    """A row for each method, a panel for each network, a dot for each group of OOD sets."""
    values = numbers(found)
    with plt.rc_context({"font.size": 13}):
        size = {"figsize": (4 + 3 * len(found), 4.4), "layout": "constrained"}
        figure, panels = plt.subplots(1, len(found), sharey=True, squeeze=False, **size)
        for panel, results in zip(panels[0], found, strict=True):
            dots(panel, results, values[results.id])
        for text in panels[0][0].get_yticklabels()[:1]:
            text.set_fontweight("bold")
        handles, names = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper left", ncols=3, frameon=False, handletextpad=0.2)
        note = "AUROC, %: to the right is better. Lines: ± the standard deviation over seeds, hidden where it is small."
        figure.supxlabel(note, fontsize=11, x=0.01, ha="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160, facecolor="white", metadata={NUMBERS: json.dumps(values)})
        plt.close(figure)


def dots(panel: plt.Axes, results: Results, values: dict[str, list[list[float | None]]]) -> None:
    """One network."""
    rows = -np.arange(len(values))
    panel.axhspan(-0.45, 0.45, color="#f3e3d8", linewidth=0)
    panel.hlines(rows, 0, 100, color="#dddddd", linewidth=0.8, zorder=1)
    for i, group in enumerate(counting(results)):
        mark, colour = GROUPS.get(group, ("D", "#555555"))
        means = [row[i][0] for row in values.values()]
        spreads = [row[i][1] or 0.0 for row in values.values()]
        look = {"fmt": mark, "color": colour, "markersize": 8, "capsize": 5, "elinewidth": 2}
        panel.errorbar(means, rows, xerr=spreads, label=f"{group}-OOD", **look)
    known = [float(pair[0] or 0) - (pair[1] or 0) for row in values.values() for pair in row]
    panel.set_xlim(5 * np.floor(min(known) / 5), 100.5)
    panel.set_yticks(rows, list(values))
    panel.set_title(results.id, loc="left", fontsize=13)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)


# Writing and checking


def filled(text: str, found: Sequence[Results]) -> str:
    """The README with what stands between its marks renewed."""
    before, mark, rest = text.partition(BEGIN)
    if not mark or END not in rest:
        sys.exit(f"{FEW} has no place for the table. Put {BEGIN} and {END} on lines of their own.")
    return f"{before}{BEGIN}\n{opening(found)}\n{END}{rest.partition(END)[2]}"


def differences(found: Sequence[Results], root: Path = ROOT) -> list[str]:
    """The files that do not show the results."""
    readme = (root / FEW).read_text(encoding="utf-8")
    full = (root / FULL).read_text(encoding="utf-8") if (root / FULL).exists() else ""
    wrong = [str(FEW)] if filled(readme, found) != readme else []
    wrong += [str(FULL)] if everything(found) != full else []
    return wrong + ([str(PICTURE)] if drawn_numbers(root / PICTURE) != numbers(found) else [])


def drawn_numbers(path: Path) -> object:
    if not path.exists():
        return None
    with Image.open(path) as image:
        return json.loads(image.info.get(NUMBERS, "null"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    options = parser.parse_args()
    found = stored()
    if not found:
        sys.exit("There are no results. Run heat-ood benchmark shared-cifar10 --out docs/results/shared-cifar10/main.")
    if options.check:
        wrong = differences(found)
        sys.exit(f"{', '.join(wrong)} differ from the results. Run python tools/readme.py." if wrong else 0)
    (ROOT / FEW).write_text(filled((ROOT / FEW).read_text(encoding="utf-8"), found), encoding="utf-8")
    (ROOT / FULL).write_text(everything(found), encoding="utf-8")
    draw(found, ROOT / PICTURE)


if __name__ == "__main__":
    main()
