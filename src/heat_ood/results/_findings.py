"""Who wins, by how much, and whether that is more than the spread over seeds; in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ._results import Entry, Results, better

__all__ = [
    "FULL_NAMES",
    "SHOWN",
    "Column",
    "Duel",
    "Loss",
    "champion",
    "columns",
    "duel",
    "group_title",
    "in_words",
    "judged",
    "losses",
    "percent",
    "plain_composition",
    "points",
]

SHOWN = ("fpr_at_95_id", "auroc")
"""What a cell of the paper's tables holds."""
FULL_NAMES = {
    "fpr_at_95_id": "FPR95 (fpr_at_95_id)",
    "auroc": "AUROC",
    "aupr_in": "AUPR-in",
    "aupr_out": "AUPR-out",
    "fpr_at_95_ood": "FPR95 (fpr_at_95_ood)",
}
GAP = "–"


@dataclass(frozen=True)
class Column:
    """One column of a table: an OOD set, a group's average, or with ``sets`` None the average of all that count.

    One that stands apart counts in no average, and nobody wins or loses in it.
    """

    title: str
    group: str | None
    sets: tuple[str, ...] | None
    apart: bool = False


def columns(results: Results) -> tuple[Column, ...]:
    """The OOD sets by group, each group followed by its average where it has several sets, and the average of all."""
    found = []
    for group, names in results.groups.items():
        apart = group in results.apart
        found += [Column(name, group, (name,), apart) for name in names]
        known = tuple(name for name in names if name in results.found)
        if len(results.groups) > 1 and len(names) > 1:
            found.append(Column(f"{group} average", group, known, apart))
    return (*found, Column("average", None, None))


def judged(results: Results) -> tuple[Column, ...]:
    """The columns in which a row can win."""
    return tuple(column for column in columns(results) if not column.apart)


def group_title(results: Results, group: str) -> str:
    """A group's name, and whether it counts."""
    return f"{group}, apart" if group in results.apart else group


def percent(fraction: float) -> str:
    """With one decimal, as the paper prints; a dash for what is not known."""
    return GAP if math.isnan(fraction) else f"{100 * fraction:.1f}"


def points(difference: float) -> str:
    """A difference of two fractions, in percentage points."""
    size = abs(100 * difference)
    return f"{size:.1f} points" if size >= 0.095 else f"{size:.2f} points"


def champion(results: Results) -> Entry | None:
    """HEAT's own row: the one of that name, or of its kind the one that composes most."""
    return whole(results, "heat", "HEAT")


def plain_composition(results: Results) -> Entry | None:
    """The row of the same priors without residuals."""
    return whole(results, "composition", "plain composition")


def whole(results: Results, kind: str, name: str) -> Entry | None:
    """Of the rows of a kind the one with a name, else the one of most parts; None where that is not clear."""
    found = [entry for entry in results.measured if entry.kind == kind and entry.x is None]
    named = [entry for entry in found if entry.name == name]
    most = max((entry.name.count(" + ") for entry in found), default=0)
    chosen = named or [entry for entry in found if entry.name.count(" + ") == most]
    return chosen[0] if len(chosen) == 1 else None


@dataclass(frozen=True)
class Duel:
    """Two rows and a metric; ``lead`` is how far the first is ahead, negative where it is behind.

    Args:
        first: the row that is judged.
        second: what it is measured against.
        metric: by which.
        lead: in fractions, positive where the first is better.
        spread: :math:`\\sqrt{s_1^2 + s_2^2}` of the spreads over seeds; NaN where neither has one.
    """

    first: Entry
    second: Entry
    metric: str
    lead: float
    spread: float

    @property
    def clear(self) -> bool | None:
        """Whether the lead is larger than the spread; None where no spread is known."""
        return None if math.isnan(self.spread) else abs(self.lead) > self.spread

    @property
    def verdict(self) -> str:
        """The answer as a clause."""
        if self.clear is None:
            return "with one seed, the spread is not known"
        than = "more than" if self.clear else "not more than"
        return f"{than} the spread over seeds, {points(self.spread)}"


def duel(
    results: Results, first: Entry, second: Entry, metric: str = SHOWN[0], sets: Sequence[str] | None = None
) -> Duel:
    """Compare two rows by a metric."""
    a, b = (results.mean(entry, metric, sets) for entry in (first, second))
    known = [s for s in (a.spread, b.spread) if not math.isnan(s)]
    return Duel(first, second, metric, better(metric) * (a.mean - b.mean), math.hypot(*known) if known else math.nan)


@dataclass(frozen=True)
class Loss:
    """A column in which another measured row prints a better number than HEAT."""

    column: str
    metric: str
    winner: str
    best: str
    own: str

    def __str__(self) -> str:
        return f"{FULL_NAMES[self.metric]} {self.best} by {self.winner} against {self.own}"


def losses(results: Results) -> list[Loss]:
    """Where HEAT does not win, by name and number; none where it wins, or shares the win, everywhere."""
    heat = champion(results)
    found = []
    for column in judged(results):
        for metric in SHOWN:
            ranked = results.ranked(metric, column.sets)
            if heat is None or heat not in ranked:
                continue
            best, own = (percent(results.mean(entry, metric, column.sets).mean) for entry in (ranked[0], heat))
            if best != own:
                found.append(Loss(column.title, metric, ranked[0].name, best, own))
    return found


def in_words(lost: Sequence[Loss]) -> str:
    """Losses as one text, by column."""
    by_column: dict[str, list[str]] = {}
    for loss in lost:
        by_column.setdefault(loss.column, []).append(str(loss))
    return ". ".join(f"{column}: {'; '.join(texts)}" for column, texts in by_column.items())
