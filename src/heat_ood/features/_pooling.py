"""From an activation of any layout to one mean and one standard deviation a channel."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import InputError
from ._columns import Layer

__all__ = ["channel_of", "pool"]

ROUNDING = 8 * torch.finfo(torch.float32).eps
"""Flat maps vary by rounding alone, about 1e-7 of their size. A deviation below this share (1e-6) is held for that."""
CACHED = 2**18
"""So many numbers are pooled at a time by each thread: 1 MiB of them."""


def pool(
    x: Tensor,
    channel: int | None = None,
    patches: slice | None = None,
    width: int | None = None,
    mask: Tensor | None = None,
) -> Layer:
    r"""Mean and standard deviation of each channel over its positions.

    .. math:: \mu_c = \frac{1}{P} \sum_p x_{pc}, \qquad \sigma_c^2 = \frac{1}{P} \sum_p (x_{pc} - \mu_c)^2

    Args:
        x: maps (n, c, h, w) or (n, h, w, c), tokens (n, t, c), or vectors (n, c), which have no std.
        channel: the dimension that holds the channels; decided by :func:`channel_of` if left out.
        patches: of tokens, the ones to pool: all but the class token and the registers.
        width: how many channels there are, where it is known; it settles the layout.
        mask: of tokens, (n, t): nonzero where a token is one, zero where a shorter text was filled up. What fills up is
            not pooled, so that a text's features do not depend on the texts beside it.

    A single position has std 0, and a gradient of 0; so has a channel that varies by less than rounding does, measured
    by the largest channel of its sample. Half-precision activations are pooled in float32.

    Example:
        >>> avg, std = pool(torch.ones(2, 8, 4, 4))
        >>> avg.shape, std.max().item()
        (torch.Size([2, 8]), 0.0)
        >>> pool(torch.ones(2, 4, 4, 8), width=8).std.shape
        torch.Size([2, 8])
        >>> pool(torch.ones(2, 8)).std is None
        True
    """
    if x.ndim < 2:
        raise InputError(
            f"Cannot pool an activation of shape {tuple(x.shape)}: its first dimension must be the samples, another "
            "the channels."
        )
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    if x.ndim == 2:
        return Layer(x, None)

    channel = channel_of(tuple(x.shape), width) if channel is None else channel % x.ndim
    if mask is not None and (x.ndim != 3 or mask.shape != (len(x), x.shape[3 - channel])):
        mask = None  # other positions than the tokens that it speaks of
    if patches is not None and x.ndim == 3:
        x = x[:, patches] if channel == 2 else x[..., patches]
        mask = None if mask is None else mask[:, patches]
    positions = tuple(d for d in range(1, x.ndim) if d != channel)
    if 0 in x.shape[1:]:
        raise InputError(
            f"Cannot pool an activation of shape {tuple(x.shape)}: it has no positions. Pass larger inputs."
        )

    if mask is None:
        avg, variance = spread(x, positions)
    else:
        there = (mask != 0).to(x).unsqueeze(channel)
        count = there.sum(positions, keepdim=True).clamp(min=1)
        avg = (x * there).sum(positions, keepdim=True) / count
        variance = ((x - avg).square() * there).sum(positions) / count.reshape(len(x), 1)
    avg = avg.reshape(variance.shape)
    size = torch.maximum(avg.detach().abs(), variance.detach().sqrt())
    varies = variance.detach().sqrt() > ROUNDING * size.amax(1, keepdim=True)
    std = torch.where(varies, variance, 1).sqrt() * varies
    return Layer(avg, std)


def spread(x: Tensor, positions: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel, by two passes of vectorised means: torch.var takes three times as long.

    On a CPU a few samples at a time, so that what is between the passes stays in the cache; the bits are the same.
    """
    if x.device.type != "cpu" or (x.requires_grad and torch.is_grad_enabled()) or traced():
        avg = x.mean(positions, keepdim=True)
        return avg, (x - avg).square().mean(positions)
    parts: list[tuple[Tensor, Tensor]] = []
    for some in torch.split(x, max(1, CACHED * torch.get_num_threads() // math.prod(x.shape[1:]))):
        avg = some.mean(positions, keepdim=True)
        parts.append((avg, (some - avg).square_().mean(positions)))
    if len(parts) == 1:
        return parts[0]
    averages, variances = zip(*parts, strict=True)
    return torch.cat(averages), torch.cat(variances)


def traced() -> bool:
    """Whether operations are being written down, for a compiler or an export: then there is to be no loop."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def channel_of(shape: tuple[int, ...], width: int | None = None) -> int:
    """Which dimension holds the channels, by the known width or, failing that, by the look of the shape.

    Example:
        >>> channel_of((2, 64, 7, 7)), channel_of((2, 7, 7, 64)), channel_of((2, 50, 192))
        (1, 3, 2)
        >>> channel_of((2, 7, 9, 64), width=64)
        3
    """
    last = len(shape) - 1
    if width is not None and (shape[1] == width) != (shape[last] == width):
        return 1 if shape[1] == width else last
    if last == 2:
        return 2
    return last if len(set(shape[1:last])) == 1 and shape[last] != shape[1] else 1
