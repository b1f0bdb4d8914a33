"""The paper's experiments, each a list of jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..detector import DEFAULT_PRIORS, HEAT
from ..energies import Energy, InputEnergy, Prior, compose, create, methods
from ..energies.registry import create_prior
from ..errors import InputError
from ..features import Features
from ..residual import Residual
from .jobs import Data, Job, Line, Scored, fitted_scores, split

__all__ = ["BETAS", "EXPERIMENTS", "LAMBDAS", "SHARES", "jobs_of", "usable_methods"]

LAMBDAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, math.inf)
BETAS = (-math.inf, -10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
PLAIN, FULL = "plain composition", "HEAT"
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
    return jobs + [job_of(name) for name in (PLAIN, FULL) if name not in there]


def usable_methods(data: Data, chosen: Sequence[str] | None = None) -> list[str]:
    """The methods that the data allows, or the chosen ones, checked."""
    if chosen is not None:
        for name in chosen:
            if name not in (PLAIN, FULL):
                create(name)
        return list(chosen)
    found = []
    for name, reads in methods().items():
        if name == "heat":
            continue
        held = data.train.available | ({"inputs", "maps"} if data.has_images else set())
        if set(reads) <= held:
            found.append(name)
    return [*found, PLAIN, FULL]


# Main


def main(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """Every method, alone, and HEAT beside the plain composition."""
    return [job_of(name) for name in usable_methods(data, chosen)]


def job_of(name: str) -> Job:
    if name == PLAIN:
        return Job(name, (Line(PLAIN, "composition"),), heat(PLAIN, residual=None), settings_of(residual=None))
    if name in (FULL, "heat"):
        return Job(FULL, (Line(FULL, "heat"),), heat(FULL), settings_of())
    method = create(name)
    if isinstance(method, InputEnergy):
        return Job(name, (Line(name, "baseline"),), on_images(name), method.settings, once=True)
    kind = "prior" if name in DEFAULT_PRIORS else "baseline"
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


def heat(title: str, **settings: Any) -> Callable[[Data, int, Path], Scored]:
    """HEAT with some settings, and a checkpoint where an interrupted fit goes on."""

    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT(seed=seed, **settings)
        return fitted_scores(fit_of(detector, data, folder), data, lambda e, f: {title: e.score(f)}, (title,))

    return run


def settings_of(**settings: Any) -> dict[str, Any]:
    """All settings of HEAT but the seed, defaults included: with other defaults a result is another one."""
    return {name: value for name, value in HEAT(**settings).settings.items() if name != "seed"}


def fit_of(detector: HEAT, data: Data, folder: Path) -> Callable[[], Energy]:
    return lambda: detector.fit(data.train, checkpoint=None if detector.residual is None else folder)


# Priors and their corrected forms


def correction(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """Each prior that a residual can correct, and its corrected form."""
    names = [name for name in usable_methods(data, chosen) if name not in (PLAIN, FULL, "heat", "ebm")]
    names = [name for name in names if isinstance(create_prior(name), Prior)]
    return [
        Job(
            f"{name} and its correction",
            (Line(name, "prior"), Line(f"{name}, corrected", "corrected")),
            corrected(name),
            settings_of(priors=(name,)),
        )
        for name in names
    ]


def corrected(name: str) -> Callable[[Data, int, Path], Scored]:
    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT((name,), seed=seed)

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
    """All subsets of HEAT's priors, corrected and uncorrected, from one fit of each."""
    return [subsets("uncorrected", "composition", None), subsets("corrected", "heat", Residual())]


def subsets(title: str, kind: str, settings: Residual | None) -> Job:
    chosen = [c for k in (1, 2, 3) for c in combinations(DEFAULT_PRIORS, k)]
    lines = tuple(Line(f"{' + '.join(c)}, {title}", kind) for c in chosen)

    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT(seed=seed, residual=settings)

        def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
            parts = standardised(detector, features)
            used = [c for c in chosen if set(c) <= set(parts)]
            return {f"{' + '.join(c)}, {title}": torch.stack([parts[n] for n in c]).mean(0) for c in used}

        available = [line.name for line, c in zip(lines, chosen, strict=True) if usable(c, data)]
        return fitted_scores(fit_of(detector, data, folder), data, terms, available)

    return Job(title, lines, run, settings_of(residual=settings))


def usable(priors: Sequence[str], data: Data) -> bool:
    return all(set(create(p).reads) <= data.train.available for p in priors)


def standardised(detector: HEAT, features: Features) -> dict[str, Tensor]:
    """Each prior's energy, corrected where the detector does, standardised as in its composition."""
    found, composed = detector.energies(features), detector.composition
    which = "prior" if detector.residual is None else "hybrid"
    return {
        name: (found[f"{which}/{name}"] - composed.centres[i]) / composed.spreads[i]
        for i, name in enumerate(composed.members)
    }


def beta(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """HEAT composed with each β, from one fit."""
    lines = tuple(Line(f"β = {b:g}", "heat", FULL, b) for b in BETAS)

    def run(data: Data, seed: int, folder: Path) -> Scored:
        detector = HEAT(seed=seed)

        def terms(_: Any, features: Features) -> Mapping[str, Tensor]:
            parts = torch.stack(list(standardised(detector, features).values()), 1)
            return {line.name: compose(parts, b) for line, b in zip(lines, BETAS, strict=True)}

        return fitted_scores(fit_of(detector, data, folder), data, terms, [line.name for line in lines])

    return [Job("beta", lines, run, settings_of())]


# Curves


def lam(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The corrected Gaussian mixture for each λ, and without a residual."""
    jobs = []
    for value in LAMBDAS:
        title = "no residual" if math.isinf(value) else f"λ = {value:g}"
        line = Line(title, "prior" if math.isinf(value) else "corrected", "HEAT-GMM", value)
        settings = {"priors": ("gmm",), "residual": None if math.isinf(value) else Residual(lam=value)}
        jobs.append(Job(title, (line,), heat(title, **settings), settings_of(**settings)))
    return jobs


def low_data(data: Data, chosen: Sequence[str] | None = None) -> list[Job]:
    """The Gaussian mixture, the energy-based model and HEAT on a share of the training samples."""
    jobs = []
    for share in SHARES:
        for series, kind in (("gmm", "prior"), ("ebm", "baseline"), (FULL, "heat")):
            title = f"{series}, {100 * share:g} %"
            inner = heat(title) if series == FULL else alone(series, title)
            settings = settings_of() if series == FULL else create(series).settings
            jobs.append(Job(title, (Line(title, kind, series, share),), on_share(inner, share), settings))
    return jobs


def on_share(run: Callable[[Data, int, Path], Scored], share: float) -> Callable[[Data, int, Path], Scored]:
    """A job on a part of the training samples, drawn by the seed, the same share of each class."""

    def reduced(data: Data, seed: int, folder: Path) -> Scored:
        rows = stratified(data.train, share, seed)
        few = Data(
            data.train.subset(torch.from_numpy(rows)),
            data.calibration,
            data.test,
            data.ood,
            data.extractor,
            data.images,
            data.batch_size,
        )
        return run(few, seed, folder)

    return reduced


def stratified(train: Features, share: float, seed: int) -> np.ndarray[Any, Any]:
    """The numbers of a share of the samples, two a class at the least where there are labels."""
    order = np.random.default_rng([seed, 1]).permutation(len(train))
    if train.labels is None:
        return np.sort(order[: max(2, round(share * len(train)))])
    labels = train.labels.cpu().numpy()[order]
    first = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
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
