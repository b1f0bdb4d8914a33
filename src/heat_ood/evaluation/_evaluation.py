"""The rows of an evaluation and their average, as objects, Markdown, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..files import Format, frame, plain, restored, write
from ..metrics import METRICS
from ._curves import Curve
from ._layout import layout
from ._limits import check_count, check_shares
from ._markdown import escape, markdown
from ._pictures import Picture
from ._sheets import sheet_cell

__all__ = ["AVERAGE", "CONVENTION", "HEADERS", "Evaluation", "Row"]

HEADERS = {
    "auroc": "AUROC ↑",
    "aupr_in": "AUPR-in ↑",
    "aupr_out": "AUPR-out ↑",
    "fpr_at_95_id": "fpr_at_95_id ↓",
    "fpr_at_95_ood": "fpr_at_95_ood ↓",
}
"""Metrics as tables name them, with the way that is better."""
CONVENTION = "score: higher = more OOD"
"""What stands below every table."""
AVERAGE = "average"
"""The name of the last row."""
EVALUATION = "heat-ood/evaluation"
"""What a file of an evaluation says it is."""
FORMAT = Format(EVALUATION, 2)
FOREIGN = "Pass what Evaluation.to_json wrote."
AGAIN = "Write it again with Evaluation.to_json."


@dataclass(frozen=True)
class Row:
    """One OOD set against the ID set; metrics and intervals as fractions, see :class:`heat_ood.metrics.Metrics`."""

    name: str
    n_id: int
    n_ood: int
    auroc: float
    aupr_in: float
    aupr_out: float
    fpr_at_95_id: float
    fpr_at_95_ood: float
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for metric in METRICS:
            check_shares(f"{metric} of {self.name!r}", (getattr(self, metric), *self.intervals.get(metric, ())))
        for count in ("n_id", "n_ood"):
            check_count(f"{count} of {self.name!r}", getattr(self, count))

    def cell(self, metric: str, intervals: bool = False) -> str:
        """A metric in percent with one decimal, with its interval in brackets if asked for and known."""
        text = percent(getattr(self, metric))
        if intervals and metric in self.intervals:
            low, high = self.intervals[metric]
            text += f" [{percent(low)}, {percent(high)}]"
        return text


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals of an evaluation were made."""

    resamples: int
    level: float
    seed: int

    def __post_init__(self) -> None:
        check_count("resamples", self.resamples)
        check_count("seed", abs(self.seed))
        check_shares("level", (self.level,))


