"""Several energies as one: standardised, weighted, composed with one parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..errors import InputError
from ..features import Features
from ..registry import storable
from ._base import Energy
from ._inputs import columns_of
from ._settings import MOST_PARTS, check_settings

__all__ = ["Composition", "compose"]

ORDINARY = 0.5
"""Up to so many spreads above their mean, what is taken together as an excess is ordinary. Saved with the detector."""


def compose(energies: Tensor, beta: float, weights: Sequence[float] | Tensor | None = None) -> Tensor:
    r"""The composition of HEAT over the last dimension.

    .. math:: E^β = \frac1β \log \sum_k w_k \exp(β E_k), \qquad \sum_k w_k = 1

    It is the weighted mean at :math:`β = 0`, the maximum at infinity and the minimum at minus infinity, and
    continuous in between.

    Args:
        energies: (…, K).
        beta: any real number or an infinity.
        weights: non-negative, scaled to sum to one; None weighs alike.

    Example:
        >>> e = torch.tensor([[1.0, 3.0]])
        >>> [round(compose(e, beta).item(), 3) for beta in (-torch.inf, -1e-9, 0.0, 1.0, torch.inf)]
        [1.0, 2.0, 2.0, 2.434, 3.0]
    """
    energies, shares = weighed(energies, weights)
    mean = energies @ shares
    if abs(beta) < torch.finfo(energies.dtype).tiny:  # it would be rounded to zero, and divided by
        return mean
    extreme = energies.amax(-1) if beta > 0 else energies.amin(-1)
    if abs(beta) >= torch.finfo(energies.dtype).max:
        return extreme
    # about the mean, a small beta does not lose the energies in the rounding of the exponential; about the extreme,
    # a large one does not overflow
    deviation = beta * (energies - mean[..., None])
    small = mean + (torch.expm1(deviation) @ shares).log1p() / beta
    large = extreme + ((beta * (energies - extreme[..., None])).exp() @ shares).log() / beta
    return torch.where(deviation.amax(-1) < 1, small, large)


def weighed(energies: Tensor, weights: Sequence[float] | Tensor | None) -> tuple[Tensor, Tensor]:
    """The energies that count and their shares, which sum to one; what counts is told by numbers, never by a tensor
    of the graph, which ``torch.export`` could not follow."""
    k = energies.shape[-1]
    if weights is None:
        return energies, energies.new_full((k,), 1 / k)
    given = [float(w) for w in (weights.tolist() if isinstance(weights, Tensor) else weights)]
    values = torch.tensor(given, dtype=torch.float64, device=energies.device)
    shares, least = (values / values.sum()).to(energies), torch.finfo(energies.dtype).tiny * sum(given)
    kept = [i for i, w in enumerate(given) if w > least]
    return (energies, shares) if len(kept) == k else (energies[..., kept], shares[kept])


def bend_of(energies: Tensor) -> Tensor:
    """Of energies of ID samples: from where on they are more than ordinary, and their spread, (2,)."""
    spread = energies.std(correction=0)
    spread = spread.where(spread > 4 * torch.finfo(torch.float32).eps, 1.0)  # else it is rounding alone
    return torch.stack([energies.mean() + ORDINARY * spread, spread])


def excess_of(energies: Tensor, bend: Tensor) -> Tensor:
    r"""What exceeds the ordinary, :math:`\log(1 + \exp((E - c) / s))`, smoothly.

    Example:
        >>> excess_of(torch.tensor([-9.0, 0.0, 9.0]), torch.tensor([0.0, 1.0])).round(decimals=3)
        tensor([0.0000, 0.6930, 9.0000])
    """
    return softplus((energies - bend[0]) / bend[1])


@storable("composition")
class Composition(Energy):
    r"""Energies standardised by their mean and spread on ID data, then composed (HEAT, equation 8).

    Parts that are named in ``excess`` count as one, by what exceeds the ordinary: of their weighted mean
    :math:`\bar E`, with mean :math:`m` and spread :math:`s` on ID data, it is

    .. math:: E = \log\left(1 + \exp\left(\frac{\bar E - m}{s} - \frac12\right)\right)

    which is next to nothing for samples that are typical for these parts, and rises with :math:`\bar E` beyond. It
    weighs what they weigh together.

    Args:
        parts: the energies, by name.
        beta: 0 is the mean, -1 a mixture, plus and minus infinity the maximum and the minimum.
        weights: one a part; None weighs alike.
        excess: the names of the parts that count by what exceeds the ordinary; not all of them.

    Example:
        >>> from heat_ood.energies import FreeEnergy, MaximumSoftmax
        >>> both = Composition({"energy": FreeEnergy(), "msp": MaximumSoftmax()})
        >>> both.fit(Features(logits=torch.randn(50, 3))).score(torch.zeros(2, 3)).shape
        torch.Size([2])
    """

    centres: Tensor
    spreads: Tensor
    bend: Tensor | None

    def __init__(
        self,
        parts: dict[str, Energy],
        beta: float = 0.0,
        weights: Sequence[float] | None = None,
        excess: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name.replace(".", "·"): part for name, part in parts.items()})
        self.beta, self.weights, self.excess = beta, weights, excess
        for name in ("centres", "spreads", "bend"):
            self.register_buffer(name, None)

    @property
    def members(self) -> dict[str, Energy]:
        """The parts by name."""
        return {name.replace("·", "."): part for name, part in self.parts.items()}  # type: ignore[misc]

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for part in self.members.values() for column in columns_of(part)))

    @property
    def learns(self) -> tuple[str, ...]:
        unfitted = (part for part in self.members.values() if not part.fitted)
        return tuple(dict.fromkeys(column for part in unfitted for column in part.learns))

    @property
    def fitted(self) -> bool:
        own = self.centres is not None and self.spreads is not None and (self.bend is not None or not self.excess)
        return own and all(part.fitted for part in self.members.values())

    def fit(self, features: Features) -> Self:
        """Fit the parts that are not fitted, and standardise by the same samples."""
        for part in self.members.values():
            columns_of(part)
        for part in self.members.values():
            if not part.fitted:
                part.fit(features)
        return self.standardise(features)

    def check(self) -> None:
        if not 0 < len(self.parts) <= MOST_PARTS:
            raise InputError(f"A composition has between 1 and {MOST_PARTS} parts, not {len(self.parts)}.")
        check_weights(self.weights, len(self.parts))
        check_excess(self.excess, list(self.members), self.weights)

    def standardise(self, features: Features) -> Self:
        """Take the mean and the spread of each part on these ID samples."""
        check_settings(self)
        self.begin(features)
        scores = torch.stack([part.score(features) for part in self.members.values()], 1)
        resolution, scores = torch.finfo(scores.dtype).eps, scores.double()
        spreads, noise = scores.std(0, correction=0), 4 * resolution * scores.mean(0).abs()
        device = next((t.device for t in self.state_dict().values()), scores.device)
        self.centres = scores.mean(0).float().to(device)
        self.spreads = torch.where(spreads > noise, spreads, 1.0).float().to(device)  # else it is rounding alone
        self.bend = None
        if self.excess:
            self.bend = bend_of(self.together((scores.to(device) - self.centres) / self.spreads)[1]).float()
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return {"parts": self.members, "beta": self.beta, "weights": self.weights, "excess": self.excess}

    def validate(self) -> None:
        super().validate()
        for values in (self.centres, self.spreads):
            if values.shape != (len(self.parts),) or not (values.isfinite() & values.is_floating_point()).all():
                raise InputError(f"the statistics of {len(self.parts)} parts have shape {tuple(values.shape)}")
        if not (self.spreads > 0).all():
            raise InputError("a spread is not positive")
        if (self.bend is not None) != bool(self.excess):
            raise InputError("where the excess begins is not told, or told of nothing")
        if self.bend is not None:
            fits = self.bend.shape == (2,) and self.bend.is_floating_point()
            if not fits or not self.bend.isfinite().all() or not self.bend[1] > 0:
                raise InputError("where the excess begins is no number and spread")

    def energy(self, features: Features) -> Tensor:
        return self.joined(torch.stack([part.energy(features) for part in self.members.values()], 1))

    def joined(self, energies: Tensor) -> Tensor:
        """Standardise and compose the parts' energies, (n, K)."""
        standard = (energies - self.centres) / self.spreads
        if self.bend is None:
            return compose(standard, self.beta, self.weights)
        apart, together, weights = self.together(standard)
        return compose(torch.cat([apart, excess_of(together, self.bend)[:, None]], 1), self.beta, weights)

    def together(self, standard: Tensor) -> tuple[Tensor, Tensor, list[float]]:
        """The parts that stand alone, the weighted mean of those that count as one, and the weights of all of these."""
        weights = [1.0] * len(self.parts) if self.weights is None else [float(w) for w in self.weights]
        inside = [i for i, name in enumerate(self.members) if name in self.excess]
        outside = [i for i in range(len(weights)) if i not in inside]
        own = [weights[i] for i in inside]
        apart, near = (torch.stack([standard[:, i] for i in rows], 1) for rows in (outside, inside))
        return apart, compose(near, 0.0, own), [*(weights[i] for i in outside), sum(own)]


def check_weights(weights: Sequence[float] | None, count: int) -> None:
    """One non-negative weight a part, not all zero."""
    if weights is None:
        return
    values = torch.as_tensor(weights, dtype=torch.float64)
    if values.shape != (count,) or not (values >= 0).all() or not 0 < values.sum() < math.inf:
        raise InputError(
            f"weights must be {count} non-negative numbers, one a prior and not all zero, not {weights!r}."
        )


def check_excess(excess: Sequence[str], names: Sequence[str], weights: Sequence[float] | None) -> None:
    """Some of the names, each once, but not all, with a weight that is not zero."""
    if isinstance(excess, str) or len(set(excess)) < len(excess) or not set(excess) <= set(names):
        raise InputError(f"excess names some of {', '.join(names)}, each once, not {excess!r}.")
    if len(excess) == len(names):
        raise InputError("Not all priors can count by their excess: leave one out of excess, or pass none.")
    if excess and weights is not None and not sum(w for n, w in zip(names, weights, strict=True) if n in excess) > 0:
        raise InputError("The priors in excess weigh nothing together. Give one of them a weight, or pass no excess.")
