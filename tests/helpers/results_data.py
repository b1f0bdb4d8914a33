"""Results to draw and to write: small, deterministic, with everything that a report can show."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping
from functools import cache

import numpy as np

from heat_ood.evaluation import Evaluation, Row, evaluate_scores
from heat_ood.metrics import METRICS
from heat_ood.results._results import Cost, Curve, Entry, Missing, Picture, Results, Run

GROUPS = {"near": ("cifar100", "tinyimagenet"), "mid": ("scenes", "clothing"), "far": ("textures", "svhn")}
SETS = tuple(name for names in GROUPS.values() for name in names)
SHIFT = {"cifar100": 1.2, "tinyimagenet": 1.4, "scenes": 1.8, "clothing": 2.2, "textures": 3.0, "svhn": 3.4}
ABOUT = {
    "created": "2026-01-02T03:04:05Z",
    "command": "heat-ood benchmark demo",
    "seeds": [0, 1, 2],
    "versions": {"heat-ood": "0.1.0", "torch": "2.4.0"},
    "hardware": {"cpu": "2 cores"},
    "model": {"fingerprint": "0123abcd", "accuracy": 0.91},
}


def evaluation(numbers: Mapping[str, tuple[float, float]], average: tuple[float, float] | None = None) -> Evaluation:
    """Of (fpr_at_95_id, auroc) in percent by set; the other metrics follow from AUROC."""

    def row(name: str, fpr: float, auroc: float) -> Row:
        rest = dict.fromkeys(METRICS, auroc / 100) | {"fpr_at_95_id": fpr / 100, "fpr_at_95_ood": fpr / 200}
        return Row(name, 100, 50, **rest)

    rows = tuple(row(name, *pair) for name, pair in numbers.items())
    mean = average or tuple(float(np.mean([pair[i] for pair in numbers.values()])) for i in (0, 1))
    return Evaluation(rows, row("average", *mean))


def entry(name: str, kind: str, *pairs: Mapping[str, tuple[float, float]], **more: object) -> Entry:
    """A row with one run for each mapping."""
    return Entry(name, kind, tuple(Run(seed, evaluation(pair)) for seed, pair in enumerate(pairs)), **more)


def small() -> Results:
    """Two sets, three rows: HEAT wins on b and in the average, loses on a."""
    return Results(
        suite="small",
        title="Small",
        id="digits",
        backbone="a network",
        groups={"near": ("a",), "far": ("b",)},
        experiment="main",
        entries=(
            entry("msp", "baseline", {"a": (60.0, 80.0), "b": (50.0, 85.0)}, {"a": (60.0, 80.0), "b": (50.0, 85.0)}),
            entry("gmm", "prior", {"a": (40.0, 90.0), "b": (45.0, 86.0)}, {"a": (42.0, 90.0), "b": (45.0, 86.0)}),
            entry("HEAT", "heat", {"a": (44.0, 89.0), "b": (30.0, 92.0)}, {"a": (46.0, 89.0), "b": (30.0, 92.0)}),
        ),
    )


@cache
def measured(name: str, kind: str, quality: float, seeds: tuple[int, ...] = (0, 1, 2), **more: object) -> Entry:
    """A row with real metrics and curves of normal scores, moved apart by the quality."""
    runs = []
    for seed in seeds:
        rng = np.random.default_rng([seed, *name.encode()])
        id_scores = rng.normal(size=300)
        ood = {s: rng.normal(quality * SHIFT[s], 1.2, 200) for s in SETS}
        curves = {s: Curve.of(id_scores, scores) for s, scores in ood.items()}
        alarms = {f"{rate:g}": float(np.clip(rate * (0.9 + 0.1 * seed), 0, 1)) for rate in (0.01, 0.05, 0.1)}
        found = evaluate_scores(id_scores, ood, bootstrap=20)
        runs.append(Run(seed, found, 1.5 + quality, 1e-5 * (1 + quality), alarms, curves))
    return Entry(name, kind, tuple(runs), **more)


def rich(**changes: object) -> Results:
    """Everything of the main experiment: six sets, three seeds, curves, alarms, a row of the paper."""
    paper = Run(-1, evaluation({name: (40.0 - 5 * i, 88.0 + i) for i, name in enumerate(SETS)}))
    settings = {
        "suite": "demo",
        "title": "Demo suite",
        "id": "digits",
        "backbone": "small network",
        "groups": GROUPS,
        "experiment": "main",
        "entries": (
            measured("msp", "baseline", 0.6),
            measured("knn", "baseline", 0.9),
            measured("gmm", "prior", 0.8),
            measured("plain composition", "composition", 1.0),
            measured("HEAT", "heat", 1.1),
            Entry("HEAT", "paper", (paper,)),
        ),
        "about": ABOUT,
    }
    return Results(**(settings | changes))


def without(results_set: str = "svhn") -> Results:
    """The same with a set that was not found."""
    names = tuple(s for s in SETS if s != results_set)

    def cut(e: Entry) -> Entry:
        runs = []
        for run in e.runs:
            rows = tuple(row for row in run.evaluation if row.name in names)
            mean = {m: float(np.mean([getattr(row, m) for row in rows])) for m in METRICS}
            average = Row("average", 300, 1000, **mean)
            runs.append(Run(run.seed, Evaluation(rows, average), curves={}))
        return Entry(e.name, e.kind, tuple(runs))

    full = rich()
    entries = tuple(cut(e) if e.kind != "paper" else e for e in full.entries)
    missing = (Missing(results_set, "the web page of the set", f"data/{results_set}/"),)
    return rich(entries=entries, missing=missing)


def lines(experiment: str) -> Results:
    """A λ, β or low-data experiment."""
    if experiment == "lambda":
        points = [("HEAT-GMM", x, 0.8 + 0.2 * math.exp(-abs(math.log10(x / 10)))) for x in (0.1, 1.0, 10.0, 100.0)]
        points.append(("HEAT-GMM", math.inf, 0.8))
    elif experiment == "beta":
        points = [("HEAT", x, 1.1 - 0.05 * abs(math.tanh(x))) for x in (-math.inf, -5.0, -1.0, 0.0, 1.0, 5.0, math.inf)]
    else:
        points = [
            (s, x, q - d * (1 - x))
            for s, q, d in (("gmm", 0.9, 0.05), ("ebm", 0.9, 0.6), ("HEAT", 1.1, 0.05))
            for x in (0.01, 0.1, 1.0)
        ]
    entries = tuple(measured(f"{s} at {x:g}", "heat", q, (0, 1), series=s, x=x) for s, x, q in points)
    return rich(experiment=experiment, entries=entries)


def png(colour: tuple[int, int, int]) -> str:
    """An image of 8 × 8 pixels as a data address."""
    raw = b"".join(b"\0" + bytes(colour) * 8 for _ in range(8))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    body = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw))
    data = b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def gallery() -> Results:
    """The qualitative experiment."""
    pictures = tuple(
        Picture(
            name,
            png((40 * i, 120, 255 - 40 * i)),
            ("HEAT",) if i % 2 else ("HEAT", "gmm"),
            ("energy", "gmm") if i % 2 else ("energy",),
            {"HEAT": 1.5 + i, "gmm": 0.2},
        )
        for i, name in enumerate(SETS)
    )
    return rich(experiment="qualitative", pictures=pictures)


def cost() -> Results:
    """The cost experiment."""
    parts = {"backbone": 20.0, "gmm": 1.0, "energy": 0.2, "HEAT": 25.0, "ensemble of 5": 100.0}
    costs = tuple(Cost(name, value, value / parts["HEAT"]) for name, value in parts.items())
    return rich(experiment="cost", entries=(), costs=costs)
