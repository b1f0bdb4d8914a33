"""A suite, an experiment, seeds: one function from data on disk to results."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..energies import columns_of, create_prior
from ..errors import InputError
from ..residual import Residual
from ..results import Results
from ._cost import costs_of
from ._experiments import EXPERIMENTS, job_of, jobs_of, usable_methods
from ._forms import FULL, PLAIN, Form
from ._gallery import RIVALS, pictures_of
from ._jobs import Data, Job
from ._paper import paper_costs, paper_entries
from ._prepare import Prepared, prepare, prepare_stored
from ._runner import Report, entries, run_jobs
from ._suites import Suite

__all__ = ["ALL_EXPERIMENTS", "CACHE", "machine", "run_benchmark"]

ALL_EXPERIMENTS = (*EXPERIMENTS, "cost", "qualitative")
CACHE = "~/.cache/heat-ood"
VERSIONS = ("torch", "numpy", "scikit-learn", "scipy")


def run_benchmark(
    suite: Suite,
    experiment: str = "main",
    *,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    root: str | PathLike[str] | None = None,
    features: str | PathLike[str] | None = None,
    cache: str | PathLike[str] = CACHE,
    variant: str | None = None,
    weights: str | PathLike[str] | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    workers: int = 0,
    limit: int | None = None,
    say: Callable[[str], None] = lambda text: None,
    report: Report | None = None,
) -> Results:
    """Run an experiment of a suite; what was computed before is read back from the cache.

    Args:
        suite: from :func:`suite`.
        experiment: one of ``ALL_EXPERIMENTS``.
        methods: the methods of ``main`` and ``correction``; None runs all that the data allows.
        seeds: one run for each; a seed varies the split, the residuals and all sampling.
        root: the data root; None is the suite's own.
        features: a folder of stored features instead of images.
        cache: where features and results are kept.
        variant: a variant of the suite with another backbone.
        weights: a checkpoint of one's own for the backbone.
        device: where the backbone runs.
        batch_size: images in one pass of it; None is as the suite says.
        workers: processes that decode images.
        limit: at most so many images of each set.
        say: told what is done.
        report: told of each job.
    """
    if experiment not in ALL_EXPERIMENTS:
        raise InputError(f"There is no experiment {experiment!r}. There are {', '.join(ALL_EXPERIMENTS)}.")
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds are different numbers, at least one, not {list(seeds)}.")
    if experiment == "qualitative" and not suite.pictures:
        raise InputError(
            f"The images of {suite.name} are not to be passed on (pictures = false), and qualitative would write them "
            "into its report. Run another experiment."
        )
    backbone = backbone_of(suite, variant)
    if features is not None:
        ready = prepare_stored(suite, features)
    else:
        ready = prepare(
            suite,
            root,
            cache,
            backbone=backbone,
            weights=weights,
            device=device,
            batch_size=batch_size,
            workers=workers,
            limit=limit,
            say=say,
        )
    results = Results(
        suite=suite.name,
        title=suite.title,
        id=suite.id.title,
        backbone=backbone.title,
        groups=dict(suite.groups),
        experiment=experiment,
        entries=(),
        missing=ready.missing,
        about=about(suite, ready, seeds) | contrast_of(suite, ready.data),
        apart=suite.apart,
    )
    if experiment == "cost":
        printed = (replace(cost, name=f"{cost.name} (paper)") for cost in paper_costs())
        return replace(results, costs=(*costs_of(ready.data), *printed))
    folder = Path(cache).expanduser() / suite.name / "results"
    if experiment == "qualitative":
        return qualitative(suite, results, ready.data, seeds[0], folder, report)
    jobs = experiment_jobs(suite, experiment, ready.data, methods)
    found = run_jobs(ready.data, jobs, seeds, folder, report)
    rows = entries(jobs, found, suite.counted, curves=experiment == "main")
    like = suite.paper or suite.name
    paper = paper_entries(like if variant is None else f"{like}-{variant}", experiment, results.sets)
    return replace(results, entries=(*rows, *paper))


def backbone_of(suite: Suite, variant: str | None) -> Any:
    if variant is None:
        return suite.backbone
    known = {v.name: v for v in suite.variants if v.backbone is not None}
    if variant not in known:
        there = f"It has {', '.join(known)}." if known else "It has none."
        raise InputError(f"{suite.name} has no variant {variant!r} with a backbone of its own. {there}")
    return known[variant].backbone


def experiment_jobs(suite: Suite, experiment: str, data: Data, methods: Sequence[str] | None) -> list[Job]:
    """The jobs of an experiment, without the methods that the suite leaves out, and with its other forms of HEAT."""
    if experiment not in ("main", "correction"):
        return jobs_of(experiment, data, methods)
    others = variant_forms(suite, data) if experiment == "main" else {}
    chosen = [name for name in usable_methods(data) if name not in suite.left_out] if methods is None else methods
    jobs = jobs_of(experiment, data, [name for name in chosen if name not in others])
    return jobs + [form.job(name, data) for name, form in others.items() if methods is None or name in methods]


def variant_forms(suite: Suite, data: Data) -> dict[str, Form]:
    """Of each variant with priors of its own that the features have what they read: without residuals, and with."""
    found = {}
    for v in suite.variants:
        if v.priors is None or v.backbone is not None:
            continue
        needs = {column for p in map(create_prior, v.priors) for column in (*columns_of(p), *p.learns)}
        if needs <= data.train.available:
            found[f"{v.title}, plain"] = Form("composition", {"priors": v.priors, "residual": None})
            found[f"{v.title}, corrected"] = Form("heat", {"priors": v.priors, "residual": Residual()})
    return found


def qualitative(suite: Suite, results: Results, data: Data, seed: int, folder: Path, report: Report | None) -> Results:
    """Pictures on which HEAT and its priors disagree, and their rows, the plain composition's among them."""
    if not data.images:
        raise InputError("The pictures are taken from images, and there are stored features alone.")
    rivals = tuple(name for name in RIVALS if name in usable_methods(data))
    jobs = [job_of(name, data) for name in (*rivals, PLAIN, FULL)]
    found = run_jobs(data, jobs, (seed,), folder, report)
    scores = {name: found[name, seed].scores[name] for name in (*rivals, FULL)}
    rows = tuple(entries(jobs, found, suite.counted, curves=False))
    return replace(results, entries=rows, pictures=pictures_of(data, scores, seed, rivals))


