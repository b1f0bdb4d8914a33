"""Pooling agrees with the definition in every layout, and stays finite where there is nothing to spread."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heat_ood.errors import InputError
from heat_ood.features import _pooling
from heat_ood.features._pooling import channel_of, pool

sizes = st.integers(1, 5)


@settings(max_examples=40, deadline=None)
@given(n=sizes, c=sizes, h=sizes, w=sizes, seed=st.integers(0, 99))
def test_every_layout_gives_the_definition(n: int, c: int, h: int, w: int, seed: int) -> None:
    x = torch.randn(n, c, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mean = torch.stack([x[:, i].reshape(n, -1).sum(1) / (h * w) for i in range(c)], 1)
    std = torch.stack([x[:, i].reshape(n, -1).std(1, correction=0) for i in range(c)], 1)
    for activation, channel in ((x, 1), (x.permute(0, 2, 3, 1), 3), (x.flatten(2), 1), (x.flatten(2).mT, 2)):
        avg, spread = pool(activation, channel)
        torch.testing.assert_close(avg, mean)
        torch.testing.assert_close(spread, std)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 9), c=st.integers(1, 40), side=st.integers(1, 9), at_a_time=st.integers(1, 4000))
def test_pooling_a_few_samples_at_a_time_gives_the_same_bits(n: int, c: int, side: int, at_a_time: int) -> None:
    maps = torch.randn(n, c, side, side, generator=torch.Generator().manual_seed(c))
    for x, channel in ((maps, 1), (maps.contiguous(memory_format=torch.channels_last), 1), (maps.flatten(2).mT, 2)):
        positions = tuple(d for d in range(1, x.ndim) if d != channel)
        avg = x.mean(positions, keepdim=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_pooling, "CACHED", at_a_time)
            found = _pooling.spread(x, positions)
        assert torch.equal(found[0], avg)
        assert torch.equal(found[1], (x - avg).square().mean(positions))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_pooled_in_float32(dtype: torch.dtype) -> None:
    x = (torch.randn(2, 3, 8, 8) + 200).to(dtype)
    avg, std = pool(x)
    exact = pool(x.double())
    assert avg.dtype == std.dtype == torch.float32
    torch.testing.assert_close(avg.double(), exact.avg)
    torch.testing.assert_close(std.double(), exact.std, rtol=1e-4, atol=1e-4)


def test_single_position_has_no_spread_and_no_nan_gradient() -> None:
    x = torch.randn(2, 3, 1, 1, requires_grad=True)
    avg, std = pool(x)
    assert torch.equal(std, torch.zeros(2, 3))
    (avg.sum() + std.sum()).backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("channel", [1, 3])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e20])
def test_what_varies_by_rounding_alone_has_no_spread(size: float, channel: int) -> None:
    flat = size * (0.5 + torch.rand(2, 7, 1, 1))
    rounded = torch.where(torch.rand(2, 7, 6, 6) < 0.5, flat, torch.nextafter(flat, torch.tensor(torch.inf)))
    real = rounded.clone()
    real[:, 3, 0, 0] *= 1.001
    for maps, zero in ((rounded, range(7)), (real, (0, 1, 2, 4, 5, 6))):
        _, std = pool(maps.movedim(1, channel), channel)
        assert torch.equal(std == 0, torch.tensor([[i in zero for i in range(7)]] * 2))


def test_patches_leave_out_the_class_token() -> None:
    x = torch.randn(2, 5, 4)
    avg, std = pool(x, 2, slice(1, 5))
    torch.testing.assert_close(avg, x[:, 1:].mean(1))
    torch.testing.assert_close(std, x[:, 1:].std(1, correction=0))


def test_vectors_have_no_std() -> None:
    x = torch.randn(3, 4)
    assert pool(x).avg is x
    assert pool(x).std is None


@pytest.mark.parametrize(
    ("shape", "width", "channel"),
    [
        ((2, 8, 4, 4), None, 1),
        ((2, 4, 4, 8), None, 3),
        ((2, 4, 4, 4), None, 1),
        ((2, 8, 4, 5), None, 1),
        ((2, 4, 5, 8), 8, 3),
        ((2, 9, 6), None, 2),
        ((2, 9, 6), 9, 1),
    ],
)
def test_layout_follows_width_then_shape(shape: tuple[int, ...], width: int | None, channel: int) -> None:
    assert channel_of(shape, width) == channel


def test_shapes_without_positions_or_channels_are_errors() -> None:
    with pytest.raises(InputError, match="no positions"):
        pool(torch.ones(2, 3, 0, 4))
    with pytest.raises(InputError, match="samples"):
        pool(torch.ones(2))
