"""From a suite to results, on images made by the test and on the digits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import quick
from heat_ood import Extractor, Features, InputError, create, evaluate
from heat_ood.benchmarks._benchmark import ALL_EXPERIMENTS, command, run_benchmark
from heat_ood.benchmarks._prepare import prepare, prepare_stored, preset_of
from heat_ood.benchmarks._reading import suite, suites
from heat_ood.benchmarks._runner import look_at
from heat_ood.benchmarks._suites import Contrast, Suite
from heat_ood.features._distortions import CONTRAST
from heat_ood.heat._presets import PRESETS
from heat_ood.results._results import Results

SUITE = """
title = "small images"

[id]
name = "bright"
calibration = 20
train = { reader = "npz", path = "train.npz" }
test = { reader = "npz", path = "test.npz" }

[backbone]
title = "a small network"
model = "tiny_model_of_benchmark:small"
layers = ["1"]

[backbone.preprocessing]
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]

[[ood]]
name = "dark"
group = "near"
reader = "npz"
path = "dark.npz"

[[ood]]
name = "photos"
group = "far"
reader = "folder"
path = "photos"
get = "https://example.org/photos"

[[variants]]
name = "dice"
title = "HEAT with dice"
priors = ["gmm", "dice"]
"""
MODEL = """
import torch
from torch import nn

def small():
    first, second = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
