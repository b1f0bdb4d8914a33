"""The numbers that a reader looks for first: who wins, by how much, how good the network is, when it was run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ..results import SHOWN, Entry, Results, champion, columns, duel, interval_of, percent, points
from ._markup import Raw, el

__all__ = ["FPR95", "Headline", "headline", "headlines"]

FPR95 = "FPR95: share of OOD accepted when 95 % of ID is."
"""The metric in words, wherever it stands first."""
TITLES = {"fpr_at_95_id": "FPR95, average", "auroc": "AUROC, average"}
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class Headline(NamedTuple):
    """What it is, the number, and what to think of it."""

    title: str
    number: str
    note: str


def headline(results: Results) -> Raw | None:
    """The headlines of a report, side by side."""
    found = headlines(results)
    if not found:
        return None
    cards = [el("div", el("dt", h.title), el("dd", el("b", h.number), el("span", h.note))) for h in found]
    words = el("p", FPR95, class_="soft") if any(h.title == TITLES[SHOWN[0]] for h in found) else None
    return el("div", el("dl", *cards, class_="headlines"), words)


def headlines(results: Results) -> list[Headline]:
    """Those that the results have numbers for."""
    found = [best(results, metric) for metric in SHOWN]
    found += [accuracy(results), date(results)]
    return [one for one in found if one is not None]


def best(results: Results, metric: str) -> Headline | None:
    """The best average, whose it is, and how far the next, or HEAT, is behind."""
    ranked, heat = results.ranked(metric), champion(results)
    if not ranked:
        return None
    first, number = ranked[0], f"{percent(results.mean(ranked[0], metric).mean)} %"
    if len(ranked) == 1:
        ends = interval_of(results, first, metric, columns(results)[-1])
        between = f", between {percent(ends[0])} and {percent(ends[1])}" if ends else ""
        return Headline(TITLES[metric], number, first.name + between)
    note = f"{first.name}, {ahead(results, first, ranked[1], metric)} ahead of {ranked[1].name}"
    if heat is not None and heat in ranked[1:]:
        own = percent(results.mean(heat, metric).mean)
        note += f"; {heat.name} {own} %, {ahead(results, first, heat, metric)} behind"
    return Headline(TITLES[metric], number, note)


def ahead(results: Results, first: Entry, second: Entry, metric: str) -> str:
    return points(duel(results, first, second, metric).lead)


def accuracy(results: Results) -> Headline | None:
    """Of the network on ID; a poor one explains poor numbers."""
    model = results.about.get("model")
    right = model.get("accuracy") if isinstance(model, Mapping) else None
    if not isinstance(right, int | float) or isinstance(right, bool) or not math.isfinite(right):
        return None
    return Headline("accuracy of the network", f"{percent(right)} %", f"{results.backbone}, on {results.id}")


def date(results: Results) -> Headline | None:
    try:
        day = datetime.fromisoformat(str(results.about["created"]))
    except (KeyError, ValueError):
        return None
    version = results.about.get("versions")
    note = f"heat-ood {version['heat-ood']}" if isinstance(version, Mapping) and "heat-ood" in version else ""
    return Headline("date", f"{day.day} {MONTHS[day.month - 1]} {day.year}", note)
