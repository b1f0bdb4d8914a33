"""Denoising score matching: an energy learned from data and noise alone, without negatives and without chains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor

from ..energies import check_kinds, check_positive
from ..errors import InputError
from ..registry import storable
from ._loop import Loop
from ._wells import Wells

__all__ = ["Denoised", "Denoising", "DenoisingTraining", "denoising_loss"]

PASSES, STEPS = 4, 1500
WARM, CLIP, BETAS = 50, 10.0, (0.9, 0.99)
"""Steps until the learning rate is whole; the largest norm of a gradient: the first steps are the wildest; Adam's."""
WATCHING = 0
"""Seeds the noise that held-out samples are watched with, the same after each epoch."""


@storable("Denoising")
@dataclass(frozen=True, kw_only=True)
class Denoising:
    r"""How an energy is learned without negatives: by telling from noisy samples what the noise was.

    In coordinates :math:`x` in which all ID samples together have unit covariance, it minimises

    .. math:: \mathbb{E}_{x, ε} \left\| σ\, ∇E_θ(x + σ ε) - ε \right\|^2, \qquad ε \sim \mathcal{N}(0, I),

    which is least where :math:`E_θ` is, up to a constant, minus the log density of the data smoothed by the noise
    (Vincent, 2011). An energy that is flat has a loss of one; what is below has learned something.

    Args:
        noise: :math:`σ`, the standard deviation of the noise, in units of the samples' own.
        wells: how many places of low energy there may be.
        epochs: passes over the training samples; None makes four, and more where that would be under 1500 steps.
        batch: samples in a training step.
        lr: Adam's learning rate, which falls to zero along a half cosine.
        patience: stop when this share of the epochs has gone by without a better held-out loss; 1 never stops.
    """

    noise: float = 1.0
    wells: int = 256
    epochs: int | None = None
    batch: int = 256
    lr: float = 1e-2
    patience: float = 0.5

    def check(self) -> None:
        """Refuse settings that cannot be meant, naming the one."""
        check_kinds(type(self), asdict(self))
        for name in ("wells", "batch", "lr", "patience"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"Denoising({name}={getattr(self, name)!r}): {name} must be positive.")
        if self.passes(1) < 1:
            raise InputError(f"Denoising(epochs={self.epochs}): epochs must be positive.")
        check_positive("noise", self.noise)

    def passes(self, n: int) -> int:
        """How often training goes over ``n`` samples.

        Example:
            >>> [Denoising().passes(n) for n in (3, 256, 50_000)]
            [1500, 1500, 8]
        """
        return max(PASSES, math.ceil(STEPS * self.batch / max(n, self.batch))) if self.epochs is None else self.epochs

    def __repr__(self) -> str:
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return f"Denoising({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


@dataclass(frozen=True)
class Denoised:
    """What training says after an epoch: the mean loss of its steps, and that of held-out samples."""

    epoch: int
    loss: float
    held_out_loss: float


@dataclass(frozen=True)
class Progress:
    """How far a training is, besides its tensors."""

    epochs: tuple[Denoised, ...]


def denoising_loss(network: Wells, x: Tensor, noise: Tensor, sigma: float, learn: bool = False) -> Tensor:
    """The mean squared error, a coordinate, of the noise that the energy's gradient says there is."""
    with torch.enable_grad():
        noisy = torch.add(x, noise, alpha=sigma).requires_grad_()
        (gradient,) = torch.autograd.grad(network(noisy).sum(), noisy, create_graph=learn)
        return (sigma * gradient - noise).square().mean()


class DenoisingTraining(Loop[Denoising, Denoised]):
    """One energy in training, watched on held-out samples; the best epoch's weights are kept.

    Args:
        network: what is trained.
        real: the coordinates of training samples by their numbers.
        n: how many training samples there are.
        held: the coordinates of held-out samples.
        settings: noise, epochs, batch size, learning rate.
        generator: every random draw.
    """

    network: Wells
    clip, kept = CLIP, Progress

    def __init__(
        self,
        network: Wells,
        real: Callable[[Tensor], Tensor],
        n: int,
        held: Tensor,
        settings: Denoising,
        generator: torch.Generator,
    ) -> None:
        super().__init__(network, real, n, held, settings, generator, BETAS)

    def loss_on(self, chosen: Tensor) -> Tensor:
        x = self.real(chosen)
        noise = torch.empty_like(x).normal_(generator=self.generator)
        return denoising_loss(self.network, x, noise, self.settings.noise, learn=True)

    def rate(self, done: int, steps: int) -> float:
        whole = self.settings.lr * 0.5 * (1 + math.cos(math.pi * done / (self.passes * steps)))
        return whole * min(1.0, (done + 1) / WARM)

    def watch(self, loss: float) -> bool:
        if not math.isfinite(held_out := self.watched()):
            return False
        if held_out < min((e.held_out_loss for e in self.epochs), default=math.inf):
            self.best = self.weights()
        self.epochs.append(Denoised(len(self.epochs) + 1, loss, held_out))
        return True

    def watched(self) -> float:
        """The loss of held-out samples, with the same noise each time."""
        generator = torch.Generator(self.held.device).manual_seed(WATCHING)
        noise = torch.empty_like(self.held).normal_(generator=generator)
        return float(denoising_loss(self.network, self.held, noise, self.settings.noise))

    def progress(self) -> Progress:
        return Progress(tuple(self.epochs))
