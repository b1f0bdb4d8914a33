"""Run the jobs of an experiment, keep what each finds, and go on there after an interruption."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..energies import Calibration
from ..evaluation import evaluate_scores
from ..features import Features, digest_of_samples
from ..files import replacing
from ..residual import Residual
from ..results import Curve, Entry, Run
from ._jobs import Data, Job, Scored

__all__ = ["RATES", "digest_of", "entries", "look_at", "result_of", "run_jobs", "slug"]

RATES = (0.01, 0.05, 0.1)
"""The false-alarm rates that are asked for after calibration, to see what comes of them."""
Report = Callable[[int, int, str, float | None], None]


def run_jobs(
    data: Data, jobs: Sequence[Job], seeds: Sequence[int], folder: Path, report: Report | None = None
) -> dict[tuple[str, int], Scored]:
    """What each job finds with each seed, by its name and the seed: computed, or read back from the folder.

    Args:
        data: the sets.
        jobs: what to compute.
        seeds: a run of each job for each; a job that is the same for all runs with the first alone.
        folder: where results are kept; data of other content, or another version, has a place of its own in it.
        report: called with (done, total, what, seconds); no seconds where a result was there already.
    """
    identity = digest_of(data)
    tasks = [(job, seed) for seed in seeds for job in jobs if seed == seeds[0] or not job.once]
    found: dict[tuple[str, int], Scored] = {}
    for done, (job, seed) in enumerate(tasks):
        found[job.name, seed], seconds = result_of(job, data, seed, folder / identity)
        if report is not None:
            report(done + 1, len(tasks), f"{job.name}, seed {seed}", seconds)
    return found


def result_of(job: Job, data: Data, seed: int, folder: Path) -> tuple[Scored, float | None]:
    """What a job finds, and the seconds that it took: computed and kept, or read back, for which there are none."""
    file = folder / f"{slug(job)}-{seed}.npz"
    if (before := kept(job, file)) is not None:
        return before, None
    checkpoint = file.with_suffix(".checkpoint")
    whole = job.run(data, seed, checkpoint)
    write(file, whole)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return job.rows(whole), whole.fit_seconds + whole.score_seconds * sum(map(len, data.scored.values()))


def entries(
    jobs: Sequence[Job],
    found: Mapping[tuple[str, int], Scored],
    counted: Sequence[str] | None = None,
    curves: bool = True,
) -> list[Entry]:
    """The rows of all jobs, in order.

    Args:
        jobs: whose rows.
        found: what each scored, by its name and the seed.
        counted: the OOD sets that averages are of; None is all.
        curves: keep the curves, which are four fifths of what a row takes in a file.
    """
    by_job = {job.name: {s: scored for (name, s), scored in found.items() if name == job.name} for job in jobs}
    return [entry for job in jobs for entry in entries_of(job, by_job[job.name], counted, curves)]


def entries_of(job: Job, found: Mapping[int, Scored], counted: Sequence[str] | None, curves: bool) -> list[Entry]:
    """A row for each line of a job that was found."""
    rows = []
    for line in job.lines:
        known = {seed: scored for seed, scored in found.items() if line.name in scored.scores}
        runs = tuple(run_of(seed, scored, line.name, counted, curves) for seed, scored in known.items())
        if runs:
            settings = {key: shown(value) for key, value in job.settings.items()}
            rows.append(Entry(line.name, line.kind, runs, settings, line.series, line.x))
    return rows


def run_of(seed: int, scored: Scored, name: str, counted: Sequence[str] | None, with_curves: bool) -> Run:
    scores = dict(scored.scores[name])
    held, test = scores.pop("calibration"), scores.pop("test")
    p_values = Calibration(torch.from_numpy(held)).p_value(torch.from_numpy(test), None)
    alarms = {f"{rate:g}": float((p_values <= rate).double().mean()) for rate in RATES if rate * (len(held) + 1) >= 1}
    curves = {key: Curve.of(test, values) for key, values in scores.items()} if with_curves else {}
    evaluation = evaluate_scores(test, scores)
    if counted is not None and set(scores) - set(counted):
        few = {key: values for key, values in scores.items() if key in counted}
        evaluation = replace(evaluation, average=evaluate_scores(test, few).average)
    return Run(seed, evaluation, scored.fit_seconds, scored.score_seconds, alarms, curves)


# What is kept


def digest_of(data: Data) -> str:
    """What the results of a job depend on besides its settings and its seed: the samples, and this library."""
    digest = hashlib.sha256(__version__.encode())
    for name, features in {"train": data.train, **data.scored}.items():
        digest.update(f"{name} {look_at(features)}".encode())
    return digest.hexdigest()[:16]


def look_at(features: Features) -> str:
    """What tells features from others: their model and every number."""
    return hashlib.sha256(f"{features.fingerprint} {digest_of_samples(features)}".encode()).hexdigest()[:16]


def slug(job: Job) -> str:
    """A file name that tells fits apart, by name and settings."""
    name = job.name if job.fit is None else job.fit
    text = json.dumps([name, {key: whole(value) for key, value in job.settings.items()}], sort_keys=True)
    return f"{re.sub(r'[^a-zA-Z0-9]+', '-', name).strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def whole(value: Any) -> Any:
    """A setting with all that it holds; the text of a residual's settings leaves out what is as usual."""
    if isinstance(value, Residual):
        return whole(value.to_dict())
    if isinstance(value, Mapping):
        return {str(key): whole(item) for key, item in value.items()}
    return repr(value)


def kept(job: Job, file: Path) -> Scored | None:
    """The rows of a job from what its fit found before; None where that is not there, or lacks what they need."""
    scored = read(file)
    try:
        return None if scored is None else job.rows(scored)
    except KeyError:
        return None


def write(file: Path, scored: Scored) -> None:
    names = list(scored.scores)
    arrays: dict[str, Any] = {
        f"{i}/{key}": values for i, name in enumerate(names) for key, values in scored.scores[name].items()
    }
    about = {"names": names, "fit": scored.fit_seconds, "score": scored.score_seconds, "notes": list(scored.notes)}
    with replacing(file) as part, open(part, "wb") as out:
        np.savez(out, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)


def read(file: Path) -> Scored | None:
    """What a job found before; None where there is nothing, or nothing that can be read."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            about = json.loads(stored["about"].tobytes())
            scores: dict[str, dict[str, Any]] = {name: {} for name in about["names"]}
            for key in stored.files:
                number, _, name = key.partition("/")
                if name:
                    scores[about["names"][int(number)]][name] = stored[key]
            return Scored(scores, about["fit"], about["score"], tuple(about["notes"]))
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def shown(value: Any) -> Any:
    """A setting as a reader of the results sees it: numbers and text as they are, all else as its short text."""
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
