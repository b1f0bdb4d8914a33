"""What a benchmark computes: jobs, each of which fits once and scores every set for one row of a table or more."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..energies import Energy
from ..errors import Notice
from ..features import Extractor, Features
from ..images import ImageSet

__all__ = ["Data", "Job", "Line", "Scored", "Scores", "fitted_scores", "silence", "split", "stratified"]

Scores = dict[str, np.ndarray[Any, Any]]
HELD_OUT = 0.1


@dataclass(frozen=True)
class Data:
    """The sets of a suite, as features and, where they are at hand, as images.

    ``calibration`` and ``test`` are disjoint parts of the ID test set; the backbone was trained on neither.
    ``contrast`` are training images, distorted; ``preset`` names the settings of :meth:`HEAT.paper` that suit the set.
    """

    train: Features
    calibration: Features
    test: Features
    ood: Mapping[str, Features]
    extractor: Extractor | None = None
    images: Mapping[str, ImageSet] = field(default_factory=dict)
    batch_size: int = 64
    contrast: Features | None = None
    preset: str = "cifar10"

    @property
    def scored(self) -> dict[str, Features]:
        """The sets that every method scores, without labels."""
        return {"calibration": self.calibration, "test": self.test, **self.ood}

    @property
    def has_images(self) -> bool:
        """Whether methods that run the model can be."""
        return self.extractor is not None and set(self.images) >= {"train", *self.scored}

    def loader(self, name: str) -> Any:
        """The images of a set, in order, in batches."""
        from torch.utils.data import DataLoader

        return DataLoader(self.images[name], batch_size=self.batch_size, shuffle=False)


@dataclass(frozen=True)
class Line:
    """A row that a job gives: its name, its kind, and where it stands in a curve, if it is part of one."""

    name: str
    kind: str
    series: str | None = None
    x: float | None = None


@dataclass(frozen=True)
class Scored:
    """What a job found: the scores of each row on each set, and what that took."""

    scores: Mapping[str, Scores]
    fit_seconds: float
    score_seconds: float
    """A sample."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One fit, and the rows that come of it.

    Args:
        name: unlike any other in the experiment; its results are kept under it.
        lines: the rows.
        run: fits with a seed, scores, and keeps what it needs to go on after an interruption in a folder.
        settings: what tells it from a job of the same name with other settings.
        once: whether one seed stands for all.
        fit: the name that its results are kept under where jobs of several experiments need the same fit: with the
            same settings it is run once for all of them. None is its own name.
        terms: for each row, how its scores of a set follow from what the fit scored; None takes those of its name.
    """

    name: str
    lines: tuple[Line, ...]
    run: Callable[[Data, int, Path], Scored]
    settings: Mapping[str, Any] = field(default_factory=dict)
    once: bool = False
    fit: str | None = None
    terms: Mapping[str, Callable[[Scores], np.ndarray[Any, Any]]] | None = None

    def rows(self, scored: Scored) -> Scored:
        """The rows of what the fit scored; a KeyError where it lacks something that they need."""
        found: dict[str, Scores] = {line.name: {} for line in self.lines}
        sets = next(iter(scored.scores.values()))
        for key in sets:
            whole = {name: scores[key] for name, scores in scored.scores.items()}
            for name, row in found.items():
                row[key] = whole[name] if self.terms is None else self.terms[name](whole)
        return replace(scored, scores=found)


def split(train: Features, seed: int) -> Features:
    """The 90 % of the training samples that a method without a held-out set of its own is fitted to.

    A class that would lose all its samples keeps the last that was drawn out: no Gaussian can be fitted to none.
    """
    order = np.random.default_rng(seed).permutation(len(train))
    out, rows = np.split(order, [round(HELD_OUT * len(train))])
    if train.labels is not None:
        labels = train.labels.cpu().numpy()
        lost = np.setdiff1d(labels[out], labels[rows])
        rows = np.concatenate([rows, [out[labels[out] == label][-1] for label in lost]]).astype(rows.dtype)
    return train.subset(torch.from_numpy(np.sort(rows)))


def stratified(train: Features, share: float, seed: int) -> np.ndarray[Any, Any]:
    """The numbers of a share of the samples, two a class at the least where there are labels."""
    order = np.random.default_rng([seed, 1]).permutation(len(train))
    if train.labels is None:
        return np.sort(order[: max(2, round(share * len(train)))])
    labels = train.labels.cpu().numpy()[order]
    first = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    keep = rank < np.repeat(np.maximum(2, np.round(share * sizes)), sizes)
    return np.sort(order[first[keep]])


def fitted_scores(
    fit: Callable[[], Energy], data: Data, terms: Callable[[Any, Features], Mapping[str, Any]], names: Sequence[str]
) -> Scored:
    """Fit, then score all sets; ``terms`` gives the scores of each row on one set."""
    started = time.perf_counter()
    energy = fit()
    fit_seconds = time.perf_counter() - started
    scores: dict[str, Scores] = {name: {} for name in names}
    started, n = time.perf_counter(), 0
    for key, features in data.scored.items():
        found = terms(energy, features)
        for name in names:
            scores[name][key] = np.asarray(found[name], dtype=np.float32)
        n += len(features)
    return Scored(scores, fit_seconds, (time.perf_counter() - started) / max(n, 1))


@contextmanager
def silence(speak: bool = False) -> Iterator[None]:
    """No notices, unless it is to speak: forms with less on purpose need not say so."""
    with warnings.catch_warnings():
        if not speak:
            warnings.simplefilter("ignore", Notice)
        yield