"""
FAST = ("msp", "gmm", "energy")

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning"),  # a short training may be in vai,
    pytest.mark.filterwarnings("ignore:.*has random weights:UserWarning"),
]


def images(n: int, seed: int, low: int = 0, high: int = 256) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, (n, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("suite")
    (root / "small.toml").write_text(SUITE)
    (root / "tiny_model_of_benchmark.py").write_text(MODEL)
    for name, n, seed in (("train", 120, 0), ("test", 60, 1)):
        np.savez(root / f"{name}.npz", images=images(n, seed), labels=np.arange(n) % 3)
    np.savez(root / "dark.npz", images=images(30, 2, high=100))
    (root / "photos").mkdir()
    for i, pixels in enumerate(images(25, 3)):
        Image.fromarray(pixels).save(root / "photos" / f"{i:02}.png")
    return root


@pytest.fixture
def small(place: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.syspath_prepend(str(place))
    return suite(place / "small.toml")


def test_rows_are_those_of_the_library_by_hand(small: Suite, place: Path, tmp_path: Path) -> None:
    """Extraction, split, fit and evaluation, once more without the benchmark."""
    found = run_benchmark(small, methods=FAST, seeds=(0,), cache=tmp_path)
    extractor = Extractor(small.backbone.load(place))

    def features(name: str) -> Features:
        with np.load(place / f"{name}.npz") as file:
            pixels, labels = file["images"], file.get("labels")
        x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
        return extractor([x, torch.from_numpy(labels)] if labels is not None else x)

    test = features("test")[np.random.default_rng(0).permutation(60)[20:]]
    expected = evaluate(create("msp"), test, features("dark"), intervals=False)
    entry = next(e for e in found.entries if e.name == "msp")
    assert entry.runs[0].evaluation["dark"].auroc == pytest.approx(expected["ood"].auroc, abs=1e-6)
    assert found.groups == {"near": ("dark",), "far": ("photos",)}
    sets = {"train": 120, "contrast": 120, "calibration": 20, "test": 40, "dark": 30, "photos": 25}
    assert found.about["samples"] == sets
    assert found.about["contrast"] == {"kinds": list(CONTRAST), "seed": 0}
    assert 0 <= found.about["model"]["accuracy"] <= 1


def test_what_is_missing_is_listed_and_the_rest_runs(small: Suite, place: Path, tmp_path: Path) -> None:
    (place / "photos").rename(place / "elsewhere")
    try:
        found = run_benchmark(small, methods=("msp",), seeds=(0,), cache=tmp_path)
    finally:
        (place / "elsewhere").rename(place / "photos")
    assert [(m.name, m.get, m.put) for m in found.missing] == [
        ("photos", "https://example.org/photos", str(place / "photos"))
    ]
    assert found.entries[0].runs[0].evaluation.names == ("dark",)


def test_without_the_id_set_everything_missing_is_named(small: Suite, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"its ID set is not there.*train\.npz.*test\.npz.*photos"):
        run_benchmark(small, root=tmp_path / "nowhere", cache=tmp_path)


def test_features_are_made_once(small: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(small, cache=tmp_path)
    monkeypatch.setattr(Extractor, "forward", lambda *_: pytest.fail("the backbone runs again"))
    again = prepare(small, cache=tmp_path)
    assert torch.equal(first.data.test.avg, again.data.test.avg)
    assert torch.equal(first.data.contrast.avg, again.data.contrast.avg)


def test_contrast_is_what_the_suite_says(small: Suite, place: Path, tmp_path: Path) -> None:
    few = replace(small, contrast=Contrast(("noise", "blur"), samples=50, seed=3))
    found = prepare(few, cache=tmp_path).data.contrast
    with np.load(place / "train.npz") as file:
        x = (torch.from_numpy(file["images"]).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    extractor = Extractor(small.backbone.load(place), small.backbone.layers)
    loader = DataLoader(TensorDataset(x), batch_size=64)
    expected = extractor.contrast(loader, kinds=("noise", "blur"), samples=50, seed=3)
    assert found.labels.tolist() == expected.labels.tolist()
    torch.testing.assert_close(found.layers["1"].std, expected.layers["1"].std, rtol=1e-4, atol=1e-5)


def test_other_contrast_is_kept_apart(small: Suite, tmp_path: Path) -> None:
    forms = [Contrast(), Contrast(("noise",)), Contrast(samples=50), Contrast(seed=1)]
    made = [prepare(replace(small, contrast=form), cache=tmp_path).data.contrast for form in forms]
    made.append(prepare(small, cache=tmp_path, batch_size=50).data.contrast)  # images mix within a batch
    folder = tmp_path / small.name / "features"
    assert len(list(folder.glob("contrast-*"))) == len({look_at(features) for features in made}) == 5
    assert len(list(folder.glob("train-*"))) == 1


def test_an_interrupted_contrast_goes_on(small: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare(small, cache=tmp_path / "whole", batch_size=20)
    prepare(replace(small, contrast=None), cache=tmp_path / "parts", batch_size=20)
    forward, calls = Extractor.forward, []

    def stop(self: Extractor, *given: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forward(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Extractor, "forward", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(small, cache=tmp_path / "parts", batch_size=20)
    said: list[str] = []
    again = prepare(small, cache=tmp_path / "parts", batch_size=20, say=said.append)
    assert not said, "it goes on"
    for key, column in whole.data.contrast.columns.items():
        assert torch.equal(column, again.data.contrast.columns[key]), key


@pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice")
def test_without_contrast_nothing_is_distorted(small: Suite, tmp_path: Path) -> None:
    said: list[str] = []
    ready = prepare(small, cache=tmp_path, say=said.append)
    assert said[-1] == "features of contrast: 120 distorted images"
    assert ready.data.contrast is not None
    said.clear()
    without = replace(small, contrast=None)
    assert prepare(without, cache=tmp_path / "other", say=said.append).data.contrast is None
    assert not any("contrast" in line for line in said)
    found = run_benchmark(without, methods=("heat",), seeds=(0,), cache=tmp_path / "other")
    assert "contrast" not in found.about
    assert found.entries[0].settings["contrast"] is None


def test_images_go_with_their_features(small: Suite, tmp_path: Path) -> None:
    data = prepare(small, cache=tmp_path).data
    for name, features in {"train": data.train, **data.scored}.items():
        batches = [data.extractor(batch).avg for batch in data.loader(name)]
        torch.testing.assert_close(torch.cat(batches), features.avg, rtol=1e-4, atol=1e-5)


def test_from_stored_features(small: Suite, place: Path, tmp_path: Path) -> None:
    ready = prepare(small, cache=tmp_path / "cache").data
    whole = run_benchmark(small, methods=FAST, seeds=(0,), cache=tmp_path / "cache")
    extractor = ready.extractor
    ready.contrast.save(tmp_path / "features" / "contrast")
    for name in ("train", "test", "dark"):
        with np.load(place / f"{name}.npz") as file:
            pixels, labels = file["images"], file.get("labels")
        x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
        batch = x if labels is None else (x, torch.from_numpy(labels))
        extractor.extract([batch], tmp_path / "features" / name)
    assert torch.equal(prepare_stored(small, tmp_path / "features").data.contrast.avg, ready.contrast.avg)
    assert prepare_stored(replace(small, contrast=None), tmp_path / "features").data.contrast is None
    found = run_benchmark(small, methods=FAST, seeds=(0,), features=tmp_path / "features", cache=tmp_path / "other")
    assert [m.name for m in found.missing] == ["photos"]
    for one, other in zip(found.entries, whole.entries, strict=True):
        a, b = (e.runs[0].evaluation["dark"].auroc for e in (one, other))
        assert a == pytest.approx(b, abs=1e-6)
    shutil.rmtree(tmp_path / "features" / "contrast")
    assert prepare_stored(small, tmp_path / "features").data.contrast is None
    with pytest.raises(InputError, match="no stored features of the ID set"):
        run_benchmark(small, features=tmp_path / "nowhere", cache=tmp_path)


def test_a_variant_with_other_priors_has_rows_of_its_own(small: Suite, tmp_path: Path) -> None:
    from heat_ood.benchmarks._benchmark import experiment_jobs

    data = prepare(small, cache=tmp_path).data
    jobs = experiment_jobs(small, "main", data, None)
    names = [job.name for job in jobs]
    assert names[-2:] == ["HEAT with dice, plain", "HEAT with dice, corrected"]
    assert [job.settings["residual"] for job in jobs[-2:]] == [None, quick.FAST]
    for job in jobs[-2:]:
        assert job.settings["priors"] == ("gmm", "dice")
        assert job.settings["contrast"] is None
    chosen = [job.name for job in experiment_jobs(small, "main", data, ["gmm", names[-1]])]
    assert chosen == ["gmm", "plain composition", "HEAT", names[-1]]
    headless = replace(data, train=Features(data.train.avg, data.train.std, labels=data.train.labels))
    assert names[-1] not in [job.name for job in experiment_jobs(small, "main", headless, None)]
    assert "gram" in names
    assert "odin" in names
    assert "ensemble" not in names


def test_cost_and_pictures(small: Suite, tmp_path: Path) -> None:
    costs = run_benchmark(small, "cost", cache=tmp_path).costs
    by_name = {cost.name: cost for cost in costs if not cost.name.endswith("(paper)")}
    assert len(by_name) < len(costs), "the paper's numbers stand beside ours"
    ours = {"energy", "gmm-joint@1", "gmm-joint"}  # too few classes to vouch for the relative energy
    whole = {"paper's priors, corrected", "plain composition", "HEAT"}
    assert {"backbone", "gmm", "gmm-std", *ours, "ebm", *whole, "ensemble of 5"} == set(by_name)
    assert all(by_name[name].milliseconds > by_name["backbone"].milliseconds for name in whole)
    assert by_name["ensemble of 5"].milliseconds == pytest.approx(5 * by_name["backbone"].milliseconds)

    found = run_benchmark(small, "qualitative", seeds=(0,), cache=tmp_path)
    assert [e.name for e in found.entries] == ["gmm", "energy", "plain composition", "HEAT"]
    for picture in found.pictures:
        assert picture.image.startswith("data:image/png;base64,")
        assert set(picture.caught_by) | set(picture.missed_by) == {"gmm", "energy", "HEAT"}
        assert ("HEAT" in picture.caught_by) != ("HEAT" in picture.missed_by)


def test_results_are_read_back_as_they_were(small: Suite, tmp_path: Path) -> None:
    found = run_benchmark(small, methods=FAST, seeds=(0, 1), cache=tmp_path)
    found.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == found


def test_bad_arguments_are_named(small: Suite, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experiment 'nothing'"):
        run_benchmark(small, "nothing")
    with pytest.raises(InputError, match="seeds are different numbers"):
        run_benchmark(small, seeds=(1, 1))
    with pytest.raises(InputError, match="no variant 'big'"):
        run_benchmark(small, variant="big")
    assert set(ALL_EXPERIMENTS) == {
        *("main", "correction", "residual", "composition", "lambda", "beta", "low-data", "cost", "qualitative")
    }


def test_every_suite_has_settings_of_the_paper() -> None:
    found = {name: preset_of(s.id.name) for name, s in suites().items()}
    assert set(found.values()) == set(PRESETS)
    assert all(("imagenet" in name) == (preset == "imagenet") for name, preset in found.items())


@pytest.mark.parametrize("program", ["/usr/bin/heat-ood", "/work/heat_ood/cli/__main__.py"])
def test_the_command_is_as_one_types_it(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "benchmark", "demo", "--out", "my results"])
    assert command() == "heat-ood benchmark demo --out 'my results'"
