"""The samples of ahead.py: every suite's own, and those of the tasks that are made of ID data alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

import backbone
import text
from heat_ood import Features
from heat_ood.benchmarks import suite
from heat_ood.benchmarks._prepare import prepare
from heat_ood.features import KINDS

CACHE = Path.home() / ".cache" / "heat-ood"
SUITES = ("shared-cifar10", "shared-cifar100", "backbone-cifar10", "backbone-cifar100", "shared-imagenet", "text")
NEAR = {
    "shared-cifar10": ("cifar100", "tinyimagenet"),
    "shared-cifar100": ("cifar10", "tinyimagenet"),
    "backbone-cifar10": ("cifar100", "tinyimagenet"),
    "backbone-cifar100": ("cifar10", "tinyimagenet"),
    "shared-imagenet": ("clothing",),
    "text": text.NEAR,
}
APART = ("edges", "cue-conflict")
"""ImageNet's own classes, drawn otherwise: in no average."""
PAIRS, A_KIND, FEW = 3000, 800, 8000


def opened(name: str, seed: int) -> SimpleNamespace:
    """Train, contrast, test and OOD features of a suite; heads of ``frozen`` backbones can be trained anew."""
    if name == "text":
        found = text.split(text.sets(CACHE / "text"), seed)
        return SimpleNamespace(train=found.train, contrast=None, test=found.test, ood=found.ood, frozen=True)
    if name.startswith("backbone"):
        found = backbone.prepared(suite(f"shared-{name.removeprefix('backbone-')}"), CACHE / "backbone")
        return SimpleNamespace(train=found.train, contrast=found.contrast, test=found.test, ood=found.ood, frozen=True)
    data = prepare(suite(name), cache=CACHE, say=print).data
    ood = {key: features for key, features in data.ood.items() if key not in APART}
    return SimpleNamespace(train=data.train, contrast=data.contrast, test=data.test, ood=ood, frozen=False)


def head_of(train: Features, sentences: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A linear head on some samples of these classes."""
    x, y = np.asarray(train.avg, dtype=np.float64), np.asarray(train.labels)
    if sentences:
        search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": text.STRENGTHS}, scoring="neg_log_loss", cv=3)
        model = search.fit(x, y).best_estimator_
        return torch.tensor(model.coef_).float(), torch.tensor(model.intercept_).float()
    rows = np.random.default_rng(0).permutation(len(x))[:FEW]
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
    if data.contrast is None:
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
