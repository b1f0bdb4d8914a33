"""Training a residual: contrastive divergence with a squared-energy control, watched on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ._loop import Loop
from ._negatives import CHAINS, Negatives
from ._network import Network
from ._settings import Residual

__all__ = ["Epoch", "Training", "loss_of"]

MOVED = 512
"""At most so many chains tell what the network says of generated samples; they cost as much as training steps do."""


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


class Training(Loop[Residual, Epoch]):
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

    network: Network
    kept = Progress

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
        super().__init__(network, real, n, held, settings, generator, settings.betas)
        self.negatives, self.best_loss = negatives, 0.0

    def loss_on(self, chosen: Tensor) -> Tensor:
        real, negative = self.real(chosen), self.negatives.draw(len(chosen), self.network)
        energies = self.network(self.noisy(torch.cat([real, negative])))
        return loss_of(energies[: len(real)], energies[len(real) :], self.settings.lam)

    def rate(self, done: int, steps: int) -> float:
        return self.settings.rate(done, steps, self.passes)

    def numbers(self, loss: float) -> dict[str, float]:
        return {**super().numbers(loss), **({"gap": self.epochs[-1].gap} if self.epochs else {})}

    def noisy(self, x: Tensor) -> Tensor:
        if not self.settings.input_noise:
            return x
        return x.add_(torch.empty_like(x).normal_(generator=self.generator), alpha=self.settings.input_noise)

    def watch(self, loss: float) -> bool:
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
        return True

    def conclude(self) -> None:
        if self.useless:
            self.outcome = f"switched off: {self.outcome}, and no epoch told held-out data from negatives"
        super().conclude()

    @property
    def useless(self) -> bool:
        """No epoch told held-out data from negatives: the network stays as it began, at zero."""
        return self.best_loss >= 0

    # Checkpoints

    def progress(self) -> Progress:
        return Progress(tuple(self.epochs), self.best_loss)

    def resume(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        super().resume(progress, tensors)
        self.best_loss = progress.best_loss
        if "chains" in tensors:
            self.negatives.chains = tensors["chains"].to(self.held.device)

    def more(self) -> dict[str, Tensor]:
        chains = self.negatives.chains
        return {} if chains is None else {"chains": chains}

    def more_expected(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        chains = tensors.get("chains")
        if chains is None or self.settings.start != "persistent":
            return {}
        rows = min(max(len(chains) if chains.ndim else 0, CHAINS), max(CHAINS, self.settings.batch))
        return {"chains": self.held.new_empty(rows, self.negatives.coordinates.width)}
