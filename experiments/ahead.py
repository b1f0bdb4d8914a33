"""Compositions judged by ID data first, and looked at beside OOD numbers afterwards.

    python experiments/ahead.py terms --suites shared-cifar100 text [--seeds 0 1 2]
    python experiments/ahead.py residuals --suites shared-cifar100
    python experiments/ahead.py tasks [--suites …] [--seeds …] [--last]
    python experiments/ahead.py look [--suites …] [--seeds …] [--last] [--corrected]
    python experiments/ahead.py oracle --suites shared-cifar100

`terms` fits once and keeps the energies of every candidate on all samples, those of ID tasks in one file and those of
the test sets in another, so that a composition costs seconds and `tasks` cannot see an OOD number; `residuals` keeps
those of three residuals against contrast. The tasks: *classes* left out in five groups (of a frozen backbone the head
is trained anew without them), *distortions* (images: eleven kinds; questions: words of all, of two halves, of two
questions, shuffled, dropped), *mixtures* of two images (mixup and cutmix) or of two classes' features (their mean).
The criterion is the mean AUROC of the three. `--last` composes what there is of the last layer alone.

`oracle` is no method: a logistic regression on all terms and their hinges that is shown half of the OOD samples, and
judged by the others. It says how far any composition of these terms could go, and chose nothing.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from ahead_samples import CACHE, NEAR, SUITES
from ahead_terms import FOLDS, SEEDS, Terms, keep_residuals, keep_terms, read
from heat_ood.metrics import auroc, summary

MIXED = ("mixup", "cutmix")
SHRUNK = 10
"""So many samples of all classes join those of each, where energies are standardised by predicted class."""


# Rules


@dataclass(frozen=True)
class View:
    """Samples beside the ID samples that standardise them."""

    real: Terms
    other: Terms
    used: Sequence[str]

    def z(self, name: str) -> np.ndarray:
        return (self.other[name] - self.real[name].mean()) / self.real[name].std()

    def by_class(self, name: str) -> np.ndarray:
        """Standardised by the mean and the spread of the predicted class, both drawn towards those of all."""
        energies, own, there = self.real[name], *(x["predicted"].astype(int) for x in (self.real, self.other))
        classes = 1 + max(own.max(), there.max())
        counts = np.bincount(own, minlength=classes) + SHRUNK
        centre = (np.bincount(own, energies, classes) + SHRUNK * energies.mean()) / counts
        rest = energies - centre[own]
        variance = (np.bincount(own, rest**2, classes) + SHRUNK * rest.var()) / counts
        return (self.other[name] - centre[there]) / np.sqrt(variance[there])

    @property
    def layers(self) -> list[str]:
        return [name for name in self.used if name.startswith("gmm")]

    @property
    def relative(self) -> np.ndarray | float:
        return sum(self.z(name) for name in self.used if name.startswith("relative"))

    def mean(self, names: Sequence[str]) -> tuple[np.ndarray, float]:
        """The mean of some, standardised again, and the spread that it had."""
        real, other = (np.mean([View(self.real, x, self.used).z(n) for n in names], 0) for x in (self.real, self.other))
        return (other - real.mean()) / real.std(), float(real.std())


Rule = Callable[[View], np.ndarray]


def composed(
    energy: float, relative: float, layers: float, bent: bool, cross: float = 0.0, bend: float = 0.5, **more: float
) -> Rule:
    """By family; ``bent`` counts the layers by what exceeds half a spread, standardised, and else as they are.

    ``cross`` is the weight of the cross-entropies of head and layers, standardised together; ``more`` are single terms.
    """

    def rule(view: View) -> np.ndarray:
        far, spread = view.mean(view.layers)
        own = np.logaddexp(0, far - bend) if bent else far * spread
        found = energy * view.z("energy") + relative * view.relative + layers * own
        if cross:
            found = found + cross * view.mean([f"cross {name}" for name in view.layers])[0]
        return np.asarray(found + sum(weight * view.z(name.replace("_", " ")) for name, weight in more.items()))

    return rule


def single(name: str) -> Rule:
    return lambda view: view.z(name)


SINGLE = ("energy", "gen", "max-logit", "msp", "scale", "react", "fdbd", "vim", "relative raw")
PAPERS = ("neco", "nci", "she", "ora", "core", "weiper", "cosine")
AGREEMENT = ("mean entropy", "js", "cross", "product 0.25", "product 1", "relative all", "mean all", "density all")
RULES: dict[str, Rule] = {
    **{name: single(name) for name in (*SINGLE, *PAPERS, *AGREEMENT)},
    **{f"{name}, by class": (lambda v, name=name: v.by_class(name)) for name in ("energy", "fdbd", "cross")},  # type: ignore[misc]
    "relative last": lambda view: view.z(next(n for n in view.real if n in ("relative-gmm-joint", "relative-gmm"))),
    "layers": lambda view: view.mean(view.layers)[0],
    "plain 6:2:4": composed(6, 2, 4, False),
    "plain 3:1:4": composed(3, 1, 4, False),
    "one-sided 6:2:4": composed(6, 2, 4, True),
    "one-sided 3:1:4": composed(3, 1, 4, True),
    "one-sided 6:2:4, from 0": composed(6, 2, 4, True, bend=0.0),
    "one-sided 6:2:4, from 1.5": composed(6, 2, 4, True, bend=1.5),
    "plain 6:2:4, cross 3": composed(6, 2, 4, False, 3),
    "one-sided 6:2:4, cross 3": composed(6, 2, 4, True, 3),
    **{f"one-sided 6:2:{w:g}": composed(6, 2, w, True) for w in (2, 3, 6, 8, 10)},
    **{f"one-sided 6:{w:g}:4": composed(6, w, 4, True) for w in (0, 4)},
    **{f"one-sided 6:2:4, fdbd {w:g}": composed(6, 2, 4, True, fdbd=w) for w in (1, 2, 3)},
    "plain 6:2:4, relative of all": composed(6, 0, 4, False, relative_all=2),
    "plain 6:3:4, relative of all": composed(6, 0, 4, False, relative_all=3),
    "plain 6:4:4, relative of all": composed(6, 0, 4, False, relative_all=4),
    "plain 6:6:4, relative of all": composed(6, 0, 4, False, relative_all=6),
    "plain 6:4:6, relative of all": composed(6, 0, 6, False, relative_all=4),
    "one-sided 5:3:4, relative of all": composed(5, 0, 4, True, relative_all=3),
    "one-sided 6:4:4, relative of all": composed(6, 0, 4, True, relative_all=4),
    "one-sided 6:4:6, relative of all": composed(6, 0, 6, True, relative_all=4),
    "one-sided 5:3:4 of all, fdbd 1": composed(5, 0, 4, True, relative_all=3, fdbd=1),
    "one-sided 4:4:4 of all, fdbd 1": composed(4, 0, 4, True, relative_all=4, fdbd=1),
    "6:4 of all, no layers": composed(6, 0, 0, False, relative_all=4),
}


# Verdicts


@cache
def kept(folder: Path, what: str, name: str, seed: int, last: bool) -> tuple[dict[str, Terms], list[str]]:
    """The energies, and the names of the default's priors that ID data supports."""
    sets, more = read(folder / f"{what}-{name}-{seed}.npz")
    return sets, [prior for prior in more.get("used", []) if not last or "@" not in prior]


