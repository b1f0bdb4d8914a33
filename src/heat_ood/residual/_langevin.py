"""Langevin sampling with a decaying step and noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["langevin"]


@torch.no_grad()
def langevin(
    x: Tensor,
    gradient: Callable[[Tensor], Tensor],
    steps: int,
    step: tuple[float, float],
    noise: tuple[float, float] | None = None,
    project: Callable[[Tensor], Tensor] | None = None,
    generator: torch.Generator | None = None,
    decay: str = "linear",
) -> Tensor:
    r"""Move points downhill on an energy, with noise (Welling and Teh, 2011).

    .. math:: x_{t+1} = \Pi\left(x_t - \tfrac12 η_t ∇E(x_t) + σ_t w_t\right), \qquad w_t \sim N(0, I)

    Args:
        x: where the chains start, (n, d).
        gradient: :math:`∇E`.
        steps: how many.
        step: :math:`η` of the first and the last step.
        noise: :math:`σ` likewise; None couples it, :math:`σ_t = \sqrt{η_t}`, which samples :math:`\exp(-E)`.
        project: :math:`Π`, applied after each step.
        generator: draws the noise.
        decay: what lies between the first and the last: with :math:`t` from 0 to 1, the last and :math:`1 - t`
            (``linear``) or :math:`(1 - t)^2` (``quadratic``) of the difference.

    Example:
        >>> start = torch.full((2000, 1), 5.0)
        >>> x = langevin(start, lambda x: x, 500, (0.1, 0.1), generator=torch.Generator().manual_seed(0))
        >>> abs(x.mean()) < 0.1, abs(x.std() - 1) < 0.1
        (tensor(True), tensor(True))
    """
    for t in range(steps):
        part = t / max(steps - 1, 1)
        if decay == "quadratic":
            part = 1 - (1 - part) ** 2
        eta = step[0] + part * (step[1] - step[0])
        sigma = math.sqrt(eta) if noise is None else noise[0] + part * (noise[1] - noise[0])
        w = torch.empty_like(x).normal_(generator=generator)
        x = torch.add(x, gradient(x), alpha=-eta / 2).add_(w, alpha=sigma)
        if project is not None:
            x = project(x)
    return x