@dataclass(frozen=True)
class Stored:
    """What a file of an evaluation holds, besides its header."""

    convention: str
    bootstrap: Bootstrap | None
    rows: tuple[Row, ...]
    average: Row
    curves: Mapping[str, Curve] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The rows of :func:`evaluate`: iterate, or index by the name of an OOD set.

    Args:
        rows: one row for each OOD set.
        average: the mean of each metric over the sets, each set counting once; ``n_ood`` is their total.
        resamples: of the bootstrap; zero without intervals.
        level: of the intervals.
        seed: of the bootstrap.
        curves: the ROC curve and the histograms of each set, for pictures and reports; equality is of numbers.
        about: what was evaluated, when and on what: ``method``, ``id``, ``backbone``, ``accuracy``, ``created``, ….
        pictures: the most unusual ID images and the least unusual OOD images.
    """

    rows: tuple[Row, ...]
    average: Row
    resamples: int = 0
    level: float = 0.95
    seed: int = 0
    curves: Mapping[str, Curve] = field(default_factory=dict, compare=False)
    about: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the OOD sets."""
        return tuple(row.name for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no OOD set named {name!r}; there are {', '.join(self.names)} (the mean over all is .average)")

    def __repr__(self) -> str:
        lines = [["", "n_ood", *HEADERS.values()]]
        lines += [[row.name, str(row.n_ood), *(row.cell(m) for m in METRICS)] for row in (*self.rows, self.average)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]) for name, *cells in lines]
        return "\n".join([f"Evaluation: {self.average.n_id:,} ID samples, percent, {CONVENTION}", *table])

    # As Markdown, JSON, CSV

    def to_markdown(self, intervals: bool = True) -> str:
        """A table in percent; the interval of each metric stands in brackets where there is one."""
        shown = intervals and self.resamples > 0
        body = [[escape(r.name), f"{r.n_ood:,}", *(r.cell(m, shown) for m in METRICS)] for r in self.rows]
        body.append([f"**{AVERAGE}**", f"{self.average.n_ood:,}", *(self.average.cell(m, shown) for m in METRICS)])
        note = f"Percent; {self.average.n_id:,} ID samples; {CONVENTION}."
        if shown:
            note += f" In brackets: {100 * self.level:g} % bootstrap intervals, {self.resamples} resamples."
        return markdown(["OOD set", "n_ood", *HEADERS.values()], body, note)

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each OOD set and one for the average; fractions. It takes pandas."""
        rows = [
            {"set": row.name, "n_id": row.n_id, "n_ood": row.n_ood, **{m: getattr(row, m) for m in METRICS}}
            for row in (*self, self.average)
        ]
        return frame(rows, "set")

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, fractions unrounded; NaN is text."""
        bootstrap = Bootstrap(self.resamples, self.level, self.seed) if self.resamples else None
        more = {"curves": self.curves, "about": self.about, "pictures": self.pictures}
        found = plain({"convention": CONVENTION, "bootstrap": bootstrap, "rows": self.rows, "average": self.average})
        return FORMAT.stamp(found | {key: plain(value) for key, value in more.items() if value})

    def to_json(self) -> str:
        """:meth:`to_dict` as text; :meth:`from_json` reads it back, equal."""
        return layout(self.to_dict()) + "\n"

    @classmethod
    def from_dict(cls, data: Any) -> Evaluation:
        """Read :meth:`to_dict` back."""
        content = FORMAT.unstamp(FORMAT.check(data, "The evaluation", FOREIGN, AGAIN))
        try:
            found = restored(Stored, content, "evaluation")
        except (FormatError, InputError) as error:
            raise FormatError(f"The evaluation is damaged: {str(error).removesuffix('.')}. {AGAIN}") from error
        bootstrap = () if found.bootstrap is None else astuple(found.bootstrap)
        evaluation = cls(found.rows, found.average, *bootstrap)
        return replace(evaluation, curves=found.curves, about=found.about, pictures=found.pictures)

    @classmethod
    def from_json(cls, text: str) -> Evaluation:
        """Read :meth:`to_json` back."""
        try:
            content = json.loads(text)  # NaN among it, which 0.1 wrote
        except (ValueError, RecursionError) as error:
            raise FormatError(f"The evaluation is damaged: it is not JSON ({error}). {AGAIN}") from error
        return cls.from_dict(content)

    def to_csv(self) -> str:
        """A line for each set and one for the average; fractions unrounded, intervals as ``…_low`` and ``…_high``."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", "n_id", "n_ood", *(m + end for m in METRICS for end in ("", "_low", "_high"))])
        for row in (*self.rows, self.average):
            cells = [cell for m in METRICS for cell in (getattr(row, m), *row.intervals.get(m, ("", "")))]
            writer.writerow([sheet_cell(row.name), row.n_id, row.n_ood, *cells])
        return out.getvalue()

    def save(self, path: str | PathLike[str]) -> None:
        """Write Markdown, JSON or CSV, as the suffix says: ``.md``, ``.json``, ``.csv``."""
        writers: dict[str, Callable[[], str]] = {".md": self.to_markdown, ".json": self.to_json, ".csv": self.to_csv}
        path = Path(path)
        if path.suffix.lower() not in writers:
            raise InputError(
                f"Cannot tell the format from {path.name!r}. "
                f"Name the file {path.stem}.md, {path.stem}.json or {path.stem}.csv."
            )
        write(path, writers[path.suffix.lower()]())


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
