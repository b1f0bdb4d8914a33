"""The paper's experiments on small features: every row, by its definition."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from heat_ood import HEAT, Features, InputError, Residual, create
from heat_ood.benchmarks._experiments import BETAS, EXPERIMENTS, LAMBDAS, SUBSETS, jobs_of, signed, usable_methods
from heat_ood.benchmarks._forms import CORRECTED, FULL, PLAIN, THREE, forms, usual_forms
from heat_ood.benchmarks._jobs import Data, Job, Scored, split, stratified
from heat_ood.benchmarks._runner import entries, run_jobs, slug
from heat_ood.heat._choice import PAPER_PRIORS
from method_data import BEYOND, CASES, samples
from quick import FAST

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning"),  # a short training may be in vain
]


@pytest.fixture(scope="module")
def data() -> Data:
    whole = samples(140, seed=1)
    return Data(samples(300), whole[:60], whole[60:], {"near": samples(50, seed=2), "far": samples(40, seed=3)})


def run(job: Job, data: Data, tmp_path: Path, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    scored = job.rows(job.run(data, seed, tmp_path / "checkpoint"))
    return {name: dict(found) for name, found in scored.scores.items()}


def test_names_are_unlike_and_lines_too(data: Data) -> None:
    for name in EXPERIMENTS:
        jobs = jobs_of(name, data)
        assert len({job.name for job in jobs}) == len(jobs)
        lines = [line.name for job in jobs for line in job.lines]
        assert len(set(lines)) == len(lines), name


def test_heat_and_the_plain_composition_are_in_every_table(data: Data) -> None:
    for name in EXPERIMENTS:
        for chosen in (None, ("gmm",)):
            lines = [line.name for job in jobs_of(name, data, chosen) for line in job.lines]
            assert (lines.count(PLAIN), lines.count(FULL)) == (1, 1), name


def own_jobs(experiment: str, data: Data, chosen: tuple[str, ...] | None = None) -> list[Job]:
    """What an experiment has besides HEAT and the plain composition."""
    return [job for job in jobs_of(experiment, data, chosen) if job.name not in (PLAIN, FULL)]


def test_an_unknown_experiment_is_named(data: Data) -> None:
    with pytest.raises(InputError, match=r"no experiment 'nothing'. There are main, correction"):
        jobs_of("nothing", data)


def test_main_has_all_methods_that_features_allow_and_heat_beside_the_plain_composition(data: Data) -> None:
    names = usable_methods(data)
    assert set(names) == {*CASES, *usual_forms(data)} - {*BEYOND, "heat"}
    assert len(set(names)) == len(names)
    bare = Data(Features(avg=data.train.avg), data.calibration, data.test, data.ood)
    assert set(usable_methods(bare)) < set(names)
    assert "energy" not in usable_methods(bare)
    assert "knn" in usable_methods(bare)


def test_chosen_methods_are_checked(data: Data) -> None:
    assert [job.name for job in jobs_of("main", data, ("gmm", "heat"))] == ["gmm", FULL, PLAIN]
    chosen = ("heat-paper", "HEAT.paper()", "HEAT", "heat", "HEAT, no contrast")
    assert usable_methods(data, chosen) == ["HEAT.paper()", "HEAT", "HEAT, no contrast"]
    with pytest.raises(InputError, match="no method 'nonsense'"):
        jobs_of("main", data, ("nonsense",))


def test_a_method_is_fitted_to_nine_tenths_and_scores_all_sets(data: Data, tmp_path: Path) -> None:
    (job,) = own_jobs("main", data, ("gmm",))
    found = run(job, data, tmp_path, seed=3)["gmm"]
    expected = create("gmm").fit(split(data.train, 3))
    assert set(found) == {"calibration", "test", "near", "far"}
    for key, features in data.scored.items():
        np.testing.assert_allclose(found[key], expected.score(features), rtol=1e-6)
    assert len(split(data.train, 3)) == 270


def test_correction_shows_each_prior_and_its_corrected_form(data: Data, tmp_path: Path) -> None:
    jobs = own_jobs("correction", data, ("energy", "msp", "dice"))
    assert [[line.name for line in job.lines] for job in jobs] == [
        ["energy", "energy, corrected"],
        ["dice", "dice, corrected"],
    ]
    found = run(jobs[0], data, tmp_path)
    terms = HEAT(("energy",), residual=FAST).fit(data.train).energies(data.test)
    np.testing.assert_allclose(found["energy"]["test"], terms["prior/energy"], rtol=1e-5)
    np.testing.assert_allclose(found["energy, corrected"]["test"], terms["hybrid/energy"], rtol=1e-5)


def test_the_preset_on_a_part_is_run_if_asked_for(data: Data) -> None:
    assert usable_methods(data, ("heat-paper-part",)) == ["HEAT.paper(), 10,000 samples"]
    assert usable_methods(data, ("paper-gmm-part",)) == ["gmm, corrected as in the paper, 10,000 samples"]
    assert not any("10,000" in name for name in usual_forms(data))


def test_residual_compares_three(data: Data) -> None:
    lines = [line.name for job in own_jobs("residual", data) for line in job.lines]
    assert lines == ["ebm", "gmm", "gmm, corrected"]


@pytest.mark.parametrize("number", [0, 1])
def test_composition_has_all_subsets(data: Data, tmp_path: Path, number: int) -> None:
    job = own_jobs("composition", data)[number]
    title = ("uncorrected", "corrected")[number]
    found = run(job, data, tmp_path)
    assert len(found) == 7
    whole = HEAT(PAPER_PRIORS, residual=(None, FAST)[number])
    expected = whole.fit(data.train).score(data.test)
    np.testing.assert_allclose(found[f"gmm + gmm-std + energy, {title}"]["test"], expected, rtol=1e-4, atol=1e-5)
    parts = [found[f"{name}, {title}"]["test"] for name in ("gmm", "energy")]
    np.testing.assert_allclose(found[f"gmm + energy, {title}"]["test"], np.mean(parts, 0), rtol=1e-4, atol=1e-5)


def test_beta_is_one_fit_composed_in_many_ways(data: Data, tmp_path: Path) -> None:
    (job,) = own_jobs("beta", data)
    found = run(job, data, tmp_path)
    assert [line.x for line in job.lines] == list(BETAS)
    assert {-math.inf, -1.0, 0.0, math.inf} <= set(BETAS)
    for b in (-math.inf, -1.0, 0.0, math.inf):
        expected = HEAT(PAPER_PRIORS, residual=FAST, beta=b).fit(data.train).score(data.test)
        np.testing.assert_allclose(found[f"β = {signed(b)}"]["test"], expected, rtol=1e-4, atol=1e-5)


def test_lambda_runs_from_a_tenth_to_a_hundred_and_without_a_residual(data: Data, tmp_path: Path) -> None:
    jobs = own_jobs("lambda", data)
    assert [job.lines[0].x for job in jobs] == list(LAMBDAS)
    assert (LAMBDAS[0], LAMBDAS[-2], LAMBDAS[-1]) == (0.1, 100.0, math.inf)
    assert {2.0, 10.0, 50.0} < set(LAMBDAS), "where the paper says that a residual helps, and its own"
    plain = run(jobs[-1], data, tmp_path)["no residual"]
    expected = HEAT(("gmm",), residual=None).fit(data.train).score(data.test)
    np.testing.assert_allclose(plain["test"], expected, rtol=1e-5)


def test_a_fit_that_several_experiments_need_is_run_once(data: Data, tmp_path: Path) -> None:
    calls = Counter[tuple[str, int]]()

    def counted(job: Job) -> Job:
        def run(given: Data, seed: int, folder: Path) -> Scored:
            calls[job.fit or job.name, seed] += 1
            return job.run(given, seed, folder)

        return replace(job, run=run)

    found, trained = {}, set()
    for name in ("main", "correction", "residual", "composition", "lambda", "beta", "low-data"):
        chosen = ("gmm", "ebm", CORRECTED, THREE) if name == "main" else ("gmm",)
        slow, jobs = [], []
        for job in own_jobs(name, data, chosen):
            (slow if "ebm" in (job.fit or job.name) else jobs).append(counted(job))
        trained |= {slug(job) for job in slow if job.lines[0].x in (None, 1.0)}
        kept = [job for job in jobs if job.lines[0].x in (None, 1.0, Residual().lam, 0.0) or name == "beta"]
        found[name] = {e.name: e.runs[0].evaluation for e in entries(kept, run_jobs(data, kept, (0,), tmp_path))}
    assert set(calls.values()) == {1}
    assert {name for name, _ in calls} == {"gmm", CORRECTED, THREE, "gmm and its correction"}
    assert len(trained) == 1, "the energy-based model of main, residual and low-data, which is kept under one name"

    assert found["residual"]["gmm, corrected"] == found["correction"]["gmm, corrected"] == found["lambda"]["λ = 2"]
    assert found["main"][CORRECTED] == found["low-data"][f"{CORRECTED}, 100 %"]
    three = found["composition"]["gmm + gmm-std + energy, corrected"].average.auroc
    assert three == pytest.approx(found["main"][CORRECTED].average.auroc, abs=1e-6)
    assert three == pytest.approx(found["beta"]["β = 0"].average.auroc, abs=1e-6)


def test_low_data_takes_a_share_of_each_class(data: Data, tmp_path: Path) -> None:
    jobs = own_jobs("low-data", data)
    assert len(jobs) == 3 * len(SUBSETS)
    rows = stratified(data.train, 0.1, seed=2)
    assert data.train.labels is not None
    assert torch.bincount(data.train.labels[rows]).tolist() == [8, 8, 8, 8]
    assert torch.bincount(data.train.labels[stratified(data.train, 0.01, seed=2)]).tolist() == [2] * 4
    assert len(set(rows)) == len(rows)
    assert not np.array_equal(rows, stratified(data.train, 0.1, seed=3))
    found = run(jobs[0], data, tmp_path)
    assert list(found) == ["gmm, 1 %"]
    assert jobs[-1].lines[0].name == f"{CORRECTED}, 100 %"
    last = run(jobs[-1], data, tmp_path)[f"{CORRECTED}, 100 %"]
    expected = HEAT(PAPER_PRIORS, residual=FAST).fit(data.train).score(data.test)
    np.testing.assert_allclose(last["test"], expected, rtol=1e-4, atol=1e-5)


def test_the_papers_experiments_are_about_its_priors_and_know_no_contrast(data: Data) -> None:
    contrasted = replace(data, contrast=samples(30, seed=4))
    for name in ("composition", "beta", "lambda", "low-data", "correction", "residual"):
        for job in own_jobs(name, contrasted, ("gmm", "energy") if name == "correction" else None):
            assert job.settings.get("contrast") is None
            assert set(job.settings.get("priors") or ()) <= set(PAPER_PRIORS)


def test_what_features_lack_the_papers_experiments_do_without(data: Data, tmp_path: Path) -> None:
    bare = Data(*(part.only(("avg", "logits")) for part in (data.train, data.calibration, data.test)), data.ood)
    job, _ = own_jobs("composition", bare)
    assert list(run(job, bare, tmp_path)) == [f"{c}, uncorrected" for c in ("gmm", "energy", "gmm + energy")]
    assert forms(bare)[CORRECTED].settings["priors"] == ("gmm", "energy")
