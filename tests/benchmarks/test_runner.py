"""Running jobs: each once, kept, and the same table after any interruption."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heat_ood import evaluate
from heat_ood.benchmarks._experiments import job_of
from heat_ood.benchmarks._jobs import Data, Job, Scored, split
from heat_ood.benchmarks._runner import digest_of, entries, run_jobs
from heat_ood.energies import create
from heat_ood.features import Features
from heat_ood.results._results import Entry
from method_data import samples

METHODS = ("msp", "gmm", "knn")


@pytest.fixture(scope="module")
def data() -> Data:
    whole = samples(260, seed=1)
    return Data(samples(300), whole[:120], whole[120:], {"near": samples(50, seed=2), "far": samples(40, seed=3)})


def counted(jobs: list[Job], calls: Counter[tuple[str, int]], stop: int | None = None) -> list[Job]:
    """The same jobs, which count their runs and are interrupted at the given one."""

    def wrap(job: Job) -> Job:
        def run(data: Data, seed: int, folder: Path) -> Scored:
            if stop is not None and calls.total() == stop:
                raise KeyboardInterrupt
            calls[job.name, seed] += 1
            return job.run(data, seed, folder)

        return replace(job, run=run)

    return [wrap(job) for job in jobs]


def table(found: list[Entry]) -> list[object]:
    """All but the times."""
    return [(e.name, e.kind, [(r.seed, r.evaluation, r.alarms, r.curves) for r in e.runs]) for e in found]


def test_rows_are_what_evaluate_says(data: Data, tmp_path: Path) -> None:
    jobs = [job_of(name, data) for name in METHODS]
    found = entries(jobs, run_jobs(data, jobs, (0,), tmp_path))
    assert [e.name for e in found] == list(METHODS)
    expected = evaluate(create("msp"), data.test, data.ood)
    assert found[0].runs[0].evaluation == expected
    held, test = (create("msp").score(f) for f in (data.calibration, data.test))
    rate = np.mean([(1 + int((held >= s).sum())) / (len(held) + 1) <= 0.05 for s in test])
    assert found[0].runs[0].alarms["0.05"] == pytest.approx(rate)
    assert set(found[0].runs[0].curves) == {"near", "far"}


def test_sets_that_stand_apart_are_evaluated_and_count_in_no_average(data: Data, tmp_path: Path) -> None:
    jobs = [job_of("gmm", data)]
    found = run_jobs(data, jobs, (0,), tmp_path)
    whole, apart = (entries(jobs, found, counted)[0].runs[0] for counted in (None, ("near",)))
    assert apart.evaluation.rows == whole.evaluation.rows
    assert apart.alarms == whole.alarms
    assert set(apart.curves) == {"near", "far"}
    near = apart.evaluation["near"]
    assert apart.evaluation.average == replace(near, name="average"), "numbers and intervals"
    assert apart.evaluation.average != whole.evaluation.average


def test_a_split_leaves_no_class_without_samples() -> None:
    labels = np.arange(400) % 100
    train = Features(avg=np.random.default_rng(0).normal(size=(400, 3)), labels=labels)
    for seed in range(30):
        some = split(train, seed)
        assert some.labels is not None
        assert set(some.labels.tolist()) == set(range(100)), f"seed {seed}"
        assert 360 <= len(some) <= 365
    one = Features(avg=np.zeros((20, 1)), labels=np.arange(20))
    assert len(split(one, 0)) == 20, "each class has one sample, and keeps it"


def test_a_split_that_empties_no_class_is_as_it_was() -> None:
    train = samples(300)
    rows = np.random.default_rng(5).permutation(300)[30:]
    assert train.labels is not None
    assert np.array_equal(split(train, 5).avg, train.avg[np.sort(rows)])  # type: ignore[index, arg-type]


@pytest.mark.parametrize("stop", range(6))
def test_interrupted_anywhere_it_goes_on_and_ends_the_same(data: Data, tmp_path: Path, stop: int) -> None:
    jobs, calls = [job_of(name, data) for name in METHODS], Counter[tuple[str, int]]()
    whole = entries(jobs, run_jobs(data, jobs, (0, 1), tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        run_jobs(data, counted(jobs, calls, stop), (0, 1), tmp_path / "parts")
    again = entries(jobs, run_jobs(data, counted(jobs, calls), (0, 1), tmp_path / "parts"))
    assert table(again) == table(whole)
    assert set(calls.values()) == {1}, "nothing is computed twice"
    assert calls.total() == 6


def test_a_result_that_cannot_be_read_is_made_again(data: Data, tmp_path: Path) -> None:
    jobs, calls = [job_of("msp", data)], Counter[tuple[str, int]]()
    first = entries(jobs, run_jobs(data, jobs, (0,), tmp_path))
    (file,) = (tmp_path / digest_of(data)).glob("*.npz")
    for damage in (b"", b"nonsense", file.read_bytes()[:-30]):
        file.write_bytes(damage)
        again = entries(jobs, run_jobs(data, counted(jobs, calls), (0,), tmp_path))
        assert table(again) == table(first)
    assert calls.total() == 3


def test_other_data_or_settings_have_results_of_their_own(data: Data, tmp_path: Path) -> None:
    calls = Counter[tuple[str, int]]()
    jobs = [job_of("gmm", data)]
    others = replace(data, test=data.test[:-1])
    assert digest_of(others) != digest_of(data)
    for given in (data, others, data):
        run_jobs(given, counted(jobs, calls), (0,), tmp_path)
    assert calls.total() == 2
    changed = [replace(job, settings={**job.settings, "shrinkage": 0.5}) for job in jobs]
    run_jobs(data, counted(changed, calls), (0,), tmp_path)
    assert calls.total() == 3


def test_what_is_the_same_for_every_seed_runs_once(data: Data, tmp_path: Path) -> None:
    jobs = [replace(job, once=job.name == "msp") for job in (job_of(name, data) for name in METHODS)]
    found = entries(jobs, run_jobs(data, jobs, (0, 1, 2), tmp_path))
    assert {e.name: len(e.runs) for e in found} == {"msp": 1, "gmm": 3, "knn": 3}


def test_it_reports_what_it_does_and_what_was_there(data: Data, tmp_path: Path) -> None:
    jobs, said = [job_of(name, data) for name in METHODS], []
    for _ in range(2):
        run_jobs(data, jobs, (4,), tmp_path, lambda *what: said.append(what))
    assert [what[:3] for what in said[:3]] == [(i + 1, 3, f"{m}, seed 4") for i, m in enumerate(METHODS)]
    assert all(what[3] is not None for what in said[:3])
    assert all(what[3] is None for what in said[3:])


def test_a_result_that_lacks_what_a_row_needs_is_made_again(data: Data, tmp_path: Path) -> None:
    """As one of an earlier version, which kept less of the same fit."""
    job, calls = job_of("msp", data), Counter[tuple[str, int]]()
    run_jobs(data, [job], (0,), tmp_path)

    def run(given: Data, seed: int, folder: Path) -> Scored:
        scored = job.run(given, seed, folder)
        return replace(scored, scores={**scored.scores, "part": scored.scores["msp"]})

    more = replace(job, run=run, terms={"msp": lambda found: found["part"] + 1})
    first = run_jobs(data, [job], (0,), tmp_path)["msp", 0].scores["msp"]["near"]
    for _ in range(2):
        again = run_jobs(data, counted([more], calls), (0,), tmp_path)["msp", 0].scores["msp"]["near"]
        np.testing.assert_array_equal(again, first + 1)
    assert calls.total() == 1
