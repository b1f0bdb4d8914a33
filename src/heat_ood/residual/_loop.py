"""A training: epochs over the samples, watched on held-out ones, the best of them kept, and continued after a kill."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..errors import FormatError
from ..files import restored
from ..progress import Report
from ._checkpoint import Checkpoint

__all__ = ["Loop"]

ADAM = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps of each weight."""


class Settings(Protocol):
    """What a training asks of its settings."""

    @property
    def batch(self) -> int: ...
    @property
    def patience(self) -> float: ...
    @property
    def lr(self) -> float: ...
    def passes(self, n: int) -> int: ...


class Watched(Protocol):
    """What an epoch says."""

    @property
    def epoch(self) -> int: ...
    @property
    def held_out_loss(self) -> float: ...


class Progress(Protocol):
    """How far a training is, besides its tensors."""

    @property
    def epochs(self) -> Sequence[Any]: ...


E_ = TypeVar("E_", bound=Watched)
S = TypeVar("S", bound=Settings)


class Loop(ABC, Generic[S, E_]):
    """One network in training.

    A subclass gives the loss of a batch, the learning rate, what it watches, and what its checkpoint holds beside the
    weights, Adam's state and the generator's.

    Args:
        network: what is trained.
        real: the coordinates of training samples by their numbers.
        n: how many training samples there are.
        held: the coordinates of held-out samples.
        settings: epochs, batch size, learning rate, patience.
        generator: every random draw.
        betas: Adam's.
    """

    clip: float | None = None
    """The largest norm of a gradient; None clips none."""
    network: nn.Module
    kept: type[Any]
    """The dataclass of how far a training is."""

    def __init__(
        self,
        network: nn.Module,
        real: Callable[[Tensor], Tensor],
        n: int,
        held: Tensor,
        settings: S,
        generator: torch.Generator,
        betas: tuple[float, float],
    ) -> None:
        self.real, self.n, self.held = real, n, held
        self.network, self.settings, self.generator, self.passes = network, settings, generator, settings.passes(n)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=settings.lr, betas=betas)
        self.epochs: list[E_] = []
        self.best = self.weights()
        self.outcome = "trained"

    # What a subclass gives

    @abstractmethod
    def loss_on(self, chosen: Tensor) -> Tensor:
        """The loss of the samples of these numbers."""

    @abstractmethod
    def rate(self, done: int, steps: int) -> float:
        """The learning rate after ``done`` steps, of which an epoch has ``steps``."""

    @abstractmethod
    def watch(self, loss: float) -> bool:
        """Note an epoch and, where it is the best, its weights; False where held-out samples say that it diverged."""

    @abstractmethod
    def progress(self) -> Any:
        """How far it is, besides its tensors."""

    def resume(self, progress: Any, tensors: Mapping[str, Tensor]) -> None:
        """Take over what a checkpoint says, after the weights."""
        self.epochs = list(progress.epochs)

    def more(self) -> dict[str, Tensor]:
        """Tensors that its checkpoint holds, too."""
        return {}

    def more_expected(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What they must be like, in a checkpoint with these."""
        return {}

    def numbers(self, loss: float) -> dict[str, float]:
        """What is shown after a step."""
        return {"loss": loss, **({"held-out": self.epochs[-1].held_out_loss} if self.epochs else {})}

    # Training

    def run(self, report: Report | None = None, checkpoint: Checkpoint | None = None) -> None:
        """Train to the end, from the last checkpoint if there is one; the best epoch's weights stay in the network."""
        if checkpoint is not None:
            self.restore(checkpoint)
        while not self.finished:
            loss = self.one_epoch(report)
            if not math.isfinite(loss) or not self.watch(loss):
                self.outcome = f"diverged in epoch {len(self.epochs) + 1}"
                break
            if checkpoint is not None:
                self.keep(checkpoint)
        self.conclude()

    @property
    def finished(self) -> bool:
        """All epochs done, or too many of them without a better held-out loss."""
        losses = [e.held_out_loss for e in self.epochs]
        since = len(losses) - 1 - losses.index(min(losses)) if losses else 0
        return len(losses) >= self.passes or since >= max(1, self.settings.patience * self.passes)

    def one_epoch(self, report: Report | None) -> float:
        total, steps = 0.0, math.ceil(self.n / self.settings.batch)
        order = torch.randperm(self.n, generator=self.generator, device=self.generator.device).cpu()
        for i, chosen in enumerate(torch.split(order, self.settings.batch)):
            done = len(self.epochs) * steps + i
            self.optimiser.param_groups[0]["lr"] = self.rate(done, steps)
            loss = self.loss_on(chosen.sort().values)
            value = float(loss.detach())
            if not math.isfinite(value):
                return math.nan
            loss.backward()  # type: ignore[no-untyped-call]
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)  # here: chains need the memory
            total += value
            if report is not None:
                report(done + 1, self.passes * steps, self.numbers(value))
        return total / steps

    def conclude(self) -> None:
        """Put the best weights back, and say what happened."""
        if self.outcome == "trained" and len(self.epochs) < self.passes:
            self.outcome = f"stopped early after epoch {len(self.epochs)} of {self.passes}"
        with torch.no_grad():
            for parameter, value in zip(self.network.parameters(), self.best, strict=True):
                parameter.copy_(value)
        self.network.requires_grad_(False).eval()

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.network.parameters()]

    # Checkpoints

    def keep(self, checkpoint: Checkpoint) -> None:
        tensors = {f"network.{i}": p for i, p in enumerate(self.weights())}
        tensors |= {f"best.{i}": p for i, p in enumerate(self.best)}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{key}": value for key, value in state.items()}
        checkpoint.save({**tensors, "generator": self.generator.get_state(), **self.more()}, asdict(self.progress()))

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
        with torch.no_grad():
            for i, parameter in enumerate(self.network.parameters()):
                parameter.copy_(tensors[f"network.{i}"])
        self.best = [tensors[f"best.{i}"].to(self.held.device) for i in range(len(self.best))]
        state = {i: {key: tensors[f"adam.{i}.{key}"] for key in ADAM} for i in range(len(self.best))}
        self.optimiser.load_state_dict({"state": state, "param_groups": self.optimiser.state_dict()["param_groups"]})
        self.resume(progress, tensors)

    def recognised(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Progress:
        """How far a checkpoint is, if its names, shapes and types are those that this training keeps."""
        progress: Progress = restored(self.kept, facts, "progress")
        count = len(progress.epochs)
        if not 0 < count <= self.passes or [e.epoch for e in progress.epochs] != list(range(1, count + 1)):
            raise FormatError(f"it has {count} epochs of {self.passes}, or not in order")
        expected = {"generator": self.generator.get_state(), **self.more_expected(tensors)}
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