def tasks_of(folder: Path, name: str, seed: int, last: bool) -> dict[str, list[tuple[View, View]]]:
    sets, used = kept(folder, "id", name, seed, last)
    held = sets["held"]

    def pair(real: Terms, other: Terms) -> tuple[View, View]:
        return View(real, real, used), View(real, other, used)

    kinds = {k.removeprefix("kind "): pair(held, v) for k, v in sets.items() if k.startswith("kind")}
    mixed = [kinds.pop(kind) for kind in MIXED if kind in kinds]
    return {
        "classes": [pair(sets[f"fold {i} in"], sets[f"fold {i} out"]) for i in range(FOLDS)],
        "distortions": list(kinds.values()),
        "mixtures": mixed or [pair(held, sets["mixtures"])],
    }


def judged(rule: Rule, pairs: Sequence[tuple[View, View]]) -> float:
    return 100 * float(np.mean([auroc(rule(real), rule(other)) for real, other in pairs]))


def averages(name: str, scores: dict[str, np.ndarray]) -> tuple[float, float, float]:
    """FPR95 and AUROC on average, and the near sets' AUROC, in per cent."""
    found = {k: summary(scores["test"], v) for k, v in scores.items() if k != "test"}
    fpr, auc = (float(np.mean([getattr(m, key) for m in found.values()])) for key in ("fpr_at_95_id", "auroc"))
    return 100 * fpr, 100 * auc, 100 * float(np.mean([found[k].auroc for k in NEAR[name]]))


