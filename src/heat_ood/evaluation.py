"""A detector on one ID and several OOD sets: a row for each set and their average, as objects, Markdown, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .errors import FormatError, InputError
from .metrics import METRICS, Scores, as_array, as_scores, percentile_intervals, replicates, summary

__all__ = ["Evaluation", "Row", "Scorer", "compare", "evaluate", "evaluate_scores"]

HEADERS = {
    "auroc": "AUROC ↑",
    "aupr_in": "AUPR-in ↑",
    "aupr_out": "AUPR-out ↑",
    "fpr_at_95_id": "fpr_at_95_id ↓",
    "fpr_at_95_ood": "fpr_at_95_ood ↓",
}
CONVENTION = "score: higher = more OOD"
AVERAGE = "average"
FORMAT, VERSION = "heat-ood/evaluation", 1


class Scorer(Protocol):
    """Anything that scores samples, higher = more OOD: a detector, an energy, a baseline."""

    def score(self, x: Any, /) -> Any: ...


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

    def cell(self, metric: str, intervals: bool = False) -> str:
        """A metric in percent with one decimal, with its interval in brackets if asked for and known."""
        text = percent(getattr(self, metric))
        if intervals and metric in self.intervals:
            low, high = self.intervals[metric]
            text += f" [{percent(low)}, {percent(high)}]"
        return text


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The rows of :func:`evaluate`: iterate, or index by the name of an OOD set.

    Args:
        rows: one row for each OOD set.
        average: the mean of each metric over the sets, each set counting once; ``n_ood`` is their total.
        resamples: of the bootstrap; zero without intervals.
        level: of the intervals.
        seed: of the bootstrap.
    """

    rows: tuple[Row, ...]
    average: Row
    resamples: int = 0
    level: float = 0.95
    seed: int = 0

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

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, fractions unrounded."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "convention": CONVENTION,
            "bootstrap": {"resamples": self.resamples, "level": self.level, "seed": self.seed}
            if self.resamples
            else None,
            "rows": [asdict(row) for row in self.rows],
            AVERAGE: asdict(self.average),
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as text; :meth:`from_json` reads it back, equal."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Evaluation:
        """Read :meth:`to_json` back."""
        try:
            data = json.loads(text)
            kind, version = data["format"], data["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError(f"Not an evaluation: {error!r}. Pass the text that Evaluation.to_json wrote.") from error
        if kind != FORMAT:
            raise FormatError(f"Not an evaluation but {kind!r}. Pass the text that Evaluation.to_json wrote.")
        if version != VERSION:
            raise FormatError(
                f"The evaluation has format version {version!r}; this heat-ood reads {VERSION}. "
                "Upgrade heat-ood, or evaluate again."
            )
        try:
            return cls(tuple(map(read_row, data["rows"])), read_row(data[AVERAGE]), **(data["bootstrap"] or {}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(
                f"The evaluation is damaged: {error!r}. Write it again with Evaluation.to_json."
            ) from error

    def to_csv(self) -> str:
        """A line for each set and one for the average; fractions unrounded, intervals as ``…_low`` and ``…_high``."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", "n_id", "n_ood", *(m + end for m in METRICS for end in ("", "_low", "_high"))])
        for row in (*self.rows, self.average):
            cells = [cell for m in METRICS for cell in (getattr(row, m), *row.intervals.get(m, ("", "")))]
            writer.writerow([row.name, row.n_id, row.n_ood, *cells])
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
        path.write_text(writers[path.suffix.lower()](), encoding="utf-8")


def evaluate(
    detector: Scorer,
    id: Any,
    ood: Any,
    *,
    intervals: bool = True,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    batch_size: int | None = None,
) -> Evaluation:
    """Score an ID set and several OOD sets, each once, and measure how well the scores tell them apart.

    Args:
        detector: has ``score(x)``, one number a sample, higher = more OOD.
        id: ``Features`` (or whatever the detector scores: a loader, for one that runs a model) of ID test data, used
            neither to fit nor to calibrate.
        ood: a mapping from names to ``Features``; a single set is named "ood".
        intervals: whether to add bootstrap intervals.
        bootstrap: how many resamples.
        level: of the intervals.
        seed: of the resamples.
        batch_size: score so many samples at a time; None leaves it to the detector. A loader has batches of its own.

    Example:
        >>> class Norm:
        ...     def score(self, x):
        ...         return x.norm(dim=1)
        >>> import torch
        >>> evaluate(Norm(), torch.ones(50, 2), {"near": torch.ones(40, 2), "far": 3 * torch.ones(30, 2)})
        Evaluation: 50 ID samples, percent, score: higher = more OOD
                 n_ood  AUROC ↑  AUPR-in ↑  AUPR-out ↑  fpr_at_95_id ↓  fpr_at_95_ood ↓
        near        40     50.0       55.6        44.4           100.0            100.0
        far         30    100.0      100.0       100.0             0.0              0.0
        average     70     75.0       77.8        72.2            50.0             50.0
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(
            f"A batch needs at least one sample, not {batch_size}. Pass None to leave the size to the detector."
        )

    def scores(x: Any) -> Scores:
        if batch_size is None:
            return as_array(detector.score(x))
        if hasattr(detector, "assess"):  # it runs a model on batches of inputs, which cannot all be sliced
            return as_array(detector.score(x, batch_size=batch_size))  # type: ignore[call-arg]
        starts = range(0, max(len(x), 1), batch_size)
        return np.concatenate([as_array(detector.score(x[i : i + batch_size])) for i in starts])

    sets = named(ood)
    id_scores, ood_scores = scores(id), {name: scores(x) for name, x in sets.items()}
    return evaluate_scores(id_scores, ood_scores, intervals=intervals, bootstrap=bootstrap, level=level, seed=seed)


def evaluate_scores(
    id_scores: Scores,
    ood_scores: Mapping[str, Scores] | Scores,
    *,
    intervals: bool = True,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """:func:`evaluate` for scores that are there already.

    A resample draws the same ID samples for all sets, so the average's interval keeps what the sets share; a set's own
    interval depends on its name and scores, not on the sets beside it.
    """
    s = as_scores(id_scores, "the ID set")
    sets = {name: as_scores(x, f"the OOD set {name!r}") for name, x in named(ood_scores).items()}
    points = {name: summary(s, t) for name, t in sets.items()}
    mean = {m: float(np.mean([getattr(p, m) for p in points.values()])) for m in METRICS}

    own: dict[str, dict[str, tuple[float, float]]] = {}
    shared: dict[str, tuple[float, float]] = {}
    if intervals:
        draws = {name: replicates(s, t, bootstrap, seed, stream=zlib.crc32(name.encode())) for name, t in sets.items()}
        own = {name: percentile_intervals(draw, level) for name, draw in draws.items()}
        shared = percentile_intervals(np.mean(list(draws.values()), axis=0), level)

    rows = tuple(
        Row(name, len(s), len(sets[name]), **asdict(p), intervals=own.get(name, {})) for name, p in points.items()
    )
    average = Row(AVERAGE, len(s), sum(map(len, sets.values())), **mean, intervals=shared)
    return Evaluation(rows, average, *((bootstrap, level, seed) if intervals else ()))


def compare(evaluations: Mapping[str, Evaluation]) -> str:
    """A Markdown table of several evaluations on the same sets: a row for each, FPR95 / AUROC, the best in bold."""
    if not evaluations:
        raise InputError("Nothing to compare: pass a mapping from labels to evaluations.")
    names = next(iter(evaluations.values())).names
    for label, evaluation in evaluations.items():
        if set(evaluation.names) != set(names):
            raise InputError(
                f"{label!r} was evaluated on {', '.join(evaluation.names)}, the first on {', '.join(names)}. "
                "Evaluate all on the same OOD sets."
            )

    columns = []
    for name in (*names, None):
        rows = [e.average if name is None else e[name] for e in evaluations.values()]
        fprs, aurocs = [r.cell("fpr_at_95_id") for r in rows], [r.cell("auroc") for r in rows]
        lowest, highest = min(fprs, key=float), max(aurocs, key=float)
        columns.append(
            [f"{embolden(f, f == lowest)} / {embolden(a, a == highest)}" for f, a in zip(fprs, aurocs, strict=True)]
        )
    body = [[escape(label), *cells] for label, cells in zip(evaluations, zip(*columns, strict=True), strict=True)]
    note = f"{HEADERS['fpr_at_95_id']} / {HEADERS['auroc']} in percent, the best of each column in bold; {CONVENTION}."
    return markdown(["", *map(escape, names), AVERAGE], body, note)


def named(ood: Any) -> dict[str, Any]:
    sets = dict(ood) if isinstance(ood, Mapping) else {"ood": ood}
    if not sets:
        raise InputError("There is no OOD set to evaluate on. Pass a mapping from names to sets, or a single set.")
    for name in sets:
        if not isinstance(name, str):
            raise InputError(f"The name of an OOD set must be a string, not {name!r}.")
        if name == AVERAGE:
            raise InputError(
                f"No OOD set may be called {AVERAGE!r}: that row is the mean over all sets. Choose another name."
            )
    return sets


def read_row(data: dict[str, Any]) -> Row:
    intervals = {name: (float(low), float(high)) for name, (low, high) in data["intervals"].items()}
    metrics = {m: float(data[m]) for m in METRICS}
    return Row(str(data["name"]), int(data["n_id"]), int(data["n_ood"]), **metrics, intervals=intervals)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def embolden(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def escape(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def markdown(header: list[str], body: list[list[str]], note: str) -> str:
    """A table whose first column is text and the others numbers, with a note below."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, rule, *body)]
    return "\n".join([*lines, "", note, ""])
