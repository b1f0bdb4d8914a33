"""The k-th nearest neighbour and its smooth form: against plain NumPy, by hand, on shapes that bite."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from gmm_reference import cloud, seeded
from heat_ood.energies import Energy, KNearest, create
from heat_ood.energies import _neighbours as neighbours
from heat_ood.energies._methods import create_prior
from heat_ood.energies._neighbours import attraction, mean_perplexity, nearest, stored_samples
from heat_ood.errors import InputError
from heat_ood.features import Features, Space


def unit(z: np.ndarray) -> np.ndarray:
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def points(features: Features, normalise: bool) -> np.ndarray:
    return unit(features.avg.numpy()) if normalise else features.avg.numpy()


@pytest.fixture(params=[7, 8192])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(neighbours, "CHUNK", request.param)
    monkeypatch.setattr(neighbours, "READ", request.param)
    return request.param


# The distance


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("k", [1, 5, 60])
def test_the_kth_distance_equals_a_full_sort(k: int, normalise: bool, chunk: int) -> None:
    train, test = cloud(60), cloud(40, seed=1)
    stored, z = points(train, normalise), points(test, normalise)
    expected = [sorted(np.linalg.norm(stored - one, axis=1))[k - 1] for one in z]
    knn = KNearest(normalise=normalise, k=k).fit(train)
    np.testing.assert_allclose(knn.score(test), expected, rtol=1e-9)
    np.testing.assert_allclose(knn.energy_of(torch.from_numpy(z)), expected, rtol=1e-9)


def test_by_hand() -> None:
    knn = KNearest(normalise=False, k=2).fit(Features(avg=torch.tensor([[0.0, 0.0], [0.0, 3.0], [10.0, 0.0]])))
    torch.testing.assert_close(knn.score(torch.tensor([[4.0, 0.0], [0.0, 1.0]])), torch.tensor([5.0, 2.0]))
    directions = KNearest(k=1).fit(Features(avg=torch.tensor([[5.0, 0.0], [0.0, 0.1]])))
    torch.testing.assert_close(directions.score(torch.tensor([[3.0, 4.0]])), torch.tensor([math.sqrt(0.4)]))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("soft", [False, True])
def test_nothing_is_lost_far_from_the_origin(offset: float, soft: bool) -> None:
    train, test = (f.avg.float() + offset for f in (cloud(200), cloud(50, seed=1)))
    exact, rounded = (
        KNearest(normalise=False, k=3, soft=soft).fit(Features(avg=train.to(dtype))).score(test.to(dtype))
        for dtype in (torch.float64, torch.float32)
    )
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, rtol=2e-3 if soft else 1e-5, atol=1e-4)


def test_near_duplicates_keep_their_digits() -> None:
    stored = torch.nn.functional.normalize(torch.rand(100, 64, generator=seeded()), dim=1)
    knn = KNearest(normalise=False, k=1).fit(Features(avg=stored))
    assert torch.equal(knn.score(stored), torch.zeros(100))
    step = torch.zeros(64)
    step[3] = 1e-5
    torch.testing.assert_close(knn.score(stored + step), torch.full((100,), 1e-5), rtol=0.01, atol=0)


@pytest.mark.parametrize("k", [1, 4])
def test_gradient_points_away_from_the_neighbour(k: int) -> None:
    knn = KNearest(k=k).fit(cloud(50))
    z = knn.space(cloud(20, seed=1)).requires_grad_()
    (auto,) = torch.autograd.grad(knn.energy_of(z).sum(), z)
    torch.testing.assert_close(knn.gradient_of(z.detach()), auto, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(auto.norm(dim=1), torch.ones(20, dtype=torch.float64))


def test_gradient_at_a_stored_sample_is_zero() -> None:
    knn = KNearest(k=1).fit(cloud(50))
    assert torch.equal(knn.gradient_of(knn.space(cloud(50))), torch.zeros(50, 6, dtype=torch.float64))


def test_nearest_are_the_largest_products_in_order(chunk: int) -> None:
    z, stored = (torch.randn(n, 4, generator=seeded(n), dtype=torch.float64) for n in (9, 30))
    values, index = nearest(z, stored, 8)
    expected = np.sort(z.numpy() @ stored.numpy().T, axis=1)[:, ::-1][:, :8]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    torch.testing.assert_close((z @ stored.T).gather(1, index), values)


# The smooth form


def kernel_energy(z: np.ndarray, stored: np.ndarray, h: float) -> np.ndarray:
    return np.array([-np.log(np.mean(np.exp(-np.square(stored - one).sum(1) / (2 * h * h)))) for one in z])


@pytest.mark.parametrize("normalise", [False, True])
def test_soft_equals_a_kernel_density(normalise: bool, chunk: int) -> None:
    train, test = cloud(80), cloud(30, seed=1)
    knn = KNearest(normalise=normalise, k=8, soft=True).fit(train)
    expected = kernel_energy(points(test, normalise), points(train, normalise), float(knn.bandwidth))
    np.testing.assert_allclose(knn.score(test), expected, rtol=1e-9, atol=1e-12)


def test_soft_by_hand() -> None:
    knn = KNearest(normalise=False, k=2, soft=True).fit(Features(avg=torch.tensor([[0.0], [1.0], [2.0], [3.0]])))
    knn.bandwidth = torch.tensor(0.5)
    kernels = [math.exp(-2 * square) for square in (1, 0, 1, 4)]
    torch.testing.assert_close(knn.score(torch.tensor([[1.0]])), torch.tensor([-math.log(sum(kernels) / 4)]))


def test_soft_gradient_equals_autograd(chunk: int) -> None:
    knn = KNearest(k=8, soft=True).fit(cloud(80))
    z = knn.space(cloud(30, seed=1)).requires_grad_()
    (auto,) = torch.autograd.grad(knn.energy_of(z).sum(), z)
    torch.testing.assert_close(knn.gradient_of(z.detach()), auto, rtol=1e-9, atol=1e-9)


def test_soft_gradient_far_away_leads_back() -> None:
    train = cloud(80)
    knn = KNearest(normalise=False, k=8, soft=True).fit(train)
    z = torch.full((1, 6), 1e6, dtype=torch.float64)
    pull = attraction(knn.centred(z), knn.stored, knn.half_squares, knn.bandwidth)
    assert (torch.linalg.vector_norm(knn.stored - pull, dim=1) < 1e-9).any(), "the nearest sample takes all the weight"
    assert torch.isfinite(knn.gradient_of(z)).all()


@pytest.mark.parametrize("k", [2, 10, 50])
@pytest.mark.parametrize("n", [80, 700])
def test_the_weights_spread_over_k_others(n: int, k: int) -> None:
    knn = KNearest(k=k, soft=True, seed=3).fit(cloud(n))
    rows = torch.randperm(n, generator=seeded(3))[:512].numpy()
    z, h, found = unit(cloud(n).avg.numpy()), float(knn.bandwidth), []
    for i in rows:
        w = np.exp(-np.square(np.delete(z, i, 0) - z[i]).sum(1) / (2 * h * h))
        w = w[w > 0] / w.sum()
        found.append(np.exp(-(w * np.log(w)).sum()))
    assert np.mean(found) == pytest.approx(k, rel=2e-4)


def test_perplexity_does_not_depend_on_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    knn = KNearest(k=8, soft=True).fit(cloud(80))
    rows = torch.arange(80)
    whole = mean_perplexity(rows, knn.stored, knn.half_squares, float(knn.bandwidth))
    for size in (1, 7):
        monkeypatch.setattr(neighbours, "CHUNK", size)
        part = mean_perplexity(rows, knn.stored, knn.half_squares, float(knn.bandwidth))
        assert part == pytest.approx(whole, rel=1e-10)


def test_soft_ranks_as_the_distance_on_a_blob() -> None:
    train, test = (
        Features(avg=torch.randn(n, 8, generator=seeded(n), dtype=torch.float64) * scale)
        for n, scale in ((500, 1.0), (300, torch.linspace(0.1, 2.5, 300, dtype=torch.float64)[:, None]))
    )
    hard, soft = (KNearest(normalise=False, k=20, soft=soft).fit(train).score(test) for soft in (False, True))
    assert spearmanr(hard, soft).statistic > 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-20])
def test_samples_that_do_not_differ(value: float, normalise: bool, dtype: torch.dtype) -> None:
    train = torch.full((20, 3), value, dtype=dtype)
    test = torch.tensor([[value] * 3, [0.0] * 3, [-1.0, -2.0, -3.0]], dtype=dtype)
    for soft in (False, True):
        knn = KNearest(normalise=normalise, k=3, soft=soft).fit(Features(avg=train))
        score = knn.score(test)
        assert torch.isfinite(score).all()
        assert torch.isfinite(knn.gradient_of(knn.space(Features(avg=test)))).all()
        assert score[2] > score[0] + 0.01


# Which samples are stored


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 60), (10, 10), (100, 60), (0.25, 15), (1.0, 60), (0.01, 1), (1, 1)]
)
def test_limit_keeps_a_subset_of_the_samples(limit: float | None, count: int) -> None:
    train = cloud(60)
    stored = stored_samples(train.only(("avg",)), Space(normalise=False), limit, seed=1)
    assert stored.shape == (count, 6)
    same = (stored[:, None] == train.avg[None]).all(2)
    assert (same.sum(1) == 1).all()
    assert same.sum(0).max() == 1


def test_the_seed_draws_the_subset() -> None:
    train = cloud(60)
    first, same, other = (KNearest(k=5, limit=20, seed=seed).fit(train).stored for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("limit", [None, 30])
def test_samples_that_are_not_finite_are_named(limit: int | None) -> None:
    avg = cloud(60).avg.clone()
    kept = 17 if limit is None else int(torch.randperm(60, generator=seeded())[:limit].min())
    avg[kept, 2] = math.nan
    with pytest.raises(InputError, match=rf"sample {kept} are not finite. Drop it"):
        KNearest(k=3, limit=limit).fit(Features(avg=avg))


def test_one_sample_and_one_neighbour() -> None:
    knn = KNearest(normalise=False, k=1).fit(Features(avg=torch.tensor([[1.0, 2.0]])))
    torch.testing.assert_close(knn.score(torch.tensor([[4.0, 6.0]])), torch.tensor([5.0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "a whole number of at least 1, not 0"),
        ({"k": 2.5}, r"not 2\.5"),
        ({"k": 61}, "asks for 61 neighbours, and 60 samples are stored. Choose k=60 or less"),
        ({"k": 11, "limit": 10}, "11 neighbours, and 10 samples are stored.*a larger limit"),
        ({"k": 59, "soft": True}, "Choose k between 2 and 58"),
        ({"k": 1, "soft": True}, "Choose k between 2 and 58"),
        ({"limit": 0}, "limit=0 keeps no such number"),
        ({"limit": 1.5}, "a share of them"),
        ({"limit": -0.1}, "a share of them"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        KNearest(**settings).fit(cloud(60))


def test_features_of_another_width() -> None:
    with pytest.raises(InputError, match="has 5 features, and KNearest was fitted to 6"):
        KNearest(k=3).fit(cloud(60)).score(cloud(5, d=5).avg)


# As a method


def test_the_prior_is_the_smooth_form() -> None:
    assert not create("knn").soft
    assert create_prior("knn").soft
    prior = create_prior("knn@layer3", k=4)
    assert (prior.reads, prior.soft, prior.k) == (("avg@layer3",), True, 4)
    layer = cloud(60).avg
    prior.fit(Features(layers={"layer3": (layer, None)}))
    torch.testing.assert_close(prior.score(layer), KNearest(k=4, soft=True).fit(cloud(60)).score(layer))


def test_it_proposes_from_a_mixture_of_its_space() -> None:
    z = KNearest(k=5, soft=True, proposals=True).fit(cloud(60)).propose(50, seeded())
    torch.testing.assert_close(z.norm(dim=1), torch.ones(50, dtype=torch.float64))
    with pytest.raises(InputError, match="proposals=True"):
        KNearest(k=5).fit(cloud(60)).propose(3)


@pytest.mark.parametrize("proposals", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_saved_and_loaded(soft: bool, proposals: bool, tmp_path: Path) -> None:
    knn = KNearest(k=5, limit=0.5, soft=soft, proposals=proposals).fit(cloud(60))
    knn.save(tmp_path / "knn")
    loaded = Energy.load(tmp_path / "knn")
    assert torch.equal(loaded.score(cloud(30, seed=1)), knn.score(cloud(30, seed=1)))
    assert loaded.settings == knn.settings
    assert repr(loaded) == repr(knn)
    assert f"k=5, limit=0.5, soft={soft}" in repr(knn)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("centre", torch.zeros(5, dtype=torch.float64)),
        ("half_squares", torch.zeros(60)),
        ("stored", torch.zeros(60, dtype=torch.float64)),
        ("bandwidth", torch.tensor(0.0, dtype=torch.float64)),
        ("bandwidth", None),
    ],
)
def test_tensors_that_disagree_are_refused(name: str, value: torch.Tensor | None) -> None:
    knn = KNearest(k=5, soft=True).fit(cloud(60))
    knn.validate()
    setattr(knn, name, value)
    with pytest.raises(InputError):
        knn.validate()
