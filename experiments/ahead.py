"""Compositions judged by ID data first, and looked at beside OOD numbers afterwards.

    python experiments/ahead.py terms --suites shared-cifar100 text [--seeds 0 1 2]
    python experiments/ahead.py tasks [--suites …]
    python experiments/ahead.py look [--suites …] [--seeds 0 1 2]

`terms` fits once and keeps the energies of every candidate on all samples, those of ID tasks in one file and those of
the test sets in another, so that a composition costs seconds and `tasks` cannot see an OOD number. The tasks: *classes*
left out in five groups (of a frozen backbone the head is trained anew without them), *distortions* (images: eleven
kinds; questions: words of all, of two halves, of two questions, shuffled, dropped), *mixtures* of two images (mixup and
cutmix) and of two classes' features (their mean). The head of EfficientNet is a logistic regression on 8,000 images
here. The criterion is the mean AUROC of classes, distortions and mixtures, those of images where there are any.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

import text
from heat_ood import HEAT, Features, create
from heat_ood.benchmarks import suite
from heat_ood.benchmarks._prepare import prepare
from heat_ood.energies import dealt, left_out_tasks
from heat_ood.features import KINDS
from heat_ood.heat import _choice as recipe
from heat_ood.heat import default_choice
from heat_ood.metrics import auroc, summary

CACHE = Path.home() / ".cache" / "heat-ood"
SUITES = ("shared-cifar10", "shared-cifar100", "backbone-cifar100", "text")
NEAR = {
    "shared-cifar10": ("cifar100", "tinyimagenet"),
    "shared-cifar100": ("cifar10", "tinyimagenet"),
    "text": text.NEAR,
}
CANDIDATES = ("gen", "fdbd", "vim", "react")
MIXED = ("mixup", "cutmix")
FOLDS, FEW, PAIRS, A_KIND = 5, 20_000, 3000, 800
Terms = dict[str, np.ndarray]
Rule = Callable[["View"], np.ndarray]


# Samples


def opened(name: str, seed: int) -> SimpleNamespace:
    """Train, contrast, test and OOD features of a suite; ``frozen`` backbones have heads of their own."""
    if name == "text":
        found = text.split(text.sets(CACHE / "text"), seed)
        return SimpleNamespace(train=found.train, contrast=None, test=found.test, ood=found.ood, frozen=True)
    if name.startswith("backbone"):
        own, folder = name.removeprefix("backbone-"), CACHE / "backbone"
        train, contrast = (Features.open(folder / f"{own}-{part}") for part in ("train", "contrast"))
        head = head_of(train, False)

        def headed(f: Features) -> Features:
            return Features(f.avg, f.std, None, f.labels, head, f.layers, f.fingerprint)

        return SimpleNamespace(train=headed(train), contrast=headed(contrast), test=None, ood={}, frozen=True)
    data = prepare(suite(name), cache=CACHE, say=print).data
    return SimpleNamespace(train=data.train, contrast=data.contrast, test=data.test, ood=data.ood, frozen=False)


def head_of(train: Features, sentences: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A linear head on some samples of these classes."""
    x, y = np.asarray(train.avg, dtype=np.float64), np.asarray(train.labels)
    if sentences:
        search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": text.STRENGTHS}, scoring="neg_log_loss", cv=3)
        model = search.fit(x, y).best_estimator_
        return torch.tensor(model.coef_).float(), torch.tensor(model.intercept_).float()
    rows = np.random.default_rng(0).permutation(len(x))[:8000]
    scaler = StandardScaler().fit(x[rows])
    model = LogisticRegression(max_iter=150, C=3e-3, tol=1e-3).fit(scaler.transform(x[rows]), y[rows])
    weight = model.coef_ / scaler.scale_
    return torch.tensor(weight).float(), torch.tensor(model.intercept_ - weight @ scaler.mean_).float()