def looked(
    rule: Rule, folder: Path, name: str, seed: int, last: bool, residuals: int = 0, times: float = 1.0
) -> tuple[float, float, float]:
    """With the mean of so many of the kept residuals, ``times`` as large, or without."""
    (ids, used), (sets, _) = (kept(folder, part, name, seed, last) for part in ("id", "ood"))
    held = ids["held"]
    spread = rule(View(held, held, used)).std()
    scores = {k: rule(View(held, found, used)) / spread for k, found in sets.items()}
    if residuals:
        more, _ = kept(folder, "residual", name, seed, last)
        for k in scores:
            scores[k] = scores[k] + times * np.mean([more[k][f"residual {i}"] for i in range(residuals)], 0)
    return averages(name, scores)


def oracle(folder: Path, name: str, seed: int, near: float) -> tuple[float, float, float]:
    """The averages of a regression that is shown half of the OOD samples; near ones weigh ``near`` times as much."""
    (ids, _), (sets, _) = (kept(folder, part, name, seed, False) for part in ("id", "ood"))
    held, rng = ids["held"], np.random.default_rng(0)
    names = [term for term in held if term != "predicted"]

    def columns(found: Terms) -> np.ndarray:
        z = np.stack([(found[n] - held[n].mean()) / held[n].std() for n in names], 1).clip(-8, 20)
        return np.hstack([z, np.logaddexp(0, z - 0.5), np.logaddexp(0, 2 * z - 3)])

    x, y, weights, left = [], [], [], {}
    for k, found in sets.items():
        rows = columns(found)
        shown = rng.random(len(rows)) < 0.5
        left[k] = rows[~shown]
        x.append(rows[shown])
        y.append(np.full(shown.sum(), k != "test"))
        share = len(sets) - 1 if k == "test" else near if k in NEAR[name] else 1.0
        weights.append(np.full(shown.sum(), share / shown.sum()))
    together = np.concatenate(weights)
    model = LogisticRegression(C=0.05, max_iter=400)
    model.fit(np.concatenate(x), np.concatenate(y), sample_weight=together / together.mean())
    return averages(name, {k: model.decision_function(rows) for k, rows in left.items()})


def said(rows: Sequence[tuple[float, float, float]]) -> str:
    fpr, auc, near = np.mean(rows, 0)
    return f"{fpr:.2f} / {auc:.2f}, {near:.2f}"


def line(title: str, options: argparse.Namespace) -> str:
    """A row of the table that was asked for."""
    rule, cells, means = RULES[title], [], []
    for name in options.suites:
        some = [(options.folder, name, seed, options.last) for seed in options.seeds]
        try:
            if options.what == "tasks":
                found = np.mean([[judged(rule, pairs) for pairs in tasks_of(*one).values()] for one in some], 0)
                means.append(found.mean())
                cells.append(", ".join(f"{value:.2f}" for value in found))
                continue
            cells.append(said([looked(rule, *one) for one in some]))
            for count, times in ((1, 1.0), (SEEDS, 1.0), (SEEDS, 2.0)) if options.corrected else ():
                cells[-1] += "; " + said([looked(rule, *one, residuals=count, times=times) for one in some])
        except KeyError:  # the suite lacks what the rule reads
            cells.append("")
    return f"| {title} | {' | '.join(cells)} | {f'{np.mean(means):.2f}' if means else ''} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("terms", "residuals", "tasks", "look", "oracle"))
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=SUITES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--last", action="store_true", help="the priors of the last layer alone")
    parser.add_argument("--corrected", action="store_true", help="a residual, the mean of three, twice that mean too")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--folder", type=Path, default=CACHE / "ahead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.what in ("terms", "residuals"):
        keep = keep_terms if options.what == "terms" else keep_residuals
        for name in options.suites:
            for seed in options.seeds:
                keep(name, seed, options.folder)
        return
    if options.what == "oracle":
        for name in options.suites:
            for near in (1.0, 4.0):
                found = said([oracle(options.folder, name, seed, near) for seed in options.seeds])
                print(f"{name}, near sets {near:g} times: {found}", flush=True)
        return
    print("| | " + " | ".join(options.suites) + " | mean |\n" + "|---" * (len(options.suites) + 2) + "|")
    for title in options.rules:
        print(line(title, options), flush=True)


if __name__ == "__main__":
    sys.exit(main())
