"""Results as tables: Markdown, CSV and LaTeX; a row an entry, a column an OOD set, FPR95 / AUROC a cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation import AVERAGE, CONVENTION, HEADERS, code, escape, markdown, sheet_cell
from ..metrics import METRICS
from ._findings import GAP, SHOWN, Column, champion, columns, group_title, in_words, losses, percent
from ._results import Entry, Results

__all__ = ["Value", "grid", "interval_of", "notes", "title_of", "to_csv", "to_latex", "to_markdown"]

Style = Callable[[str, str], str]


@dataclass(frozen=True)
class Value:
    """A number of a table.

    Args:
        fraction: the mean over seeds, NaN where there is none.
        spread: over seeds, NaN where there is none.
        mark: "best" or "second" of its column among the measured rows, or nothing.
        interval: of the bootstrap, averaged over seeds.
    """

    fraction: float
    spread: float = math.nan
    mark: str = ""
    interval: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        return percent(self.fraction)


def grid(results: Results, metric: str) -> list[list[Value]]:
    """A metric of each entry (rows) in each of the columns of a table, marked."""
    table = [[value_of(results, entry, metric, column) for column in columns(results)] for entry in results.entries]
    ours = [i for i, entry in enumerate(results.entries) if entry.kind != "paper"]
    better = min if metric.startswith("fpr") else max
    for c, column in enumerate(columns(results)):
        if column.apart:
            continue
        left = {float(table[i][c].text) for i in ours if table[i][c].text != GAP}
        for mark in ("best", "second"):
            if len(ours) < 2 or not left:
                break
            top = better(left)
            left.discard(top)
            for i in ours:
                value = table[i][c]
                if value.text != GAP and float(value.text) == top:
                    table[i][c] = Value(value.fraction, value.spread, mark, value.interval)
    return table


def value_of(results: Results, entry: Entry, metric: str, column: Column) -> Value:
    mean = results.mean(entry, metric, column.sets)
    return Value(mean.mean, mean.spread, interval=interval_of(results, entry, metric, column))


def interval_of(results: Results, entry: Entry, metric: str, column: Column) -> tuple[float, float] | None:
    """The mean over seeds of the ends of the bootstrap interval, for a set or the average."""
    found = []
    for run in entry.runs:
        rows = {row.name: row for row in run.evaluation}
        whole = column.sets is None and set(rows) == set(results.found)  # its average is of the sets that count
        row = run.evaluation.average if whole else rows.get(column.title)
        if row is not None and metric in row.intervals:
            found.append(row.intervals[metric])
    if not found:
        return None
    low, high = np.mean(found, axis=0)
    return float(low), float(high)


def title_of(entry: Entry) -> str:
    """An entry's name; the paper's rows are marked."""
    return f"{entry.name} (paper)" if entry.kind == "paper" else entry.name


def ordered(results: Results) -> list[int]:
    """The numbers of the entries, ours first."""
    return sorted(range(len(results.entries)), key=lambda i: results.entries[i].kind == "paper")


def cell(values: Sequence[Value], style: Style, spread: bool, sign: str = "±") -> str:
    """Numbers with a slash between, each in its style; the spread behind it where asked for and known."""
    texts = [style(v.text, v.mark) + (with_spread(v, sign) if spread else "") for v in values]
    return GAP if all(v.text == GAP for v in values) else " / ".join(texts)


def with_spread(value: Value, sign: str) -> str:
    return "" if math.isnan(value.spread) else f" {sign} {100 * value.spread:.1f}"


def notes(results: Results) -> list[str]:
    """What has to stand below a table: what the numbers are, where HEAT does not win, what is missing."""
    seeds = len(results.seeds)
    runs = f"mean of {seeds} seeds, ± their standard deviation" if seeds > 1 else "one seed"
    lines = [
        f"{HEADERS[SHOWN[0]]} (share of OOD accepted when 95 % of ID is) / {HEADERS[SHOWN[1]]} in percent, {runs}; "
        f"the best measured number of a column in bold, the second marked too; {CONVENTION}."
    ]
    if results.paper:
        lines.append(
            "Rows marked (paper) are copied from the paper, with its networks and data; they were not run here."
        )
    lost = losses(results)
    if lost:
        lines.append(f"HEAT does not win everywhere. {in_words(lost)}.")
    elif champion(results) is not None and len(results.measured) > 1:
        lines.append("HEAT has the best number, or shares it, in every column.")
    if results.apart:
        lines.append(f"{'; '.join(results.apart)}: reported apart, in no average; no number is the best there.")
    if results.missing:
        gaps = [f"{m.name} (get it from {m.get}; put it in {m.put})" for m in results.missing]
        lines.append(f"Missing, so left out of the averages: {'; '.join(gaps)}.")
    return lines


# Markdown


def to_markdown(results: Results, full: bool = True) -> str:
    """The table as the paper prints it, its notes, and with ``full`` every metric of the average with intervals."""
    head = f"# {escape(results.title)}\n\n{escape(results.id)} against {len(results.counted)} OOD sets, "
    head += f"{escape(results.backbone)}, experiment {code(results.experiment)}.\n"
    parts = [head]
    if results.entries:
        grids = [grid(results, metric) for metric in SHOWN]
        body = [body_row(results, grids, i) for i in ordered(results)]
        lead, *rest = notes(results)
        titles = ["", *(escape(heading(results, column)) for column in columns(results))]
        parts.append(markdown(titles, body, "\n\n".join([lead, *map(escape, rest)])))
        parts += [full_markdown(results)] if full else []
    if results.costs:
        costs = [[escape(c.name), f"{c.milliseconds:.4g}", f"{100 * c.share:.1f}"] for c in results.costs]
        parts.append(markdown(["part", "milliseconds", "share of HEAT with the backbone, %"], costs, ""))
    if "command" in results.about:
        parts.append(f"Made by {code(str(results.about['command']))}.\n")
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def body_row(results: Results, grids: Sequence[list[list[Value]]], i: int) -> list[str]:
    cells = [
        cell([g[i][c] for g in grids], markdown_style, spread=column.sets is None)
        for c, column in enumerate(columns(results))
    ]
    return [escape(title_of(results.entries[i])), *cells]


def heading(results: Results, column: Column) -> str:
    """A set under the name of its group, where there are several groups."""
    if column.group is None or len(results.groups) == 1:
        return column.title
    inner = column.title.removeprefix(f"{column.group} ")
    if inner != column.title and not column.apart:
        return column.title
    return f"{group_title(results, column.group)}: {inner}"


def markdown_style(text: str, mark: str) -> str:
    return {"best": f"**{text}**", "second": f"*{text}*"}.get(mark, text)


def full_markdown(results: Results) -> str:
    """Every metric of the average, with bootstrap intervals where they are known."""
    tables = {metric: grid(results, metric) for metric in METRICS}
    body = []
    for i in ordered(results):
        values = [tables[metric][i][-1] for metric in METRICS]
        body.append([escape(title_of(results.entries[i])), *(full_cell(v) for v in values)])
    note = (
        "The average over OOD sets by every metric, in percent. In brackets: bootstrap intervals over samples, their "
    )
    note += "ends averaged over seeds. The paper's FPR95 is fpr_at_95_id; fpr_at_95_ood is OpenOOD v1.5's."
    return markdown([AVERAGE, *(HEADERS[metric] for metric in METRICS)], body, note)


def full_cell(value: Value) -> str:
    ends = "" if value.interval is None else f" [{percent(value.interval[0])}, {percent(value.interval[1])}]"
    return markdown_style(value.text, value.mark) + ends


# CSV


def to_csv(results: Results) -> str:
    """A line for each entry, seed and set, and for the average: fractions unrounded, ends of intervals beside them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    metrics = [metric + end for metric in METRICS for end in ("", "_low", "_high")]
    writer.writerow(["name", "kind", "series", "x", "seed", "group", "set", "n_id", "n_ood", *metrics])
    group_of = {name: group for group, names in results.groups.items() for name in names}
    for entry in results.entries:
        for run in entry.runs:
            for row in (*run.evaluation, run.evaluation.average):
                where = [entry.name, entry.kind, entry.series or "", "" if entry.x is None else entry.x, run.seed]
                where += [group_of.get(row.name, ""), row.name, row.n_id or "", row.n_ood or ""]
                numbers = [
                    n for metric in METRICS for n in (getattr(row, metric), *row.intervals.get(metric, ("", "")))
                ]
                writer.writerow([*map(sheet_cell, where), *("" if n != n else n for n in numbers)])
    return out.getvalue()


