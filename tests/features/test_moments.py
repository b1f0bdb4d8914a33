"""Class moments: against numpy, whatever the batches, the order and the distance from zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from heat_ood.errors import InputError
from heat_ood.features import Moments


def samples(n: int = 60, d: int = 5, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    y[:classes] = torch.arange(classes)
    mix = torch.randn(d, d, generator=g, dtype=torch.float64)
    return torch.randn(n, d, generator=g, dtype=torch.float64) @ mix + 3 * y[:, None], y


def by_numpy(z: Tensor, y: Tensor, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Class means, and the class covariances of np.cov averaged by their counts."""
    z, y = z.numpy(), y.numpy()
    means = np.stack([z[y == c].mean(0) for c in range(classes)])
    parts = [np.cov(z[y == c].T, bias=True).reshape(z.shape[1], -1) * (y == c).sum() for c in range(classes)]
    return means, sum(parts) / len(z)


def batched(z: Tensor, y: Tensor | None, size: int) -> list[tuple[Tensor, Tensor | None]]:
    return [(z[i : i + size], None if y is None else y[i : i + size]) for i in range(0, len(z), size)]


def close(a: Moments, b: Moments, tolerance: float = 1e-10) -> None:
    b = b.about(a.origin)
    assert torch.equal(a.counts, b.counts)
    for name in ("sums", "outer", "means", "mean", "covariance", "minimum", "maximum"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("n", "d", "classes"), [(60, 5, 3), (7, 20, 2), (40, 1, 4), (30, 4, 1), (3, 2, 3)])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_equal_numpy(n: int, d: int, classes: int, size: int) -> None:
    z, y = samples(n, d, classes)
    moments = Moments.of(batched(z, y, size), classes)
    means, covariance = by_numpy(z, y, classes)
    assert moments.n == n
    assert moments.counts.tolist() == np.bincount(y, minlength=classes).tolist()
    np.testing.assert_allclose(moments.means, means, rtol=0, atol=1e-10)
    np.testing.assert_allclose(moments.mean, z.mean(0), rtol=0, atol=1e-10)
    np.testing.assert_allclose(moments.covariance, covariance, rtol=0, atol=1e-10)
    assert torch.equal(moments.covariance, moments.covariance.T)
    assert torch.equal(moments.minimum, z.amin(0))
    assert torch.equal(moments.maximum, z.amax(0))


def test_without_labels_all_samples_are_one_class() -> None:
    z, _ = samples()
    close(Moments.of(batched(z, None, 16)), Moments.of([(z, torch.zeros(len(z), dtype=torch.long))]))


@pytest.mark.parametrize("size", [1, 2, 13, 59])
def test_batches_and_order_do_not_matter(size: int) -> None:
    z, y = samples()
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(1))
    close(Moments.of([(z, y)], 3), Moments.of(batched(z[order], y[order], size), 3))


@pytest.mark.parametrize("cut", [3, 30, 57])
def test_parts_add_up_and_can_be_taken_away(cut: int) -> None:
    z, y = samples()
    whole, first, rest = (Moments.of([(z[s], y[s])], 3) for s in (slice(None), slice(cut), slice(cut, None)))
    close(first + rest, whole)
    close(rest + first, whole)
    left = whole - rest
    for name in ("counts", "means", "covariance"):
        torch.testing.assert_close(getattr(left, name), getattr(first, name), rtol=0, atol=1e-9)
    assert whole.n == len(z), "joining leaves the parts as they were"


@pytest.mark.parametrize("merged", [False, True])
def test_far_from_zero_nothing_is_lost(merged: bool) -> None:
    z, y = samples(400)
    far = 1e6 + 1e-3 * z
    exact = far - 1e6
    _, covariance = by_numpy(exact, y, 3)
    if merged:
        moments = Moments.of([(far[:100], y[:100])], 3) + Moments.of([(far[100:], y[100:])], 3)
    else:
        moments = Moments.of(batched(far, y, 50), 3)
    np.testing.assert_allclose(moments.covariance, covariance, rtol=1e-7, atol=1e-7 * covariance.max())
    np.testing.assert_allclose(moments.means - 1e6, by_numpy(exact, y, 3)[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_summed_in_float64(dtype: torch.dtype) -> None:
    z, y = samples(500)
    z = z.to(dtype)
    close(Moments.of(batched(z, y, 64), 3), Moments.of([(z.double(), y)], 3), 1e-9)
    assert Moments.of([(z, y)], 3).outer.dtype == torch.float64


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_features_are_named(value: float) -> None:
    z, y = samples()
    z[[25, 28], 2] = value
    with pytest.raises(InputError, match=r"not finite .* in sample 25, the first of 2 such among samples 20 to 29"):
        Moments.of(batched(z, y, 10), 3)


@pytest.mark.parametrize(("label", "text"), [(3, "1 labels .* from 0 to 3"), (-1, "1 labels .* from -1 to 2")])
def test_labels_out_of_range_are_counted(label: int, text: str) -> None:
    z, y = samples()
    y[40] = label
    with pytest.raises(InputError, match=text + ", and there are 3 classes"):
        Moments.of([(z, y)], 3)


@pytest.mark.parametrize("batches", [[], [(torch.empty(0, 4), None)]])
def test_no_samples(batches: list[tuple[Tensor, None]]) -> None:
    with pytest.raises(InputError, match="empty"):
        Moments.of(batches)


def test_moments_of_other_classes_or_features_do_not_join() -> None:
    z, y = samples()
    for other in (Moments.of([(z, None)]), Moments.of([(z[:, :1], y)], 3)):
        with pytest.raises(InputError, match="do not join"):
            Moments.of([(z, y)], 3) + other
        with pytest.raises(InputError, match="do not join"):
            Moments.of([(z, y)], 3) - other
