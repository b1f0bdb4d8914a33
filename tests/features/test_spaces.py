"""Spaces: which columns, side by side, and each sample of each on its sphere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heat_ood.errors import InputError
from heat_ood.features import Features, Space
from heat_ood.features._spaces import normalise


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-1]), dtype=torch.float64).to(dtype)


FEATURES = Features(avg=rand(5, 4), std=rand(5, 3), logits=rand(5, 2), layers={"a.b": (rand(5, 6), rand(5, 7))})


def test_each_sample_is_divided_by_its_norm() -> None:
    z = Space(("avg",))(FEATURES)
    torch.testing.assert_close(z, FEATURES.avg / FEATURES.avg.square().sum(1, keepdim=True).sqrt())
    assert torch.equal(Space(("avg",), normalise=False)(FEATURES), FEATURES.avg)


def test_joint_columns_are_normalised_one_by_one() -> None:
    z = Space(("avg", "std", "avg@a.b"))(FEATURES)
    assert z.shape == (5, 4 + 3 + 6)
    for block, column in zip(z.split([4, 3, 6], 1), ("avg", "std", "avg@a.b"), strict=True):
        assert torch.equal(block, Space((column,))(FEATURES))
        torch.testing.assert_close(block.norm(dim=1), torch.ones(5, dtype=torch.float64))
    assert Space(("avg", "std")).widths(FEATURES) == (4, 3)


@pytest.mark.parametrize(
    ("name", "column"),
    [("avg@a.b", FEATURES.layers["a.b"].avg), ("std@a.b", FEATURES.layers["a.b"].std), ("logits", FEATURES.logits)],
)
def test_columns_are_read_by_name(name: str, column: Tensor) -> None:
    assert torch.equal(Space((name,), normalise=False)(FEATURES), column)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_vector_stays_zero(dtype: torch.dtype) -> None:
    assert torch.equal(normalise(torch.zeros(2, 3, dtype=dtype)), torch.zeros(2, 3, dtype=dtype))


@pytest.mark.parametrize(("dtype", "exponents"), [(torch.float32, (-45, 18)), (torch.float64, (-320, 153))])
def test_no_norm_exceeds_one_however_small_the_vector(dtype: torch.dtype, exponents: tuple[int, int]) -> None:
    scales = torch.tensor([10.0**e for e in range(*exponents)], dtype=torch.float64).to(dtype)
    norms = normalise(scales[:, None].expand(-1, 8)).norm(dim=1)
    assert (norms <= 1 + 1e-5).all()
    smallest = 10 * torch.finfo(dtype).tiny ** 0.5
    torch.testing.assert_close(norms[scales > smallest], torch.ones_like(norms[scales > smallest]))


def test_a_norm_that_overflows_is_not_hidden() -> None:
    assert normalise(torch.full((1, 3), 1e30)).isnan().all()
    assert normalise(torch.tensor([[torch.inf, 1.0]])).isnan().any()
    assert normalise(torch.tensor([[torch.nan, 1.0]])).isnan().any()


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_computation_follows_the_data(stored: torch.dtype, used: torch.dtype) -> None:
    features = Features(avg=rand(5, 4, dtype=stored))
    assert Space()(features).dtype == used
    assert Space()(features, torch.float64).dtype == torch.float64
    torch.testing.assert_close(Space()(features), normalise(features.avg.to(used)))


@pytest.mark.parametrize("column", ["std", "avg@layer3", "logits"])
def test_a_missing_column_is_named(column: str) -> None:
    features = Features(avg=rand(5, 4))
    assert not Space((column,)).available(features)
    with pytest.raises(InputError, match=rf"{column} is needed, but there is none in Features\(n=5, avg=4\)"):
        Space((column,))(features)


@pytest.mark.parametrize("column", ["mean", "avg_layer3", "@layer3", ""])
def test_an_unknown_column_is_refused(column: str) -> None:
    with pytest.raises(InputError, match="There is no column"):
        Space((column,))