# LaTeX


def to_latex(results: Results) -> str:
    r"""A ``booktabs`` table: the best bold, the second underlined, the paper's rows apart, the notes as comments."""
    shown = columns(results)
    grids = [grid(results, metric) for metric in SHOWN]
    spans = [(group, sum(column.group == group for column in shown)) for group in results.groups]
    over = " & ".join(
        rf"\multicolumn{{{n}}}{{c}}{{\textit{{{tex(group_title(results, group))}}}}}" for group, n in spans
    )
    lines = ["% " + " ".join(note.split()) for note in notes(results)]
    lines += [rf"\begin{{tabular}}{{l{'c' * (len(shown) - 1)}|c}}", r"\toprule"]
    lines += [rf" & {over} & \\"] if len(results.groups) > 1 else []
    lines += [" & ".join(["Method", *(tex(column.title) for column in shown)]) + r" \\", r"\midrule"]
    order = ordered(results)
    for place, i in enumerate(order):
        entry = results.entries[i]
        if place and entry.kind == "paper" and results.entries[order[place - 1]].kind != "paper":
            lines.append(r"\midrule")
        cells = [
            cell([g[i][c] for g in grids], tex_style, column.sets is None, r"$\pm$") for c, column in enumerate(shown)
        ]
        lines.append(" & ".join([tex(title_of(entry)), *(text.replace(GAP, "--") for text in cells)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def tex_style(text: str, mark: str) -> str:
    return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(mark, text)


TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "λ": r"$\lambda$",
    "β": r"$\beta$",
    "∞": r"$\infty$",
} | {c: rf"\{c}" for c in "&%$#_{}"}


def tex(text: str) -> str:
    shown = (c for c in " ".join(text.split()) if c.isprintable())
    return "".join(TEX.get(character, character) for character in shown)
