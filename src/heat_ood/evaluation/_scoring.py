"""A detector on one ID and several OOD sets: a row for each set, and their average."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..metrics import METRICS, Scores, as_array, as_scores, percentile_intervals, replicates, summary
from ._curves import Curve
from ._evaluation import AVERAGE, Evaluation, Row

__all__ = ["Scorer", "evaluate", "evaluate_scores"]


class Scorer(Protocol):
    """Anything that scores samples, higher = more OOD: a detector, an energy, a baseline."""

    def score(self, x: Any, /) -> Any: ...


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
    curves: bool = True,
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
        curves: whether to keep a small ROC curve and histogram of each set, for :mod:`heat_ood.plot` and reports.

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
    how = {"intervals": intervals, "curves": curves}
    return evaluate_scores(id_scores, ood_scores, bootstrap=bootstrap, level=level, seed=seed, **how)


def evaluate_scores(
    id_scores: Scores,
    ood_scores: Mapping[str, Scores] | Scores,
    *,
    intervals: bool = True,
    bootstrap: int = 200,
    level: float = 0.95,
    seed: int = 0,
    curves: bool = False,
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
        draws = {name: replicates(s, t, bootstrap, seed, stream=stream_of(name)) for name, t in sets.items()}
        own = {name: percentile_intervals(draw, level) for name, draw in draws.items()}
        shared = percentile_intervals(np.mean(list(draws.values()), axis=0), level)

    rows = tuple(
        Row(name, len(s), len(sets[name]), **asdict(p), intervals=own.get(name, {})) for name, p in points.items()
    )
    average = Row(AVERAGE, len(s), sum(map(len, sets.values())), **mean, intervals=shared)
    evaluation = Evaluation(rows, average, *((bootstrap, level, seed) if intervals else ()))
    return replace(evaluation, curves={name: Curve.of(s, t) for name, t in sets.items()}) if curves else evaluation


def stream_of(name: str) -> int:
    """A set's own stream of random numbers, by its name; names of files need not be text."""
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


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
