"""Passes over stored samples, a chunk at a time: the nearest ones, and the smooth sum over all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..errors import Argument, InputError
from ..features import Features

__all__ = [
    "attraction",
    "bandwidth_of",
    "check_bank",
    "check_k",
    "log_kernel_sum",
    "mean_perplexity",
    "nearest",
    "stored_samples",
]

CHUNK = 8192
READ = 4096
HELD = 2**24
QUERIES = 512
RANGE = 1e3
TOLERANCE = 1e-4


def check_bank(k: int, limit: int | float | None) -> None:
    """Refuse a number of neighbours that is none, or a limit that keeps no samples."""
    if k < 1:
        raise InputError(f"k is a number of neighbours, a whole number of at least 1, not {k!r}.")
    if limit is not None:
        count_of(limit, 1)


def check_k(title: str, k: int, stored: int) -> None:
    """Refuse more neighbours than there are."""
    if k > stored:
        raise InputError(
            f"{title} cannot be fitted: it asks for {k:,} neighbours, and {stored:,} samples are stored. Choose ",
            Argument("k", stored),
            " or less, a larger limit, or pass more samples.",
        )


def stored_samples(
    features: Features, points: Callable[[Features], Tensor], limit: int | float | None = None, seed: int = 0
) -> Tensor:
    """``points`` of each ID sample, or of a subset drawn by the seed, (N, d).

    Args:
        features: with the columns that ``points`` reads, and no others.
        points: what is stored of a batch.
        limit: how many samples; a float is a share of them; None is all.
        seed: of the subset.
    """
    n = len(features)
    if limit is not None:
        rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: count_of(limit, n)].sort().values
        features = features.subset(rows)

    stored, start = torch.empty(0), 0
    for batch in features.batches(READ):
        z = points(batch)
        if not torch.isfinite(z).all():
            first = features.number_of(start + int((~torch.isfinite(z)).any(1).nonzero()[0]))
            raise InputError(f"The features of sample {first} are not finite. Drop it, or extract again in float32.")
        if not start:
            stored = z.new_empty(len(features), z.shape[1])
        stored[start : start + len(z)] = z
        start += len(z)
    return stored


def count_of(limit: int | float, n: int) -> int:
    """How many of ``n`` samples a limit keeps."""
    share = isinstance(limit, float)
    if not (0 < limit <= 1 if share else limit >= 1):
        raise InputError(
            Argument("limit", limit),
            " keeps no such number of samples. Pass a number of samples (an integer of at least 1), a share of them (a "
            "float above 0, up to 1.0), or None for all.",
        )
    return math.ceil(limit * n) if share else min(int(limit), n)


# The nearest


def similarities(z: Tensor, stored: Tensor, offset: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
    r""":math:`z \cdot z_i - o_i`, a chunk of stored samples at a time, each with where it starts."""
    for start in range(0, len(stored), CHUNK):
        part = stored[start : start + CHUNK]
        yield start, z @ part.T if offset is None else torch.addmm(-offset[start : start + CHUNK], z, part.T)


@torch.no_grad()
def nearest(z: Tensor, stored: Tensor, k: int, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""The ``k`` largest of :math:`z \cdot z_i - o_i` and the samples that they belong to, (n, k), in order.

    With :math:`o_i = \tfrac12 \|z_i\|^2` these are the nearest in Euclidean distance. No more than a chunk of the
    stored samples is compared at a time.

    Args:
        z: (n, d).
        stored: (N, d).
        k: how many.
        offset: :math:`o`, (N,); None is zero.

    Example:
        >>> nearest(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.0], [2.0, 0.0], [1.0, 9.0]]), 2)
        (tensor([[2., 1.]]), tensor([[1, 2]]))
    """
    if k > CHUNK:  # the best of a few points among all stored samples: the best so far would be sorted too often
        parts = [torch.cat([s for _, s in similarities(rows, stored, offset)], 1).topk(k) for rows in few(z, stored)]
        return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])
    values, index = z[:, :0], z[:, :0].long()
    for start, similar in similarities(z, stored, offset):
        best, where = similar.topk(min(k, similar.shape[1]), sorted=False)
        best, where = (torch.cat([values, best], 1), torch.cat([index, where + start], 1)) if start else (best, where)
        values, order = best.topk(min(k, best.shape[1]))
        index = where.gather(1, order)
    return values, index


def few(z: Tensor, stored: Tensor) -> tuple[Tensor, ...]:
    """The points in groups so small that all their similarities can be held."""
    return torch.split(z, max(1, HELD // len(stored)))


# The smooth sum over all


def log_kernel_sum(z: Tensor, stored: Tensor, offset: Tensor, h: Tensor) -> Tensor:
    r""":math:`\log \sum_i \exp((z \cdot z_i - o_i) / h^2)`, (n,)."""
    parts = [(similar / h**2).logsumexp(1) for _, similar in similarities(z, stored, offset)]
    return torch.stack(parts).logsumexp(0)


def attraction(z: Tensor, stored: Tensor, offset: Tensor, h: Tensor) -> Tensor:
    r"""The mean of the stored samples :math:`\sum_i w_i z_i`, weighed by their kernels at each point, (n, d)."""
    total, mean = torch.full_like(z[:, 0], -torch.inf), torch.zeros_like(z)
    for start, similar in similarities(z, stored, offset):
        log_w = similar / h**2
        joined = torch.logaddexp(total, log_w.logsumexp(1))
        mean = mean * (total - joined).exp()[:, None]
        mean = mean + (log_w - joined[:, None]).exp() @ stored[start : start + CHUNK]
        total = joined
    return mean


def mean_perplexity(rows: Tensor, stored: Tensor, offset: Tensor, h: float) -> float:
    """Over how many others the kernel weights of the stored samples ``rows`` spread, on average."""
    z = stored[rows]
    total, expected = torch.full_like(z[:, 0], -torch.inf), torch.zeros_like(z[:, 0])
    for start, similar in similarities(z, stored, offset):
        log_w = similar / h**2
        own = ((rows >= start) & (rows < start + similar.shape[1])).nonzero().squeeze(1)
        log_w[own, rows[own] - start] = torch.finfo(log_w.dtype).min / 2
        joined = torch.logaddexp(total, log_w.logsumexp(1))
        expected = expected * (total - joined).exp() + ((log_w - joined[:, None]).exp() * log_w).sum(1)
        total = joined
    return float((total - expected).double().exp().mean())


def bandwidth_of(stored: Tensor, offset: Tensor, k: int, seed: int = 0) -> float:
    """The kernel width that makes the mean perplexity ``k``, by bisection, over at most 512 of the samples.

    Args:
        stored: about their mean, (N, d).
        offset: half of their squared norms, (N,).
        k: the perplexity, more than one and less than the number of other samples.
        seed: which samples.
    """
    spread = math.sqrt(2 * float(offset.double().mean()))
    if spread < 1e-12:
        return 1.0  # the samples do not differ: any width will do
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(stored), generator=generator)[:QUERIES].to(stored.device)
    low, high = spread / RANGE, spread * RANGE
    while high / low > 1 + 1e-9:
        h = math.sqrt(low * high)
        excess = math.log(mean_perplexity(rows, stored, offset, h) / k)
        if abs(excess) < TOLERANCE:
            return h
        low, high = (low, h) if excess > 0 else (h, high)
    return math.sqrt(low * high)
