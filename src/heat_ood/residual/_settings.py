"""The settings of a residual: network, chains, loss and training, in one immutable value."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch

from ..energies import check_kinds, check_positive
from ..errors import InputError
from ..registry import storable
from ._network import Network

__all__ = ["Residual"]

STARTS = ("prior", "data", "persistent", "noise")
DECAYS = ("linear", "quadratic")
PASSES, STEPS = 4, 600
DEEPEST = 100
"""Linear layers: those that are tied take time and no place in a file, so that a small one could ask for any number."""


@storable("Residual")
@dataclass(frozen=True, kw_only=True)
class Residual:
    r"""How a prior is corrected: ``E_h = E_q / T + E_θ``, where the small network ``E_θ`` tells data from negatives.

    It minimises, over data :math:`p` and negatives :math:`n`,

    .. math:: E_p[E_θ] - E_n[E_θ] + λ \left(E_p[E_θ^2] + E_n[E_θ^2]\right),
        \qquad \text{least at} \quad E_θ = -\frac{1}{2λ} \tanh\left(\tfrac12 \log\frac{p}{n}\right),

    a bounded log density ratio: it never moves a score by more than :math:`1 / 2λ`, in units of :math:`T`. With
    ``odds`` :math:`o` it becomes :math:`-\frac{1}{2λ} \tanh(\tfrac12 \log(o\, p / n))`: negatives are that much
    rarer than in training, and only what clearly looks like one is pushed up.

    Args:
        lam: :math:`λ`; the bound on the correction is :math:`1 / 2λ`. Infinity gives the prior back.
        odds: how many times as likely a sample is to be real as to be a negative; a bounded residual alone has them.
        temperature: :math:`T`; None takes the spread of the prior's energy on held-out ID data, so that ``lam``
            means the same for every prior and data set.
        hidden: width of the hidden layers.
        depth: number of linear layers, at most 100.
        tied: let the middle layers share one matrix.
        bounded: keep the bound :math:`1 / 2λ` by the form of the network, on any input; else only at the optimum.
        whiten: network and chains live in whitened features (else in the features as they are).
        input_noise: standard deviation of the noise on each input of the network in training.
        steps: Langevin steps that move each negative; zero leaves it where the prior proposed it.
        step: size of the first and the last step.
        noise: standard deviation of the noise of the first and the last step; None couples it, ``sqrt(step)``.
        decay: how step and noise fall from the first to the last: ``linear``, or ``quadratic``, fast and then slowly.
        coarse: let the network's gradient in chains be computed in bfloat16 where that is quicker: for chains whose
            noise moves a sample much further than the gradient does.
        start: where chains start: at proposals of the prior, at data (contrastive divergence), where the last chains
            ended (persistent), or at white noise, brought to where features live (noise).
        keep_starts: let the starts of the chains be negatives too, beside their ends.
        widen: proposals are drawn with this many times the prior's spread, log-uniform between the two.
        contrast_share: share of the negatives taken from ``contrast``, where ``fit`` is given some.
        epochs: passes over the training samples; None makes four, and more where that would be under 600 steps, which
            are 600 passes where all samples fit into one batch, however few they are.
        batch: samples of each kind in a training step.
        lr: Adam's learning rate.
        betas: Adam's, of the means of gradients and of their squares.
        anneal: let the learning rate fall to zero along a half cosine.
        drop_after: let it fall to a tenth after this epoch; None does not.
        patience: stop when this share of the epochs has gone by without a better held-out loss; 1 never stops.
        shared: let the residual of a prior on normalised features read those of all such priors of HEAT, side by
            side, instead of its own alone.
        joint: one residual over the features of all priors, on top of their composition, instead of one each.
    """

    GONE: ClassVar[tuple[str, ...]] = ("echo",)
    """Settings of training that earlier versions had; a saved residual scores the same without."""

    lam: float = 2.0
    odds: float = 1.0
    temperature: float | None = None
    hidden: int = 256
    depth: int = 6
    tied: bool = False
    bounded: bool = True
    whiten: bool = True
    input_noise: float = 1e-4
    steps: int = 0
    step: tuple[float, float] = (0.1, 0.01)
    noise: tuple[float, float] | None = None
    decay: str = "linear"
    coarse: bool = False
    start: str = "prior"
    keep_starts: bool = False
    widen: tuple[float, float] = (1.0, 2.0)
    contrast_share: float = 0.5
    epochs: int | None = None
    batch: int = 256
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    anneal: bool = True
    drop_after: int | None = None
    patience: float = 0.5
    shared: bool = True
    joint: bool = False

    def check(self) -> None:
        """Refuse settings that cannot be meant, naming the one."""
        check_kinds(type(self), self.to_dict())
        positive = {
            "lam": self.lam,
            "odds": self.odds,
            "hidden": self.hidden,
            "epochs": self.passes(1),
            "batch": self.batch,
            "lr": self.lr,
        }
        positive |= {"patience": self.patience, "step": min(self.step), "widen": min(self.widen)}
        positive |= {"temperature": 1.0 if self.temperature is None else self.temperature, "depth": self.depth - 1}
        for name, value in positive.items():
            if not value > 0 or math.isnan(value):
                least = "at least 2" if name == "depth" else "positive"
                raise InputError(f"Residual({name}={getattr(self, name)!r}): {name} must be {least}.")
        if self.depth > DEEPEST:
            raise InputError(f"Residual(depth={self.depth}): depth is at most {DEEPEST}.")
        check_positive("lam", min(self.lam, 1.0))
        check_positive("temperature", 1.0 if self.temperature is None else self.temperature)
        if (self.odds != 1 and not self.bounded) or math.isinf(self.odds):  # their logarithm alone is used
            raise InputError(
                f"Residual(odds={self.odds}, bounded={self.bounded}): odds are finite, and other than 1 for a bounded "
                "residual alone."
            )
        if self.steps < 0 or self.input_noise < 0 or (self.noise is not None and min(self.noise) < 0):
            raise InputError("Residual: steps, noise and input_noise cannot be negative.")
        if not 0 <= self.contrast_share <= 1:
            raise InputError(f"Residual(contrast_share={self.contrast_share}): it is a share, between 0 and 1.")
        for name, known in (("start", STARTS), ("decay", DECAYS)):
            if getattr(self, name) not in known:
                raise InputError(f"Residual({name}={getattr(self, name)!r}): it is one of {', '.join(known)}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"Residual(betas={self.betas}): both are at least 0 and below 1.")
        if self.drop_after is not None and (self.drop_after < 1 or self.anneal):
            raise InputError(
                f"Residual(drop_after={self.drop_after}, anneal={self.anneal}): the rate drops after epoch 1 at the "
                "earliest, and where it is not annealed."
            )
        if self.keep_starts and not self.steps:
            raise InputError("Residual(keep_starts=True) needs Langevin steps: else starts and ends are the same.")
        if self.start in ("data", "persistent") and not self.steps:
            raise InputError(
                f"Residual(start={self.start!r}) needs Langevin steps: else its negatives are the data. Set steps=20."
            )

    def passes(self, n: int) -> int:
        """How often training goes over ``n`` samples: a pass takes a step at least, so more than 600 are never needed.

        Example:
            >>> [Residual().passes(n) for n in (3, 256, 1000, 50_000)]
            [600, 600, 154, 4]
        """
        return max(PASSES, math.ceil(STEPS * self.batch / max(n, self.batch))) if self.epochs is None else self.epochs

    def rate(self, step: int, steps: int, passes: int) -> float:
        """The learning rate of a training step, the first being 0, where an epoch has so many ``steps``."""
        if self.anneal:
            return self.lr * 0.5 * (1 + math.cos(math.pi * step / (passes * steps)))
        dropped = self.drop_after is not None and step >= self.drop_after * steps
        return self.lr / 10 if dropped else self.lr

    @property
    def bound(self) -> float:
        r"""The most that the residual may move a score, :math:`1 / 2λ`."""
        return 1 / (2 * self.lam)

    def network(
        self, width: int, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> Network:
        """The untrained network for ``width`` features."""
        bound = self.bound if self.bounded else None
        return Network(width, self.hidden, self.depth, self.tied, bound, generator, dtype)

    def __repr__(self) -> str:
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return f"Residual({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def to_dict(self) -> dict[str, Any]:
        """All settings by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
