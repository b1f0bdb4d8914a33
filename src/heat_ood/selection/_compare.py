"""Which rule does best on both tasks, and never badly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..energies import Task, create_prior, distortion_tasks, left_out_tasks
from ..errors import Argument, InputError
from ..features import Features
from ..files import frame
from ..heat import HEAT, check_fit, default_choice, names_of
from ..metrics import summary
from ._rules import RULES, Rule

__all__ = ["Comparison", "Verdict", "compare"]


VERDICT = ("fpr_at_95_id", "auroc")


@dataclass(frozen=True)
class Verdict:
    """What a rule gave on one task's samples: means over the parts of it, as fractions."""

    fpr_at_95_id: float
    auroc: float

    def __str__(self) -> str:
        return f"{100 * self.fpr_at_95_id:.1f} / {100 * self.auroc:5.2f}"


@dataclass(frozen=True)
class Comparison:
    """All rules on all tasks.

    Args:
        priors: what was composed.
        rows: for each rule and each prior alone, its verdict by task.
    """

    priors: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Verdict]]

    @property
    def mean(self) -> dict[str, float]:
        """The mean AUROC over the tasks."""
        return {name: float(np.mean([v.auroc for v in row.values()])) for name, row in self.rows.items()}

    @property
    def worst(self) -> dict[str, float]:
        """How far a rule is behind the best one on the task where it is furthest behind."""
        tasks = next(iter(self.rows.values()))
        best = {t: max(row[t].auroc for row in self.rows.values()) for t in tasks}
        return {name: max(best[t] - row[t].auroc for t in tasks) for name, row in self.rows.items()}

    @property
    def best(self) -> str:
        """The row with the highest mean AUROC."""
        return max(self.rows, key=self.mean.__getitem__)

    @property
    def table(self) -> list[list[str]]:
        """A header and a line for each row, in per cent."""
        tasks = list(next(iter(self.rows.values())))
        mean, worst = self.mean, self.worst
        lines = [["FPR95 / AUROC in %", *tasks, "mean AUROC", "behind the best"]]
        for name, row in self.rows.items():
            lines.append([name, *(str(row[t]) for t in tasks), f"{100 * mean[name]:.2f}", f"{100 * worst[name]:.2f}"])
        return lines

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each rule, two columns for each task; fractions. It takes pandas."""
        return frame(
            [
                {
                    "rule": name,
                    **{f"{task} {metric}": getattr(v, metric) for task, v in row.items() for metric in VERDICT},
                    "mean_auroc": self.mean[name],
                }
                for name, row in self.rows.items()
            ],
            "rule",
        )

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        return "\n".join(
            "  ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))])
            for first, *rest in self.table
        )


def compare(
    train: Features,
    contrast: Features | None = None,
    *,
    priors: Sequence[str] | None = None,
    rules: Mapping[str, Rule] = RULES,
    folds: int = 5,
    seed: int = 0,
) -> Comparison:
    """Judge rules of composition by ID data alone, on your own model.

    Two tasks stand for what is not known: *classes*, where each group of classes is left out of the fit once and
    told from the others, is near; *distortions*, where held-out samples are told from each kind of contrast, is far.
    Neither is used by the default's fit of the priors.

    Args:
        train: ID features with labels, as for :meth:`HEAT.fit`; a tenth is held out.
        contrast: features of distorted images, as :meth:`Extractor.contrast` makes them; None leaves out the task.
        priors: what to compose; None is the default's choice.
        rules: by name.
        folds: groups of classes; 0 leaves out the task.
        seed: of the split and of the groups.

    Example:
        >>> import torch
        >>> torch.manual_seed(0) and None
        >>> y = torch.arange(600) % 6
        >>> z = (torch.randn(6, 8)[y] + 0.3 * torch.randn(600, 8)).relu()
        >>> found = compare(Features(avg=z, labels=y, head=(torch.randn(6, 8), None)), folds=3)
        >>> found.best in found.rows
        True
    """
    if contrast is None and not folds:
        raise InputError(
            "There is nothing to judge by: pass ", Argument("contrast"), ", ", Argument("folds"), ", or both."
        )
    detector = HEAT(priors, seed=seed)
    check_fit(detector, train, contrast)
    names = default_choice(train).priors if priors is None else names_of(priors, None, train)
    fitting, held = detector.split(train)
    tasks: dict[str, list[Task]] = {}
    if folds:
        tasks["classes"] = left_out_tasks(names, fitting, held, folds, seed)
    if contrast is not None:
        parts = {name: create_prior(name).fit(fitting) for name in names}
        tasks["distortions"] = distortion_tasks(parts, held, contrast)
    rows = {name: {t: judged(rule, names, each) for t, each in tasks.items()} for name, rule in rules.items()}
    for k, name in enumerate(names):
        rows[f"{name} alone"] = {t: judged(single(k), names, each) for t, each in tasks.items()}
    return Comparison(names, rows)


def single(k: int) -> Rule:
    return lambda names, real: lambda energies: energies[:, k]


def judged(rule: Rule, names: Sequence[str], tasks: Sequence[Task]) -> Verdict:
    found = []
    for task in tasks:
        score = rule(names, task.real)
        found.append(summary(score(task.real), score(task.other)))
    return Verdict(*(float(np.mean([getattr(m, name) for m in found])) for name in ("fpr_at_95_id", "auroc")))
