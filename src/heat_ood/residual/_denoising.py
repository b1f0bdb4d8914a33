"""Denoising score matching: an energy learned from data and noise alone, without negatives and without chains."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ..energies import check_kinds, check_positive
from ..errors import FormatError, InputError
from ..files import restored
from ..progress import Report
from ..registry import storable
from ._checkpoint import Checkpoint
from ._training import ADAM
from ._wells import Wells

__all__ = ["Denoised", "Denoising", "DenoisingTraining", "denoising_loss"]

PASSES, STEPS = 4, 1500
WARM, CLIP = 50, 10.0
"""Steps until the learning rate is whole, and the largest norm of a gradient: the first steps are the wildest."""
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


class DenoisingTraining:
    """One energy in training, watched on held-out samples; the best epoch's weights are kept.

    Args:
        network: what is trained.
        real: the coordinates of training samples by their numbers.
        n: how many training samples there are.
        held: the coordinates of held-out samples.
        settings: noise, epochs, batch size, learning rate.
        generator: every random draw.
    """

    def __init__(
        self,
        network: Wells,
        real: Callable[[Tensor], Tensor],
        n: int,
        held: Tensor,
        settings: Denoising,
        generator: torch.Generator,
    ) -> None:
        self.network, self.real, self.n, self.held = network, real, n, held
        self.settings, self.generator, self.passes = settings, generator, settings.passes(n)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=settings.lr, betas=(0.9, 0.99))
        self.epochs: list[Denoised] = []
        self.best = self.weights()
        self.outcome = "trained"

    def run(self, report: Report | None = None, checkpoint: Checkpoint | None = None) -> None:
        """Train to the end, from the last checkpoint if there is one."""
        if checkpoint is not None:
            self.restore(checkpoint)
        while not self.finished:
            loss = self.one_epoch(report)
            if not math.isfinite(loss) or not math.isfinite(held_out := self.watched()):
                self.outcome = f"diverged in epoch {len(self.epochs) + 1}"
                break
            if held_out < min((e.held_out_loss for e in self.epochs), default=math.inf):
                self.best = self.weights()
            self.epochs.append(Denoised(len(self.epochs) + 1, loss, held_out))
            if checkpoint is not None:
                self.keep(checkpoint)
        if self.outcome == "trained" and len(self.epochs) < self.passes:
            self.outcome = f"stopped early after epoch {len(self.epochs)} of {self.passes}"
        with torch.no_grad():
            for parameter, value in zip(self.network.parameters(), self.best, strict=True):
                parameter.copy_(value)
        self.network.requires_grad_(False).eval()

    @property
    def finished(self) -> bool:
        """All epochs done, or too many of them without a better held-out loss."""
        losses = [e.held_out_loss for e in self.epochs]
        since = len(losses) - 1 - losses.index(min(losses)) if losses else 0
        return len(losses) >= self.passes or since >= max(1, self.settings.patience * self.passes)

    def one_epoch(self, report: Report | None) -> float:
        s, total, steps = self.settings, 0.0, math.ceil(self.n / self.settings.batch)
        order = torch.randperm(self.n, generator=self.generator, device=self.generator.device).cpu()
        for i, chosen in enumerate(torch.split(order, s.batch)):
            done = len(self.epochs) * steps + i
            rate = s.lr * 0.5 * (1 + math.cos(math.pi * done / (self.passes * steps)))
            self.optimiser.param_groups[0]["lr"] = rate * min(1.0, (done + 1) / WARM)
            x = self.real(chosen.sort().values)
            noise = torch.empty_like(x).normal_(generator=self.generator)
            loss = denoising_loss(self.network, x, noise, s.noise, learn=True)
            value = float(loss.detach())
            if not math.isfinite(value):
                return math.nan
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
            self.optimiser.step()
            total += value
            if report is not None:
                last = {"held-out": self.epochs[-1].held_out_loss} if self.epochs else {}
                report(done + 1, self.passes * steps, {"loss": value, **last})
        return total / steps

    def watched(self) -> float:
        """The loss of held-out samples, with the same noise each time."""
        generator = torch.Generator(self.held.device).manual_seed(WATCHING)
        noise = torch.empty_like(self.held).normal_(generator=generator)
        return float(denoising_loss(self.network, self.held, noise, self.settings.noise))

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.network.parameters()]

    # Checkpoints

    def keep(self, checkpoint: Checkpoint) -> None:
        tensors = {f"network.{i}": p for i, p in enumerate(self.weights())}
        tensors |= {f"best.{i}": p for i, p in enumerate(self.best)}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{key}": value for key, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        checkpoint.save(tensors, asdict(Progress(tuple(self.epochs))))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on after the last epoch that was kept; nothing is changed by one that is not of such a training."""
        found = checkpoint.load()
        if found is None:
            return
        tensors, facts = found
        try:
            progress = self.recognised(tensors, facts)
            self.generator.set_state(tensors["generator"])
        except (FormatError, RuntimeError) as error:
            raise checkpoint.damaged(str(error)) from error
        count, device = len(self.best), self.held.device
        with torch.no_grad():
            for i, parameter in enumerate(self.network.parameters()):
                parameter.copy_(tensors[f"network.{i}"])
        self.best = [tensors[f"best.{i}"].to(device) for i in range(count)]
        state = {i: {key: tensors[f"adam.{i}.{key}"] for key in ADAM} for i in range(count)}
        self.optimiser.load_state_dict({"state": state, "param_groups": self.optimiser.state_dict()["param_groups"]})
        self.epochs = list(progress.epochs)

    def recognised(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Progress:
        """How far a checkpoint is, if its names, shapes and types are those that this training keeps."""
        progress = restored(Progress, facts, "progress")
        count = len(progress.epochs)
        if not 0 < count <= self.passes or [e.epoch for e in progress.epochs] != list(range(1, count + 1)):
            raise FormatError(f"it has {count} epochs of {self.passes}, or not in order")
        expected: dict[str, Tensor] = {"generator": self.generator.get_state()}
        for i, parameter in enumerate(self.best):
            expected |= {f"network.{i}": parameter, f"best.{i}": parameter}
            expected |= {f"adam.{i}.{key}": torch.zeros(()) if key == "step" else parameter for key in ADAM}
        if strange := set(tensors) ^ set(expected):
            raise FormatError(f"{sorted(strange)[0]} is missing, or one too many")
        for name, tensor in tensors.items():
            if tensor.shape != expected[name].shape or tensor.dtype != expected[name].dtype:
                raise FormatError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
        steps = count * math.ceil(self.n / self.settings.batch)
        if any(float(tensors[f"adam.{i}.step"]) != steps for i in range(len(self.best))):
            raise FormatError(f"it has not taken the {steps} steps of its epochs")
        return progress
