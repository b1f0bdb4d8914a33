"""Training a residual: contrastive divergence with a squared-energy control, watched on held-out data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import FormatError
from ..files import restored
from ..progress import Report
from ._checkpoint import Checkpoint
from ._negatives import CHAINS, Negatives
from ._network import Network
from ._settings import Residual

__all__ = ["Epoch", "Training", "loss_of"]

MOVED = 512
"""At most so many chains tell what the network says of generated samples; they cost as much as training steps do."""
ADAM = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight."""


@dataclass(frozen=True)
class Epoch:
    """What training says after an epoch.

    ``held_out_loss`` is the loss on held-out samples against unmoved negatives, where an untrained network has zero;
    the energies are the means of held-out samples and of generated ones, moved by the chains.
    """

    epoch: int
    loss: float
    held_out_loss: float
    energy_real: float
    energy_negative: float

    @property
    def gap(self) -> float:
        """How much lower the energy of real samples is than that of negatives."""
        return self.energy_negative - self.energy_real

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Progress:
    """How far a training is, besides its tensors."""

    epochs: tuple[Epoch, ...]
    best_loss: float


def loss_of(real: Tensor, negative: Tensor, lam: float) -> Tensor:
    r""":math:`E_p[E_θ] - E_n[E_θ] + λ (E_p[E_θ^2] + E_n[E_θ^2])`."""
    return real.mean() - negative.mean() + lam * (real.square().mean() + negative.square().mean())


