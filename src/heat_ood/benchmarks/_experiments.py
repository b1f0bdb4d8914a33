"""The paper's experiments, each a list of jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..energies import InputEnergy, Prior, compose, create, create_prior, methods
from ..errors import InputError
from ..features import Features
from ..heat import HEAT, PAPER_PRIORS
from ..residual import Residual
from ._forms import ALIASES, CORRECTED, FULL, PLAIN, Form, fit_of, forms, paper_priors, settings_of, usual_forms
from ._jobs import Data, Job, Line, Scored, fitted_scores, split

__all__ = ["BETAS", "EXPERIMENTS", "LAMBDAS", "SUBSETS", "job_of", "jobs_of", "usable_methods"]

LAMBDAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, math.inf)
BETAS = (-math.inf, -10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
SUBSETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SEEDED = ("ebm", "residual-flow")
"""Methods whose training draws at random."""


def jobs_of(experiment: str, data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The jobs of an experiment by its name; ``chosen`` are the methods of ``main`` and ``correction``.

    HEAT and the plain composition are in every experiment: a table without them would compare with nothing.
    """
    if experiment not in EXPERIMENTS:
        raise InputError(f"There is no experiment {experiment!r}. There are {', '.join(EXPERIMENTS)}.")
    jobs = EXPERIMENTS[experiment](data, chosen)
    there = {line.name for job in jobs for line in job.lines}
    return jobs + [job_of(name, data) for name in (PLAIN, FULL) if name not in there]


def usable_methods(data: Data, chosen: Sequence[str] | None = None) -> list[str]:
    """The methods that the data allows, or the chosen ones, checked."""
    if chosen is not None:
        names = [ALIASES.get(name, name) for name in chosen]
        for name in names:
            if name not in forms(data):
                create(name)
        return list(dict.fromkeys(names))
    held = data.train.available | ({"inputs", "maps"} if data.has_images else set())
    found = [name for name, reads in methods().items() if name not in ALIASES and set(reads) <= held]
    return [*found, *usual_forms(data)]


# Main