def about(suite: Suite, ready: Prepared, seeds: Sequence[int]) -> dict[str, Any]:
    """What a result must not stand without."""
    contrast = ready.data.contrast
    sets = {"train": ready.data.train, **({} if contrast is None else {"contrast": contrast}), **ready.data.scored}
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        "versions": {"heat-ood": __version__, "python": platform.python_version(), **installed()},
        "hardware": {"machine": machine(), "threads": torch.get_num_threads(), "cores": os.cpu_count()},
        "seeds": list(seeds),
        "model": dict(ready.model),
        "samples": {name: len(features) for name, features in sets.items()},
        "notes": [*suite.notes, *(f"{name} is left out: {why}" for name, why in suite.left_out.items())],
    }


def contrast_of(suite: Suite, data: Data) -> dict[str, Any]:
    """What HEAT is told from the data by, where it is made here."""
    made = suite.contrast if data.contrast is not None and data.extractor is not None else None
    return {} if made is None else {"contrast": {"kinds": list(made.kinds), "seed": made.seed}}


def command() -> str:
    """What was typed; ``python -m heat_ood.cli`` is the same as ``heat-ood``."""
    program = Path(sys.argv[0])
    name = "heat-ood" if program.name == "__main__.py" else program.name
    return shlex.join([name, *sys.argv[1:]])


def installed() -> dict[str, str]:
    return {name: version(name) for name in VERSIONS}


def machine() -> str:
    """The processor's name, without which no time means anything."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())
