"""The paper's experiments, each a list of jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from operator import itemgetter
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
from ._forms import ALIASES, CORRECTED, FULL, PLAIN, THREE, Form, fit_of, forms, paper_priors, settings_of, usual_forms
from ._jobs import Data, Job, Line, Scored, Scores, fitted_scores, split, stratified

__all__ = ["BETAS", "EXPERIMENTS", "LAMBDAS", "SUBSETS", "job_of", "jobs_of", "usable_methods"]

LAMBDAS = (0.1, 0.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, math.inf)
"""The paper says that a residual helps from 2 to 50; 2 is also the default, whose fit `correction` has. None at ∞."""
BETAS = (-math.inf, -10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
SUBSETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ALONE = "no residual"
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


def alone(name: str) -> Callable[[Data, int, Path], Scored]:
    """A method by itself, fitted to 90 % of the training samples."""

    def run(data: Data, seed: int, _: Path) -> Scored:
        settings = {"seed": seed} if name in SEEDED else {}
        method = create(name, **settings)
        rows = (name,)
        return fitted_scores(lambda: method.fit(split(data.train, seed)), data, lambda e, f: {name: e.score(f)}, rows)

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
    return [corrected(name, data) for name in names if isinstance(create_prior(name), Prior)]


def corrected(name: str, data: Data, settings: Residual | None = None) -> Job:
    """A prior and its corrected form, by one residual."""
    made, rows = settings or Residual(), (name, f"{name}, corrected")

    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT((name,), residual=made, seed=seed)

        def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
            found = detector.energies(features)
            return {rows[0]: found[f"prior/{name}"], rows[1]: found[f"hybrid/{name}"]}

        return fitted_scores(fit_of(detector, data, folder), data, terms, rows)

    lines = (Line(rows[0], "prior"), Line(rows[1], "corrected"))
    return Job(f"{name} and its correction", lines, run, settings_of(data, {"priors": (name,), "residual": made}))


def residual(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The Gaussian mixture, the energy-based model without a prior, and the one corrected by the other."""
    return [job_of("ebm", data), corrected("gmm", data)]


def renamed(job: Job, line: Line, row: str) -> Job:
    """One row of a job as the only one, under another name; the fit is the same."""
    return replace(job, name=line.name, lines=(line,), fit=job.name, terms={line.name: itemgetter(row)})


# Compositions


def composition(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """All subsets of the paper's priors, corrected and uncorrected, from one fit of each."""
    return [subsets("uncorrected", THREE, data), subsets("corrected", CORRECTED, data)]


def subsets(title: str, whole: str, data: Data) -> Job:
    priors, form = paper_priors(data), forms(data)[whole]
    chosen = [c for k in range(1, len(priors) + 1) for c in combinations(priors, k)]
    lines = tuple(Line(f"{' + '.join(c)}, {title}", form.kind) for c in chosen)
    terms = {line.name: partial(composed, names=c) for line, c in zip(lines, chosen, strict=True)}
    return replace(form.job(whole, data), name=title, lines=lines, fit=whole, terms=terms)


def composed(parts: Scores, names: Sequence[str], beta: float = 0.0) -> np.ndarray[Any, Any]:
    """Standardised energies as one."""
    return compose(torch.from_numpy(np.stack([parts[name] for name in names], 1)), beta).numpy()


def beta(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The paper's priors, corrected, composed with each β, from one fit."""
    lines = tuple(Line(f"β = {signed(b)}", "heat", CORRECTED, b) for b in BETAS)
    three = paper_priors(data)
    terms = {line.name: partial(composed, names=three, beta=b) for line, b in zip(lines, BETAS, strict=True)}
    whole = job_of(CORRECTED, data)
    return [replace(whole, name="beta", lines=lines, fit=whole.name, terms=terms)]


def signed(value: float) -> str:
    """As "−0.5" and "∞".

    Example:
        >>> signed(-math.inf), signed(-0.5), signed(2.0)
        ('−∞', '−0.5', '2')
    """
    return f"{value:g}".replace("inf", "∞").replace("-", "−")


# Curves


def lam(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The corrected Gaussian mixture for each λ, and without a residual."""
    jobs = []
    for value in LAMBDAS[:-1]:
        line = Line(f"λ = {value:g}", "corrected", "HEAT-GMM", value)
        jobs.append(renamed(corrected("gmm", data, Residual(lam=value)), line, "gmm, corrected"))
    form = Form("prior", {"priors": ("gmm",), "residual": None})
    return [*jobs, replace(form.job(ALONE, data), lines=(Line(ALONE, "prior", "HEAT-GMM", LAMBDAS[-1]),))]


def low_data(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The Gaussian mixture, the energy-based model and the paper's HEAT on a share of the training samples."""
    jobs = []
    for share in SUBSETS:
        for series, kind in (("gmm", "prior"), ("ebm", "baseline"), (CORRECTED, "heat")):
            title, whole = f"{series}, {100 * share:g} %", job_of(series, data)
            job = renamed(whole, Line(title, kind, series, share), series)
            jobs.append(job if share == 1 else replace(job, fit=None, run=on_share(whole.run, share)))
    return jobs


def on_share(run: Callable[[Data, int, Path], Scored], share: float) -> Callable[[Data, int, Path], Scored]:
    """A job on a part of the training samples, drawn by the seed, the same share of each class."""

    def reduced(data: Data, seed: int, folder: Path) -> Scored:
        rows = torch.from_numpy(stratified(data.train, share, seed))
        return run(replace(data, train=data.train.subset(rows)), seed, folder)

    return reduced


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
