"""What an experiment found, as one object that is written to JSON and read back equal."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormatError, InputError
from ..evaluation import (
    AVERAGE,
    EVALUATION,
    Curve,
    Evaluation,
    Picture,
    check_count,
    check_finite,
    check_shares,
    layout,
)
from ..files import Format, plain, read, restored, write
from ..metrics import METRICS

__all__ = ["KINDS", "Cost", "Curve", "Entry", "Mean", "Missing", "Picture", "Results", "Run", "better"]

FORMAT = Format("heat-ood/results", 2)
FOREIGN = "Pass a file that heat-ood benchmark, or heat-ood evaluate --save, wrote."
AGAIN = "Run the benchmark again, or restore the file."
NAMES = {"method": "the detector", "id": "the ID set", "backbone": "its network"}
"""What an evaluation says of itself, and what it is called where it does not."""
LARGEST = 128 << 20
"""Bytes of a file of results."""
MOST = 20_000
"""Cells of a table, entries times sets, and how many of anything else there may be."""
KINDS = ("baseline", "prior", "corrected", "composition", "heat", "paper")


def number_of(text: str) -> float:
    """A rate that is a key of JSON, and so text."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r:.60} is no false-alarm rate. Give a number between 0 and 1.") from None


def better(metric: str) -> int:
    """Which way a metric is better: −1 for the two FPR95s, 1 for the others."""
    return -1 if metric.startswith("fpr") else 1


@dataclass(frozen=True)
class Run:
    """One row of a table with one seed.

    Args:
        seed: of the split and of the training; -1 for what was not run here.
        evaluation: all metrics by OOD set, and their average.
        fit_seconds: what the fit took.
        score_seconds: what a sample's score took, features given.
        alarms: from nominal false-alarm rates, as text, to those measured on the ID test set after calibration.
        curves: by OOD set; those of the evaluation, which are then kept here alone.
    """

    seed: int
    evaluation: Evaluation
    fit_seconds: float | None = None
    score_seconds: float | None = None
    alarms: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("a seed", abs(self.seed))
        check_finite("a time", (t for t in (self.fit_seconds, self.score_seconds) if t is not None))
        for rate, measured in self.alarms.items():
            check_finite("a false-alarm rate", (number_of(rate),))
            check_shares("a false-alarm rate", (number_of(rate), measured))
        if self.evaluation.curves:
            object.__setattr__(self, "curves", self.curves or self.evaluation.curves)
            object.__setattr__(self, "evaluation", replace(self.evaluation, curves={}))


@dataclass(frozen=True)
class Entry:
    """One row of a table, or one point of a line.

    Args:
        name: of the method, as "gmm, corrected".
        kind: baseline, prior, corrected, composition, heat or paper; "paper" is a row that the paper printed.
        runs: one a seed.
        settings: of the method, where they are not its defaults.
        series: the line that the point belongs to.
        x: where on the line: λ, β or the share of the data; may be infinite.
    """

    name: str
    kind: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    series: str | None = None
    x: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"The entry {self.name!r} is of no known kind ({self.kind!r}). Use {', '.join(KINDS)}.")
        if not self.runs:
            raise InputError(f"The entry {self.name!r} has no runs. Leave it out, or give it one.")
        if self.x is not None and math.isnan(self.x):
            raise InputError(f"The entry {self.name!r} stands at x = NaN. Give a number, or none.")
        if len({run.seed for run in self.runs}) < len(self.runs):
            raise InputError(f"The entry {self.name!r} has two runs with one seed. Give each run a seed of its own.")


@dataclass(frozen=True)
class Missing:
    """A data set that was not found: where to get it, and where to put it."""

    name: str
    get: str
    put: str


@dataclass(frozen=True)
class Cost:
    """What a part costs: milliseconds a sample, and as a share of HEAT's with the backbone."""

    name: str
    milliseconds: float
    share: float

    def __post_init__(self) -> None:
        check_finite(f"the cost of {self.name!r}", (self.milliseconds, self.share))