def mixtures(held: Features, seed: int) -> Features:
    """The means of two samples of different classes, in every layer."""
    assert held.labels is not None
    rng, y = np.random.default_rng(seed), held.labels.numpy()
    i, j = rng.integers(len(y), size=(2, 2 * PAIRS))
    apart = np.flatnonzero(y[i] != y[j])[:PAIRS]
    one, two = (held.subset(torch.from_numpy(rows[apart])) for rows in (i, j))

    def mean(a: Any, b: Any) -> Any:
        return None if a is None else (torch.as_tensor(a) + torch.as_tensor(b)) / 2

    layers = {k: (mean(v.avg, two.layers[k].avg), mean(v.std, two.layers[k].std)) for k, v in one.layers.items()}
    return Features(avg=mean(one.avg, two.avg), std=mean(one.std, two.std), head=held.head, layers=layers or None)


def distorted(name: str, data: SimpleNamespace, seed: int) -> Iterator[tuple[str, Features]]:
    """ID samples made strange, by kind."""
    if name == "text":
        for kind, embeddings in sentences(seed).items():
            yield kind, Features(avg=embeddings, head=data.train.head)
        return
    for number, kind in enumerate(KINDS):
        rows = (data.contrast.labels == number).nonzero().flatten()[:A_KIND]
        yield kind, data.contrast.subset(rows)


