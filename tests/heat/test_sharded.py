"""HEAT on a store of shards: the single store's detector, from moments of all samples and a sample of bounded size."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from heat_ood import HEAT, Features, InputError, Residual
from heat_ood.features import Moments, Space
from heat_ood.features._kept import moments_file
from heat_ood.heat import _detector as detector_module
from heat_ood.heat import _sampling as sampling
from heat_ood.heat import spaces_of
from shard_data import sharded

pytestmark = [
    pytest.mark.filterwarnings("ignore:The residual of:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::heat_ood.errors.Notice"),
]
QUICK = Residual(epochs=2, hidden=16, depth=3)
JOINT = Residual(joint=True, contrast_share=1.0, epochs=2, hidden=16, depth=3)
CLASSES = 12


def samples(n: int, seed: int = 0) -> Features:
    g = torch.Generator().manual_seed(seed)
    fixed = torch.Generator().manual_seed(99)
    centres, weight = torch.randn(CLASSES, 10, generator=fixed), torch.randn(CLASSES, 10, generator=fixed)
    y = torch.arange(n) % CLASSES
    z = (2 * centres[y] + torch.randn(n, 10, generator=g)).relu()
    s = torch.rand(n, 10, generator=g)
    return Features(avg=z, std=s, labels=y, head=(weight, None), layers={"one": (z.flip(1) + 1, s)})


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a small store exceeds."""
    for module in (sampling, detector_module):
        monkeypatch.setattr(module, "MOST_FITTED", 300)
        monkeypatch.setattr(module, "MOST_HELD", 60)


@pytest.mark.parametrize("settings", [{"residual": None}, {"residual": QUICK}, {"residual": QUICK, "holdout": 0.0}])
def test_scores_are_those_of_one_store(tmp_path: Path, settings: dict[str, object]) -> None:
    train, new = samples(700), samples(200, seed=1)
    one = HEAT(**settings).fit(train, progress=False)
    shards = HEAT(**settings).fit(sharded(train, tmp_path, (300, 1, 150, 249)), progress=False)
    torch.testing.assert_close(
        shards.score(new), one.score(new), rtol=0, atol=1e-6 if settings["residual"] is None else 1e-4
    )
    assert shards.priors_ == one.priors_
    assert shards.samples_ == one.samples_ == 700


def test_contrast_and_a_joint_residual(tmp_path: Path) -> None:
    train, new = samples(700), samples(200, seed=1)
    contrast = Features(avg=new.avg + 1, std=new.std, labels=new.labels, head=new.head, layers=new.layers)
    store = sharded(train, tmp_path, (300, 400))
    heat = HEAT(residual=JOINT)
    one, other = (heat.fit(features, contrast, progress=False).score(new) for features in (train, store))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-3)


@pytest.mark.usefixtures("bounded")
def test_gaussians_know_all_samples_that_are_not_held_out(tmp_path: Path) -> None:
    """The reference is numpy in float64 over the same samples."""
    train = samples(1000)
    store = sharded(train, tmp_path, (400, 600))
    heat = HEAT(priors=("gmm",), residual=None, seed=3)
    fitting, held = heat.split(store)
    assert (len(fitting), len(held)) == (300, 60)
    aside = held._rows.numpy()
    assert not set(aside) & set(fitting._rows.tolist())
    z = torch.nn.functional.normalize(train.avg).double().numpy()
    rest = np.setdiff1d(np.arange(1000), aside)
    means = np.stack([z[rest][train.labels.numpy()[rest] == c].mean(0) for c in range(CLASSES)])
    centred = z[rest] - means[train.labels.numpy()[rest]]
    known = fitting.moments_in(Space(("avg",)))
    assert known.n == 940
    np.testing.assert_allclose(known.means, means, rtol=0, atol=1e-7)
    np.testing.assert_allclose(known.covariance, centred.T @ centred / 940, rtol=0, atol=1e-7)
    gmm = heat.fit(store, progress=False).composition.members["gmm"]
    np.testing.assert_allclose(gmm.centre, means.mean(0), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("seed", range(3))
def test_a_class_with_one_sample_is_never_held_out(tmp_path: Path, seed: int) -> None:
    train = samples(1000)
    labels = torch.arange(1000) % (CLASSES - 1)
    labels[17] = CLASSES - 1
    store = sharded(Features(avg=train.avg, labels=labels), tmp_path, (400, 600))
    fitting, _ = HEAT(seed=seed).split(store)
    assert int(fitting.moments_in(Space()).counts[-1]) == 1


@pytest.mark.usefixtures("bounded")
def test_an_update_is_the_fit_of_both_and_reads_a_sample_of_the_old_features(tmp_path: Path) -> None:
    train = samples(1400)
    old = sharded(train[:900], tmp_path / "old", (500, 400))
    new = sharded(train[900:], tmp_path / "new", (200, 300))
    whole = sharded(train, tmp_path / "all", (500, 400, 200, 300))
    heat = HEAT(residual=QUICK)
    expected = heat.fit(whole, progress=False).score(train)

    HEAT(residual=QUICK).fit(old, progress=False)
    fitting, held = heat.split(whole)
    read = (
        set(fitting._rows.tolist())
        | set(held._rows.tolist())
        | set(torch.linspace(0, 1399, 64).round().long().tolist())
    )
    spoil(tmp_path / "old", [(0, 500), (500, 900)], read)
    updated = HEAT(residual=QUICK).fit(new, update=Features.open(tmp_path / "old"), progress=False)
    assert torch.equal(updated.score(train), expected)
    assert updated.samples_ == 1400
    with pytest.raises(InputError, match="Only whole stores of shards join"):
        HEAT().fit(train[900:], update=old)


def spoil(folder: Path, rows: list[tuple[int, int]], read: set[int]) -> None:
    """Make every feature no number that a fit has no reason to read, but for those that are looked at when opened."""
    spoilt = 0
    for shard, (start, end) in enumerate(rows):
        for file in sorted((folder / f"shard-{shard:05}").glob("avg*.npy")):
            values = np.load(file, mmap_mode="r+")
            ends = math.ceil(4096 / values[0].nbytes)
            some = [i for i in range(ends, end - start - ends) if start + i not in read]
            values[some] = np.nan
            spoilt += len(some)
    assert spoilt > 100


def test_the_spaces_of_a_fit_are_known_beforehand(tmp_path: Path) -> None:
    """A fit sums none by itself that :func:`spaces_of` had not named."""
    train = samples(300)
    for number, (contrast, residual) in enumerate([(None, {"energy": QUICK}), (train, JOINT)]):
        store, heat = sharded(train, tmp_path / str(number), (300,)), HEAT(residual=residual)
        named = spaces_of(heat, store, contrast)
        heat.fit(store, contrast, progress=False)
        kept = {file.name for file in (tmp_path / str(number) / "moments").rglob("*.safetensors")}
        assert kept == {moments_file(tmp_path / str(number) / "shard-00000", space).name for space in named}


def test_a_sample_that_is_no_number_is_named(tmp_path: Path) -> None:
    z = samples(200).avg.clone()
    z[150] = torch.nan
    store = sharded(Features(avg=z, labels=torch.arange(200) % 2), tmp_path, (100, 100))
    with pytest.raises(InputError, match="not finite"):
        HEAT(residual=None).fit(store, progress=False)


def test_moments_of_part_are_never_taken_for_those_of_all() -> None:
    features = samples(50).standing_for(lambda space: Moments.of([(torch.zeros(3, 1), None)]))
    assert features.only(("avg",)).summed
    assert not any(view.summed for view in (features[:3], features.subset(torch.arange(3)), features.to(torch.float64)))