class Mean(NamedTuple):
    """A mean over seeds and their standard deviation (n − 1), NaN where there is one seed."""

    mean: float
    spread: float


@dataclass(frozen=True)
class Results:
    """The entries of one experiment on one suite, and all that is needed to judge them.

    Args:
        suite: its name.
        title: one line on what was run.
        id: the ID set.
        backbone: the network whose features were used.
        groups: the OOD sets by group, near to far, those that are missing among them; "ood" where there are no groups.
        experiment: its name.
        entries: the rows.
        missing: the sets that were not found.
        about: when, by which command, versions, hardware, fingerprints, notes.
        pictures: of the qualitative experiment.
        costs: of the cost experiment.
        apart: groups that stand in the tables and count in no average.
    """

    suite: str
    title: str
    id: str
    backbone: str
    groups: Mapping[str, tuple[str, ...]]
    experiment: str
    entries: tuple[Entry, ...]
    missing: tuple[Missing, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    costs: tuple[Cost, ...] = ()
    apart: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = set(self.sets)
        if strange := [group for group in self.apart if group not in self.groups]:
            raise InputError(f"{strange[0]!r:.60} stands apart and is no group. Leave it out.")
        cells = len(self.sets) * sum(len(entry.runs) for entry in self.entries)
        if max(cells, len(self.sets), len(self.entries), len(self.pictures), len(self.missing), len(self.costs)) > MOST:
            raise InputError(
                f"There are more than {MOST:,} numbers of a kind, too many for a table. Split the results."
            )
        if len(known) < len(self.sets) or AVERAGE in known:
            raise InputError(f"The OOD sets {', '.join(self.sets)} need different names, none of them {AVERAGE!r}.")
        keys = [(e.name, e.kind, e.series, e.x) for e in self.entries]
        times = Counter(keys)
        for entry, key in zip(self.entries, keys, strict=True):
            if times[key] > 1:
                raise InputError(f"There are two entries {entry.name!r} of one kind. Give each a name or an x.")
            strangers = [n for run in entry.runs for n in (*run.evaluation.names, *run.curves) if n not in known]
            if strangers:
                raise InputError(f"{entry.name!r} was evaluated on {strangers[0]!r}, which is in no group. Add it.")

    @classmethod
    def of(cls, evaluation: Evaluation) -> Results:
        """One evaluation as results of one row, for its report."""
        if not len(evaluation):
            raise InputError("The evaluation has no OOD set, so there is nothing to report. Evaluate on one at least.")
        about = dict(evaluation.about)
        method, id, backbone = (str(about.pop(key, name)) for key, name in NAMES.items())
        if right := about.pop("accuracy", None):
            about["model"] = {"accuracy": right}
        run = Run(evaluation.seed, replace(evaluation, about={}, pictures=()))
        row = Entry(method, "heat" if method == "HEAT" else "baseline", (run,))
        title, groups = f"{method} on {id}", {"ood": evaluation.names}
        return cls(id, title, id, backbone, groups, "evaluation", (row,), about=about, pictures=evaluation.pictures)

    # What was measured

    @property
    def sets(self) -> tuple[str, ...]:
        """All OOD sets, near to far, found or missing."""
        return tuple(name for names in self.groups.values() for name in names)

    @property
    def measured(self) -> tuple[Entry, ...]:
        """The entries that were run here."""
        return tuple(entry for entry in self.entries if entry.kind != "paper")

    @property
    def paper(self) -> tuple[Entry, ...]:
        """The entries from the paper."""
        return tuple(entry for entry in self.entries if entry.kind == "paper")

    @property
    def found(self) -> tuple[str, ...]:
        """The OOD sets with numbers of our own; with the paper's where there are only those."""
        names = {n for entry in self.measured or self.entries for run in entry.runs for n in run.evaluation.names}
        return tuple(name for name in self.sets if name in names)

    @property
    def counted(self) -> tuple[str, ...]:
        """Of those the sets that count in averages."""
        beside = {name for group in self.apart for name in self.groups[group]}
        return tuple(name for name in self.found if name not in beside)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of all measured entries."""
        return tuple(sorted({run.seed for entry in self.measured for run in entry.runs}))

    def mean(self, entry: Entry, metric: str, sets: Sequence[str] | None = None) -> Mean:
        """A metric over OOD sets and then over seeds, as a fraction; NaN where a set has no number.

        Args:
            entry: the row.
            metric: as "auroc".
            sets: which; None takes the sets that count, and a row without sets by its average.
        """
        if metric not in METRICS:
            raise InputError(f"There is no metric {metric!r}. There are {', '.join(METRICS)}.")
        which = self.counted if sets is None else sets
        values = [over_sets(run.evaluation, metric, which, average=sets is None) for run in entry.runs]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        return Mean(float(np.mean(values)), spread)

    def ranked(self, metric: str, sets: Sequence[str] | None = None) -> tuple[Entry, ...]:
        """The measured entries that have the metric, the best first."""
        values = [(entry, self.mean(entry, metric, sets).mean) for entry in self.measured]
        known = [(entry, value) for entry, value in values if not np.isnan(value)]
        return tuple(entry for entry, _ in sorted(known, key=lambda pair: -better(metric) * pair[1]))

    # As text

    def to_dict(self) -> dict[str, Any]:
        """What JSON holds; NaN and infinities are text."""
        return FORMAT.stamp(plain(vars(self)))

    def to_json(self) -> str:
        """:meth:`to_dict` as text, the same for the same results; :meth:`from_json` reads it back."""
        return layout(self.to_dict()) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Read :meth:`to_json` back; anything else is a :class:`~heat_ood.errors.FormatError`."""
        return cls._read(text, "The text")

    @classmethod
    def _read(cls, text: str | bytes, what: object) -> Results:
        content = FORMAT.unstamp(FORMAT.parse(text, what, FOREIGN, AGAIN))
        try:
            return restored(cls, content, "results")
        except (FormatError, InputError) as error:
            raise FormatError(f"{what} is damaged: {str(error).removesuffix('.')}. {AGAIN}") from error

    def save(self, path: str | PathLike[str]) -> Path:
        """Write JSON, or tables in Markdown, CSV or LaTeX: ``.json``, ``.md``, ``.csv`` or ``.tex``, by the suffix."""
        from ._tables import to_csv, to_latex, to_markdown

        writers: dict[str, Callable[[Results], str]] = {".json": Results.to_json, ".md": to_markdown}
        writers |= {".csv": to_csv, ".tex": to_latex}
        path = Path(path)
        if path.suffix.lower() not in writers:
            raise InputError(
                f"Cannot tell the format from {path.name!r}. Let the name end in one of {', '.join(writers)}."
            )
        write(path, writers[path.suffix.lower()](self))
        return path

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Results:
        """Read what :meth:`save` wrote as ``.json``."""
        return cls._read(read(Path(path), LARGEST), path)


def over_sets(evaluation: Evaluation, metric: str, sets: Sequence[str], average: bool) -> float:
    """The mean of a metric over sets; with ``average``, what the evaluation itself calls its average where it can."""
    if average and (not len(evaluation) or set(sets) == set(evaluation.names)):
        return float(getattr(evaluation.average, metric))
    values = {row.name: getattr(row, metric) for row in evaluation}
    return float(np.mean([values.get(name, np.nan) for name in sets])) if sets else float("nan")


def read_results(path: Path) -> Results:
    """What a benchmark or an evaluation wrote, by what the file says it is."""
    try:
        text = read(path, LARGEST)
    except FormatError as error:
        raise FormatError(f"{error} {FOREIGN}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError, MemoryError):
        content = None
    if isinstance(content, dict) and content.get("format") == EVALUATION:
        try:
            return Results.of(Evaluation.from_dict(content))
        except (FormatError, InputError) as error:
            raise FormatError(f"{path} cannot be read: {error}") from error
    return Results._read(text, path)
