"""Several energies as one: standardised, weighted, composed with one parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..features import Features
from ..registry import storable
from ._base import Energy
from ._inputs import columns_of
from ._settings import MOST_PARTS, check_settings

__all__ = ["Composition", "compose"]


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


@storable("composition")
class Composition(Energy):
    r"""Energies standardised by their mean and spread on ID data, then composed (HEAT, equation 8).

    Args:
        parts: the energies, by name.
        beta: 0 is the mean, -1 a mixture, plus and minus infinity the maximum and the minimum.
        weights: one a part; None weighs alike.

    Example:
        >>> from heat_ood.energies import FreeEnergy, MaximumSoftmax
        >>> both = Composition({"energy": FreeEnergy(), "msp": MaximumSoftmax()})
        >>> both.fit(Features(logits=torch.randn(50, 3))).score(torch.zeros(2, 3)).shape
        torch.Size([2])
    """

    centres: Tensor
    spreads: Tensor

    def __init__(self, parts: dict[str, Energy], beta: float = 0.0, weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name.replace(".", "·"): part for name, part in parts.items()})
        self.beta, self.weights = beta, weights
        self.register_buffer("centres", None)
        self.register_buffer("spreads", None)

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
        own = self.centres is not None and self.spreads is not None
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
        return self

    @property
    def settings(self) -> dict[str, Any]:
        return {"parts": self.members, "beta": self.beta, "weights": self.weights}

    def validate(self) -> None:
        super().validate()
        for values in (self.centres, self.spreads):
            if values.shape != (len(self.parts),) or not (values.isfinite() & values.is_floating_point()).all():
                raise InputError(f"the statistics of {len(self.parts)} parts have shape {tuple(values.shape)}")
        if not (self.spreads > 0).all():
            raise InputError("a spread is not positive")

    def energy(self, features: Features) -> Tensor:
        return self.joined(torch.stack([part.energy(features) for part in self.members.values()], 1))

    def joined(self, energies: Tensor) -> Tensor:
        """Standardise and compose the parts' energies, (n, K)."""
        return compose((energies - self.centres) / self.spreads, self.beta, self.weights)


def check_weights(weights: Sequence[float] | None, count: int) -> None:
    """One non-negative weight a part, not all zero."""
    if weights is None:
        return
    values = torch.as_tensor(weights, dtype=torch.float64)
    if values.shape != (count,) or not (values >= 0).all() or not 0 < values.sum() < math.inf:
        raise InputError(
            f"weights must be {count} non-negative numbers, one a prior and not all zero, not {weights!r}."
        )