def sentences(seed: int) -> dict[str, np.ndarray]:
    """Distorted training questions of a seed, embedded; kept once made."""
    file = CACHE / "text" / f"distorted-{seed}.npz"
    if not file.exists():
        asked = text.sets(CACHE / "text")["questions"]
        assert asked.types is not None
        kinds, counts = np.unique(asked.types, return_counts=True)
        rng, common = np.random.default_rng(seed), sorted(kinds[counts >= text.COMMON].tolist())
        left_out = rng.choice(common, text.LEFT_OUT, replace=False).tolist()
        rows = rng.permutation(np.flatnonzero(np.isin(asked.types, [k for k in common if k not in left_out])))
        train = rows[: 3 * len(rows) // 5]
        split, types = [asked.texts[i].split() for i in train], asked.types[train]
        words, rng = [word for one in split for word in one], np.random.default_rng(100 + seed)
        made: dict[str, list[str]] = {}
        for i in rng.permutation(len(split))[:400]:
            one, other = split[i], split[rng.choice(np.flatnonzero(types != types[i]))]
            for kind, found in {
                "words of all": [words[k] for k in rng.integers(len(words), size=len(one))],
                "two halves": one[: len(one) // 2] + other[len(other) // 2 :],
                "two questions": one + other,
                "shuffled": [one[k] for k in rng.permutation(len(one))],
                "dropped": [word for word in one if rng.random() < 0.5] or one[:1],
            }.items():
                made.setdefault(kind, []).append(" ".join(found))
        np.savez(file, **{kind: text.embedded(found) for kind, found in made.items()})
    with np.load(file) as stored:
        return {kind: stored[kind] for kind in stored.files}


# Terms


def keep_terms(name: str, seed: int, folder: Path) -> None:
    """Fit once, and write the energies of all candidates: ID tasks and test sets in files of their own."""
    data, heat = opened(name, seed), HEAT(seed=seed)
    fitting, held = heat.split(data.train)
    choice = default_choice(data.train)
    kept = recipe.supported(choice, fitting, held).priors
    heat = HEAT(choice.priors, choice.weights, seed=seed, residual=None if data.contrast is None else "auto")
    heat.fit(data.train, data.contrast, progress=False)
    others = {c: create(c).fit(fitting) for c in CANDIDATES}

    def terms(features: Features) -> Terms:
        energies = heat.energies(features)
        found = {prior: energies[f"prior/{prior}"].numpy() for prior in choice.priors}
        if "residual/joint" in energies:
            found["residual"] = energies["residual/joint"].numpy()
        return found | {c: method.score(features).numpy() for c, method in others.items()}

    tasks = {"held": terms(held), "mixtures": terms(mixtures(held, seed))}
    tasks |= {f"kind {kind}": terms(features) for kind, features in distorted(name, data, seed)}
    small = fitting.subset(torch.arange(len(fitting))[:: max(1, len(fitting) // FEW)])
    for fold, task in enumerate(left_out_tasks(choice.priors, small, held, FOLDS, 0)):
        real, other = (dict(zip(choice.priors, part.numpy().T, strict=True)) for part in (task.real, task.other))
        group = dealt(small, FOLDS, 0)
        known, rest = (group != fold).nonzero().flatten(), group[held.labels] != fold
        train = small.subset((group[small.labels] != fold).nonzero().flatten()).among(known)
        parts = [held.subset(rows.nonzero().flatten()).among(known, False) for rows in (rest, ~rest)]
        if data.frozen:
            head = head_of(train, name == "text")
            train = Features(avg=train.avg, std=train.std, labels=train.labels, head=head)
            parts = [Features(avg=part.avg, std=part.std, head=head) for part in parts]
        for c in ("energy", *CANDIDATES):
            method = create(c).fit(train)
            real[c], other[c] = (method.score(part).numpy() for part in parts)
        tasks |= {f"fold {fold} in": real, f"fold {fold} out": other}
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"id-{name}-{seed}.npz", tasks, used=kept, priors=choice.priors)
    if data.ood:
        tests = {"test": data.test, **data.ood}
        write(folder / f"ood-{name}-{seed}.npz", {k: terms(f) for k, f in tests.items()})


def write(file: Path, sets: Mapping[str, Terms], **more: Sequence[str]) -> None:
    flat = {f"{name}|{term}": values for name, found in sets.items() for term, values in found.items()}
    np.savez(file, **flat, **{key: np.array(value) for key, value in more.items()})


def read(file: Path) -> tuple[dict[str, Terms], dict[str, list[str]]]:
    sets: dict[str, Terms] = {}
    more: dict[str, list[str]] = {}
    with np.load(file) as stored:
        for key in stored.files:
            name, _, term = key.partition("|")
            if term:
                sets.setdefault(name, {})[term] = stored[key].astype(np.float64)
            else:
                more[key] = stored[key].tolist()
    return sets, more


# Rules


@dataclass(frozen=True)
class View:
    """Samples beside the ID samples that standardise them."""

    real: Terms
    other: Terms
    used: Sequence[str]

    def z(self, name: str) -> np.ndarray:
        return (self.other[name] - self.real[name].mean()) / self.real[name].std()

    @property
    def layers(self) -> list[str]:
        return [name for name in self.used if name.startswith("gmm")]

    @property
    def relative(self) -> np.ndarray | float:
        return sum(self.z(name) for name in self.used if name.startswith("relative"))

    def together(self) -> tuple[np.ndarray, float]:
        """The mean of the layers, standardised again, and the spread that it had."""
        real, other = (
            np.mean([View(self.real, x, self.used).z(name) for name in self.layers], 0) for x in (self.real, self.other)
        )
        return (other - real.mean()) / real.std(), float(real.std())


def composed(energy: float, relative: float, layers: float, bent: bool, **more: float) -> Rule:
    """By family; ``bent`` counts the layers by what exceeds half a spread, standardised, and else as they are."""

    def rule(view: View) -> np.ndarray:
        far, spread = view.together()
        own = np.logaddexp(0, far - 0.5) if bent else far * spread
        found = energy * view.z("energy") + relative * view.relative + layers * own
        return np.asarray(found + sum(weight * view.z(name) for name, weight in more.items()))

    return rule


def of_one_or_more(one: Rule, more: Rule) -> Rule:
    return lambda view: (one if len(view.layers) == 1 else more)(view)


RULES: dict[str, Rule] = {
    "energy": lambda view: view.z("energy"),
    "fdbd": lambda view: view.z("fdbd"),
    "vim": lambda view: view.z("vim"),
    "gen": lambda view: view.z("gen"),
    "react": lambda view: view.z("react"),
    "layers": lambda view: view.together()[0],
    "the default, plain": of_one_or_more(composed(3, 1, 4, False), composed(6, 2, 4, False)),
    "the default, one-sided": of_one_or_more(composed(3, 1, 4, True), composed(6, 2, 4, True)),
    **{f"one-sided 6:2:{w:g}": composed(6, 2, w, True) for w in (2, 3, 4, 5, 6, 8, 10)},
    **{f"one-sided 6:{w:g}:4": composed(6, w, 4, True) for w in (0, 1, 3, 4)},
    **{f"one-sided 6:2:4, fdbd {w:g}": composed(6, 2, 4, True, fdbd=w) for w in (1, 2, 3)},
}
LOOKED = (
    "energy",
    "fdbd",
    "vim",
    "the default, plain",
    "the default, one-sided",
    "one-sided 6:2:4",
    "one-sided 6:2:4, fdbd 2",
)
"""What was looked at beside OOD numbers, after the tasks had been."""


# Verdicts


def tasks_of(folder: Path, name: str, seed: int) -> dict[str, list[tuple[View, View]]]:
    sets, more = read(folder / f"id-{name}-{seed}.npz")
    used, held = more["used"], sets["held"]

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


def looked(rule: Rule, folder: Path, name: str, seed: int, corrected: bool) -> tuple[float, float, float]:
    """FPR95 and AUROC on average, and the near sets' AUROC, with the residual of the default or without."""
    (ids, more), (sets, _) = (read(folder / f"{part}-{name}-{seed}.npz") for part in ("id", "ood"))
    held, used = ids["held"], more["used"]
    spread = rule(View(held, held, used)).std()

    def score(found: Terms) -> np.ndarray:
        return rule(View(held, found, used)) / spread + (found.get("residual", 0.0) if corrected else 0.0)

    found = {k: summary(score(sets["test"]), score(v)) for k, v in sets.items() if k != "test"}
    fpr, auc = (float(np.mean([getattr(m, key) for m in found.values()])) for key in ("fpr_at_95_id", "auroc"))
    return 100 * fpr, 100 * auc, 100 * float(np.mean([found[k].auroc for k in NEAR[name]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("terms", "tasks", "look"))
    parser.add_argument("--suites", nargs="+", default=list(SUITES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=Path, default=CACHE / "ahead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.what == "terms":
        for name in options.suites:
            for seed in options.seeds:
                keep_terms(name, seed, options.folder)
        return
    if options.what == "look" and (unknown := set(options.suites) - set(NEAR)):
        sys.exit(f"{', '.join(sorted(unknown))}: experiments/backbone.py has its OOD sets, with its own head.")
    print("| | " + " | ".join(options.suites) + " | mean |\n" + "|---" * (len(options.suites) + 2) + "|")
    for title in RULES if options.what == "tasks" else LOOKED:
        rule, cells, means = RULES[title], [], []
        for name in options.suites:
            if options.what == "tasks":
                per_seed = [
                    [judged(rule, pairs) for pairs in tasks_of(options.folder, name, s).values()] for s in options.seeds
                ]
                found = np.mean(per_seed, 0)
                means.append(found.mean())
                cells.append(", ".join(f"{value:.2f}" for value in found))
            else:
                texts = []
                for corrected in (False, True):
                    rows = [looked(rule, options.folder, name, seed, corrected) for seed in options.seeds]
                    fpr, auc, near = np.mean(rows, 0)
                    texts.append(f"{fpr:.2f} / {auc:.2f}, near {near:.2f}")
                cells.append("; ".join(texts))
        print(f"| {title} | {' | '.join(cells)} | {f'{np.mean(means):.2f}' if means else ''} |", flush=True)


if __name__ == "__main__":
    main()