class Training:
    r"""One residual network in training.

    The network starts at zero energy, where the loss is zero; the least loss is negative. So a held-out loss below
    zero is a certificate that the residual tells unseen data from negatives, and a residual that never gets
    there is switched off.

    Args:
        network: what is trained.
        negatives: where negatives come from.
        real: the coordinates of training samples by their numbers.
        n: how many training samples there are.
        held: the coordinates of held-out samples.
        settings: epochs, batch size, learning rate, λ.
        generator: every random draw, shared with ``negatives``.
    """

    def __init__(
        self,
        network: Network,
        negatives: Negatives,
        real: Callable[[Tensor], Tensor],
        n: int,
        held: Tensor,
        settings: Residual,
        generator: torch.Generator,
    ) -> None:
        self.network, self.negatives, self.real, self.n, self.held = network, negatives, real, n, held
        self.settings, self.generator, self.passes = settings, generator, settings.passes(n)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=settings.lr, betas=settings.betas)
        self.epochs: list[Epoch] = []
        self.best = self.weights()
        self.best_loss = 0.0
        self.outcome = "trained"

    def run(self, report: Report | None = None, checkpoint: Checkpoint | None = None) -> None:
        """Train to the end, from the last checkpoint if there is one; the best epoch's weights stay in the network."""
        if checkpoint is not None:
            self.restore(checkpoint)
        while not self.finished:
            loss = self.one_epoch(report)
            if not math.isfinite(loss):
                self.outcome = f"diverged in epoch {len(self.epochs) + 1}"
                break
            self.watch(loss)
            if checkpoint is not None:
                self.keep(checkpoint)
        self.conclude()

    @property
    def finished(self) -> bool:
        """All epochs done, or too many of them without a better held-out loss."""
        if len(self.epochs) >= self.passes:
            return True
        losses = [e.held_out_loss for e in self.epochs]
        since = len(losses) - 1 - losses.index(min(losses)) if losses else 0
        return since >= max(1, self.settings.patience * self.passes)

    def one_epoch(self, report: Report | None) -> float:
        s, total, steps = self.settings, 0.0, math.ceil(self.n / self.settings.batch)
        order = torch.randperm(self.n, generator=self.generator, device=self.generator.device).cpu()
        for i, chosen in enumerate(torch.split(order, s.batch)):
            done = len(self.epochs) * steps + i
            self.optimiser.param_groups[0]["lr"] = s.rate(done, steps, self.passes)
            real, negative = self.real(chosen.sort().values), self.negatives.draw(len(chosen), self.network)
            energies = self.network(self.noisy(torch.cat([real, negative])))
            loss = loss_of(energies[: len(real)], energies[len(real) :], s.lam)
            value = float(loss.detach())
            if not math.isfinite(value):
                return math.nan
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += value
            if report is not None:
                report(done + 1, self.passes * steps, self.numbers(value))
        return total / steps

    def numbers(self, loss: float) -> dict[str, float]:
        last = {"held-out": self.epochs[-1].held_out_loss, "gap": self.epochs[-1].gap} if self.epochs else {}
        return {"loss": loss, **last}

    def noisy(self, x: Tensor) -> Tensor:
        if not self.settings.input_noise:
            return x
        return x.add_(torch.empty_like(x).normal_(generator=self.generator), alpha=self.settings.input_noise)

    def watch(self, loss: float) -> None:
        """Held-out samples against fresh negatives; the generator then goes on as if it had not happened."""
        state = self.generator.get_state()
        self.generator.manual_seed(0)
        negative = self.negatives.unmoved(len(self.held))
        moved = self.negatives.move(negative[:MOVED] if self.settings.steps else negative, self.network)
        self.generator.set_state(state)

        with torch.no_grad():
            real, unmoved, generated = (self.network(x) for x in (self.held, negative, moved))
            held_out = float(loss_of(real, unmoved, self.settings.lam))
        self.epochs.append(Epoch(len(self.epochs) + 1, loss, held_out, float(real.mean()), float(generated.mean())))
        if held_out < self.best_loss:
            self.best, self.best_loss = self.weights(), held_out

    def conclude(self) -> None:
        """Put the best weights back, and say what happened."""
        if self.useless:
            self.outcome = f"switched off: {self.outcome}, and no epoch told held-out data from negatives"
        elif self.outcome == "trained" and len(self.epochs) < self.passes:
            self.outcome = f"stopped early after epoch {len(self.epochs)} of {self.passes}"
        with torch.no_grad():
            for parameter, value in zip(self.network.parameters(), self.best, strict=True):
                parameter.copy_(value)
        self.network.requires_grad_(False).eval()

    @property
    def useless(self) -> bool:
        """No epoch told held-out data from negatives: the network stays as it began, at zero."""
        return self.best_loss >= 0

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.network.parameters()]

    # Checkpoints

    def keep(self, checkpoint: Checkpoint) -> None:
        tensors = {f"network.{i}": p for i, p in enumerate(self.weights())}
        tensors |= {f"best.{i}": p for i, p in enumerate(self.best)}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{key}": value for key, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        if self.negatives.chains is not None:
            tensors["chains"] = self.negatives.chains
        checkpoint.save(tensors, asdict(Progress(tuple(self.epochs), self.best_loss)))

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
        device = self.held.device
        with torch.no_grad():
            for i, parameter in enumerate(self.network.parameters()):
                parameter.copy_(tensors[f"network.{i}"])
        self.best = [tensors[f"best.{i}"].to(device) for i in range(len(self.best))]
        state = {i: {key: tensors[f"adam.{i}.{key}"] for key in ADAM} for i in range(len(self.best))}
        self.optimiser.load_state_dict({"state": state, "param_groups": self.optimiser.state_dict()["param_groups"]})
        if "chains" in tensors:
            self.negatives.chains = tensors["chains"].to(device)
        self.epochs, self.best_loss = list(progress.epochs), progress.best_loss

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
        chains = tensors.get("chains")
        if chains is not None and self.settings.start == "persistent":
            rows = min(max(len(chains) if chains.ndim else 0, CHAINS), max(CHAINS, self.settings.batch))
            expected["chains"] = self.held.new_empty(rows, self.negatives.coordinates.width)
        if strange := set(tensors) ^ set(expected):
            raise FormatError(f"{sorted(strange)[0]} is missing, or one too many")
        for name, tensor in tensors.items():
            if tensor.shape != expected[name].shape or tensor.dtype != expected[name].dtype:
                raise FormatError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
        steps = count * math.ceil(self.n / self.settings.batch)
        if any(float(tensors[f"adam.{i}.step"]) != steps for i in range(len(self.best))):
            raise FormatError(f"it has not taken the {steps} steps of its epochs")
        return progress