def main(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """Every method, alone, and HEAT in its forms."""
    return [job_of(name, data) for name in usable_methods(data, chosen)]


def job_of(name: str, data: Data) -> Job:
    """The job of a method, or of a form of HEAT."""
    if name in (known := forms(data)):
        return known[name].job(name, data)
    method = create(name)
    if isinstance(method, InputEnergy):
        return Job(name, (Line(name, "baseline"),), on_images(name), method.settings, once=True)
    kind = "prior" if name in PAPER_PRIORS else "baseline"
    return Job(name, (Line(name, kind),), alone(name), method.settings)


def alone(name: str, title: str | None = None) -> Callable[[Data, int, Path], Scored]:
    """A method by itself, fitted to 90 % of the training samples."""
    row = title or name

    def run(data: Data, seed: int, _: Path) -> Scored:
        settings = {"seed": seed} if name in SEEDED else {}
        method = create(name, **settings)
        return fitted_scores(lambda: method.fit(split(data.train, seed)), data, lambda e, f: {row: e.score(f)}, (row,))

    return run


def on_images(name: str) -> Callable[[Data, int, Path], Scored]:
    """A method that runs the model."""

    def run(data: Data, seed: int, _: Path) -> Scored:
        method: Any = create(name)
        method.attach(data.extractor)
        started = time.perf_counter()
        method.fit(data.loader("train"))
        fit_seconds, started = time.perf_counter() - started, time.perf_counter()
        scores = {key: method.score(data.loader(key)).float().numpy() for key in data.scored}
        seconds = (time.perf_counter() - started) / sum(map(len, scores.values()))
        return Scored({name: scores}, fit_seconds, seconds)

    return run


# Priors and their corrected forms


def correction(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """Each prior that a residual can correct, and its corrected form."""
    names = [name for name in usable_methods(data, chosen) if name not in forms(data) and name != "ebm"]
    names = [name for name in names if isinstance(create_prior(name), Prior)]
    return [
        Job(
            f"{name} and its correction",
            (Line(name, "prior"), Line(f"{name}, corrected", "corrected")),
            corrected(name),
            settings_of(data, {"priors": (name,), "residual": Residual()}),
        )
        for name in names
    ]


def corrected(name: str) -> Callable[[Data, int, Path], Scored]:
    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT((name,), residual=Residual(), seed=seed)

        def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
            found = detector.energies(features)
            return {name: found[f"prior/{name}"], f"{name}, corrected": found[f"hybrid/{name}"]}

        return fitted_scores(fit_of(detector, data, folder), data, terms, (name, f"{name}, corrected"))

    return run


def residual(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The Gaussian mixture, the energy-based model without a prior, and the one corrected by the other."""
    (job,) = correction(data, ("gmm",))
    return [Job("ebm", (Line("ebm", "baseline"),), alone("ebm"), create("ebm").settings), job]


# Compositions


def composition(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """All subsets of the paper's priors, corrected and uncorrected, from one fit of each."""
    return [subsets("uncorrected", "composition", None, data), subsets("corrected", "heat", Residual(), data)]


def subsets(title: str, kind: str, settings: Residual | None, data: Data) -> Job:
    priors = paper_priors(data)
    chosen = [c for k in range(1, len(priors) + 1) for c in combinations(priors, k)]
    lines = tuple(Line(f"{' + '.join(c)}, {title}", kind) for c in chosen)

    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT(priors, residual=settings, seed=seed)

        def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
            parts = standardised(detector, features)
            return {
                line.name: torch.stack([parts[n] for n in c]).mean(0) for line, c in zip(lines, chosen, strict=True)
            }

        return fitted_scores(fit_of(detector, data, folder), data, terms, [line.name for line in lines])

    return Job(title, lines, run, settings_of(data, {"priors": priors, "residual": settings}))


def standardised(detector: HEAT, features: Features) -> dict[str, Tensor]:
    """Each prior's energy, corrected where the detector does, standardised as in its composition."""
    found, composed = detector.energies(features), detector.composition
    which = "prior" if detector.residual is None else "hybrid"
    return {
        name: (found[f"{which}/{name}"] - composed.centres[i]) / composed.spreads[i]
        for i, name in enumerate(composed.members)
    }


def beta(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The paper's priors, corrected, composed with each β, from one fit."""
    lines = tuple(Line(f"β = {b:g}", "heat", CORRECTED, b) for b in BETAS)
    settings = forms(data)[CORRECTED].settings

    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT(**settings, seed=seed)

        def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
            parts = torch.stack(list(standardised(detector, features).values()), 1)
            return {line.name: compose(parts, b) for line, b in zip(lines, BETAS, strict=True)}

        return fitted_scores(fit_of(detector, data, folder), data, terms, [line.name for line in lines])

    return [Job("beta", lines, run, settings_of(data, settings))]


# Curves


def lam(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The corrected Gaussian mixture for each λ, and without a residual."""
    jobs = []
    for value in LAMBDAS:
        title = "no residual" if math.isinf(value) else f"λ = {value:g}"
        line = Line(title, "prior" if math.isinf(value) else "corrected", "HEAT-GMM", value)
        form = Form(line.kind, {"priors": ("gmm",), "residual": None if math.isinf(value) else Residual(lam=value)})
        jobs.append(replace(form.job(title, data), lines=(line,)))
    return jobs


def low_data(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The Gaussian mixture, the energy-based model and the paper's HEAT on a share of the training samples."""
    jobs = []
    for share in SUBSETS:
        for series, kind in (("gmm", "prior"), ("ebm", "baseline"), (CORRECTED, "heat")):
            title, whole = f"{series}, {100 * share:g} %", job_of(series, data)
            inner = forms(data)[CORRECTED].run(title) if series == CORRECTED else alone(series, title)
            jobs.append(Job(title, (Line(title, kind, series, share),), on_share(inner, share), whole.settings))
    return jobs


def on_share(run: Callable[[Data, int, Path], Scored], share: float) -> Callable[[Data, int, Path], Scored]:
    """A job on a part of the training samples, drawn by the seed, the same share of each class."""

    def reduced(data: Data, seed: int, folder: Path) -> Scored:
        rows = torch.from_numpy(stratified(data.train, share, seed))
        return run(replace(data, train=data.train.subset(rows)), seed, folder)

    return reduced


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


EXPERIMENTS: dict[str, Callable[[Data, Sequence[str] | None], list[Job]]] = {
    "main": main,
    "correction": correction,
    "residual": residual,
    "composition": composition,
    "lambda": lam,
    "beta": beta,
    "low-data": low_data,
}
"""Those that are tables of scores; ``cost`` and ``qualitative`` are in modules of their own."""
