"""The streamed quantile: against NumPy's, which holds all values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from heat_ood.errors import InputError
from heat_ood.features._quantiles import quantile

DATA: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "normal": lambda g: g.normal(size=(997, 3)),
    "negative": lambda g: -g.exponential(size=(500, 2)) - 3,
    "relu": lambda g: np.maximum(g.normal(size=(400, 5)), 0),
    "ties": lambda g: g.integers(-2, 3, size=(100, 3)).astype(float),
    "constant": lambda g: np.full((40, 2), -1.7),
    "two": lambda g: np.array([[1.0], [2.0]]),
    "one": lambda g: np.array([[-4.25]]),
    "spread": lambda g: g.normal(size=(300, 2)) * 10.0 ** g.integers(-30, 30, size=(300, 2)),
    "zeros": lambda g: np.array([[-0.0], [0.0], [-0.0], [1.0], [-1.0]]),
    "near": lambda g: 1 + 1e-6 * g.normal(size=(200, 2)),
}


def streamed(x: np.ndarray, size: int = 64) -> Callable[[], Iterator[Tensor]]:
    return lambda: iter(torch.from_numpy(x).split(size))


@pytest.mark.parametrize("q", [0.0, 0.1, 1 / 3, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", DATA)
def test_equals_numpy(kind: str, dtype: type, q: float) -> None:
    x = DATA[kind](np.random.default_rng(0)).astype(dtype)
    expected = np.quantile(x.astype(np.float64), q)
    assert quantile(streamed(x), q) == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_order_statistics_are_exact(dtype: torch.dtype) -> None:
    x = torch.randn(1001, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    ordered = x.double().sort().values
    assert [quantile(lambda: [x[:300], x[300:]], k / 1000) for k in (0, 1, 500, 900, 1000)] == [
        ordered[k].item() for k in (0, 1, 500, 900, 1000)
    ]


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 4), (torch.float64, 6)])
def test_nothing_but_a_chunk_is_held(dtype: torch.dtype, most: int) -> None:
    passes = 0

    def chunks() -> Iterator[Tensor]:
        nonlocal passes
        passes += 1
        for seed in range(5):
            yield torch.rand(10, 7, generator=torch.Generator().manual_seed(seed), dtype=dtype)

    whole = torch.cat(list(chunks()))
    passes = 0
    assert quantile(chunks, 0.77) == pytest.approx(np.quantile(whole.double().numpy(), 0.77), rel=1e-14)
    assert passes <= most


def test_empty_chunks_do_not_matter() -> None:
    assert quantile(lambda: [torch.empty(0, 2), torch.tensor([[1.0, 5.0]]), torch.empty(0, 2)], 0.25) == 2.0


@pytest.mark.parametrize("q", [-0.1, 90, float("nan")])
def test_refuses_what_is_no_share(q: float) -> None:
    with pytest.raises(InputError, match=r"between 0 and 1, not at .*Divide a percentage"):
        quantile(streamed(np.ones((3, 1))), q)


def test_refuses_no_values() -> None:
    with pytest.raises(InputError, match="no quantile of no values"):
        quantile(lambda: iter([]), 0.5)
