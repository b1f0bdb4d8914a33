"""One self-contained HTML file from one or several results: words first, then tables, charts and details."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import write
from ..results import FULL_NAMES, SHOWN, Entry, Results, better, champion, percent
from ._blocks import box, has_lines
from ._figures import figures
from ._gallery import gallery
from ._headline import FPR95, headline
from ._markup import Raw, el
from ._sections import details, losses_of, tables
from ._words import count, summary

__all__ = ["report", "write_report"]

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""What the page may load: nothing but what it holds."""
HATCH = Raw(
    '<svg class="patterns" aria-hidden="true" width="0" height="0"><defs><pattern id="hatch" class="hatch" width="5" '
    'height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V5"/></pattern></defs></svg>'
)


def write_report(results: Sequence[Results] | Results, path: str | PathLike[str]) -> Path:
    """Write :func:`report` to a file that ends in ``.html``."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"A report is an HTML file, and {path.name!r} is not named as one. Call it {path.stem}.html.")
    write(path, report(results))
    return path


def report(results: Sequence[Results] | Results) -> str:
    """The page; several results are compared on top and then follow one another.

    It loads nothing, works without its script and in print, and is the same for the same results.
    """
    several = [results] if isinstance(results, Results) else list(results)
    if not several:
        raise InputError("There are no results to report. Pass the files that heat-ood benchmark wrote.")
    single = several[0] if len(several) == 1 else None
    title = single.title if single else f"{count(len(several), 'run').capitalize()} compared"
    head = [
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", asset("report.css")),
    ]
    body = [
        HATCH,
        el("header", el("h1", title), None if single else contents(several)),
        el("main", *(content(single) if single else comparison(several))),
        el("footer", el("p", "Written by heat-ood report. A score is higher for more OOD; all numbers are percent.")),
        el("script", asset("report.js")),
    ]
    return f"<!doctype html>\n{el('html', el('head', *head), el('body', *body), lang='en')}\n"


def asset(name: str) -> Raw:
    return Raw("\n" + files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def content(results: Results) -> list[Any]:
    """All parts of one experiment."""
    words = [el("p", text, class_="lead" if i == 0 else None) for i, text in enumerate(summary(results))]
    parts = [tables(results), figures(results)]
    return [
        el("section", headline(results), *words, losses_of(results), aria_label="Summary", class_="summary"),
        *([] if results.experiment == "evaluation" else [gallery(results)]),
        *(parts[::-1] if has_lines(results) else parts),
        *([gallery(results)] if results.experiment == "evaluation" else []),
        details(results),
    ]


# Several results


def labels(several: Sequence[Results]) -> list[str]:
    """A name for each, as short as tells them apart."""
    suites = [r.suite if r.experiment == "main" else f"{r.suite}, {r.experiment}" for r in several]
    return [
        f"{name} ({suites[: i + 1].count(name)})" if suites.count(name) > 1 else name for i, name in enumerate(suites)
    ]


def contents(several: Sequence[Results]) -> Raw:
    items = [el("li", el("a", label, href=f"#run-{i}")) for i, label in enumerate(labels(several))]
    return el("nav", el("ul", *items), aria_label="Runs")


def comparison(several: Sequence[Results]) -> list[Any]:
    """The averages side by side, then each run in full."""
    names = labels(several)
    first = [
        el("p", sentence(r, name), class_="lead" if i == 0 else None)
        for i, (r, name) in enumerate(zip(several, names, strict=True))
    ]
    parts: list[Any] = [el("section", *first, aria_label="Summary", class_="summary"), side_by_side(several, names)]
    for i, (results, name) in enumerate(zip(several, names, strict=True)):
        parts.append(
            el("article", el("h2", name), el("p", results.title, class_="soft"), *content(results), id=f"run-{i}")
        )
    return parts


def sentence(results: Results, label: str) -> str:
    """Who wins a run, and where HEAT stands."""
    ranked, heat = results.ranked(SHOWN[0]), champion(results)
    if not ranked:
        return f"{label}: no scores were evaluated."
    lowest = percent(results.mean(ranked[0], SHOWN[0]).mean)
    text = f"{label}: {ranked[0].name} has the lowest average {FULL_NAMES[SHOWN[0]]}, {lowest} %"
    if heat is not None and heat in ranked and heat != ranked[0]:
        own = percent(results.mean(heat, SHOWN[0]).mean)
        text += f"; HEAT is number {ranked.index(heat) + 1} of {len(ranked)} with {own} %"
    return text + "."


def side_by_side(several: Sequence[Results], names: Sequence[str]) -> Raw | None:
    """A row for each method, the average by both metrics for each run."""
    shown = [(r, name) for r, name in zip(several, names, strict=True) if r.measured and not has_lines(r)]
    methods = list(dict.fromkeys(entry.name for r, _ in shown for entry in r.ranked(SHOWN[0])))
    if len(shown) < 2 or not methods:
        return None
    heads = [average_head(name, metric) for _, name in shown for metric in SHOWN]
    rows = []
    for method in methods:
        cells = [average_cell(r, find(r, method), metric) for r, _ in shown for metric in SHOWN]
        rows.append(el("tr", el("th", method, scope="row"), *cells, class_="heat" if method == "HEAT" else None))
    top = el("thead", el("tr", el("th", "method", scope="col"), *heads))
    table = el("table", top, el("tbody", *rows), class_="sortable")
    note = "The average over each run's OOD sets, mean over seeds; bold is the best of a column. " + FPR95
    return el("section", el("h3", "Side by side"), el("p", note, class_="soft"), box(table, "averages of all runs"))


def average_head(name: str, metric: str) -> Raw:
    first = metric == SHOWN[0]
    order = "ascending" if better(metric) < 0 else "descending"
    text = "FPR95" if first else "AUROC"
    return el("th", el("small", name), text, scope="col", class_="edge" if first else None, data_first=order)


def find(results: Results, name: str) -> Entry | None:
    return next((entry for entry in results.measured if entry.name == name), None)


def average_cell(results: Results, entry: Entry | None, metric: str) -> Raw:
    value = math.nan if entry is None else results.mean(entry, metric).mean
    ranked = results.ranked(metric)
    best = bool(ranked) and percent(value) == percent(results.mean(ranked[0], metric).mean)
    text = el("span", percent(value), class_="best") if best else percent(value)
    return el("td", text, data_sort=value, class_="edge" if metric == SHOWN[0] else None)
