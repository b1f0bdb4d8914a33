"""Rules that make one score of several energies, each from what ID samples alone can say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..energies import bend_of, compose, excess_of
from ..heat import FAMILY_WEIGHTS, ONE_LAYER_WEIGHTS, RELATIVES

__all__ = ["RULES", "Rule", "family_weights", "weighted"]

Rule = Callable[[Sequence[str], Tensor], Callable[[Tensor], Tensor]]
"""From the priors' names and the energies of ID samples, (n, K), to a function of energies, (m, K) to (m,)."""


def standardiser(real: Tensor) -> Callable[[Tensor], Tensor]:
    centre, spread = real.mean(0), real.std(0, correction=0).clamp(min=1e-12)
    return lambda energies: (energies - centre) / spread


def weighted(weights: Callable[[Sequence[str], Tensor], Tensor], beta: float = 0.0) -> Rule:
    """Standardised energies composed with β; the weights may depend on the ID samples."""

    def rule(names: Sequence[str], real: Tensor) -> Callable[[Tensor], Tensor]:
        standard = standardiser(real)
        w = weights(names, standard(real))
        return lambda energies: standard(energies) @ w if beta == 0 else compose(standard(energies), beta, w)

    return rule


def family_weights(names: Sequence[str], weights: Mapping[str, float]) -> Tensor:
    """A weight a prior: those of a family share the family's."""
    families = list(map(family_of, names))
    return torch.tensor([weights[f] / families.count(f) for f in families], dtype=torch.float64)


def family_of(name: str) -> str:
    return "energy" if name == "energy" else "relative" if name.startswith(RELATIVES) else "densities"


def one_sided(energy: float, relative: float, densities: float) -> Rule:
    """By family, the densities together and by what exceeds the ordinary, as ``HEAT(excess=…)`` has it."""

    def rule(names: Sequence[str], real: Tensor) -> Callable[[Tensor], Tensor]:
        standard, weights = standardiser(real), by_family(energy, relative, densities)(names, real)
        inside = torch.tensor([family_of(n) == "densities" for n in names])
        if inside.all() or not inside.any():
            return lambda energies: standard(energies) @ weights
        own, others = weights * inside, weights * ~inside
        bend = bend_of(standard(real) @ (own / own.sum()))
        return lambda energies: (
            standard(energies) @ others + own.sum() * excess_of(standard(energies) @ (own / own.sum()), bend)
        )

    return rule


def equal(names: Sequence[str], _: Tensor) -> Tensor:
    return torch.full((len(names),), 1 / len(names), dtype=torch.float64)


def by_family(energy: float, relative: float, densities: float) -> Callable[[Sequence[str], Tensor], Tensor]:
    weights = {"energy": energy, "relative": relative, "densities": densities}
    return lambda names, _: family_weights(names, weights)


def decorrelated(_: Sequence[str], real: Tensor) -> Tensor:
    r""":math:`Σ^{-1} 1`, negative entries dropped: without any, best where OOD samples raise every energy alike."""
    covariance = real.T @ real / len(real) + 1e-6 * torch.eye(real.shape[1], dtype=real.dtype)
    w: Tensor = torch.linalg.solve(covariance, torch.ones(len(covariance), dtype=real.dtype)).clamp(min=0)
    return w / w.sum()


def tails(real: Tensor, energies: Tensor) -> Tensor:
    """The share of ID samples that are at least as high, with ties and the sample itself, (m, K)."""
    ordered = real.sort(0).values
    below = torch.searchsorted(ordered.T.contiguous(), energies.T.contiguous()).T
    return (1 + len(real) - below).double() / (1 + len(real))


def fisher(_: Sequence[str], real: Tensor) -> Callable[[Tensor], Tensor]:
    r""":math:`-\sum_k \log p_k`; correlation changes its scale, not its order."""
    return lambda energies: -tails(real, energies).log().sum(1)


def brown(names: Sequence[str], real: Tensor) -> Callable[[Tensor], Tensor]:
    """Fisher's sum with the terms decorrelated: what several energies say together counts once."""
    terms = -tails(real, real).log()
    centre, spread = terms.mean(0), terms.std(0, correction=0).clamp(min=1e-12)
    w = decorrelated(names, (terms - centre) / spread)
    return lambda energies: ((-tails(real, energies).log() - centre) / spread) @ w


def stouffer(_: Sequence[str], real: Tensor) -> Callable[[Tensor], Tensor]:
    r""":math:`\sum_k Φ^{-1}(1 - p_k)`."""
    return lambda energies: torch.special.ndtri((1 - tails(real, energies)).clamp(1e-9, 1 - 1e-9)).sum(1)


RULES: dict[str, Rule] = {
    "equal weights": weighted(equal),
    "maximum": weighted(equal, torch.inf),
    "β = 1": weighted(equal, 1.0),
    "β = -1": weighted(equal, -1.0),
    "Fisher": fisher,
    "Fisher, decorrelated": brown,
    "Stouffer": stouffer,
    "decorrelated": weighted(decorrelated),
    "by family 1:1:1": weighted(by_family(1, 1, 1)),
    "by family 1:0:1": weighted(by_family(1, 0, 1)),
    "by family 2:0:1": weighted(by_family(2, 0, 1)),
    "by family 3:0:1": weighted(by_family(3, 0, 1)),
    "by family 2:1:2": weighted(by_family(2, 1, 2)),
    "by family 3:1:2": weighted(lambda names, _: family_weights(names, FAMILY_WEIGHTS)),
    "by family 3:1:4": weighted(lambda names, _: family_weights(names, ONE_LAYER_WEIGHTS)),
    "one-sided 3:1:2": one_sided(3, 1, 2),
    "one-sided 3:1:4": one_sided(3, 1, 4),
    "by family 3:2:2": weighted(by_family(3, 2, 2)),
    "by family 4:2:1": weighted(by_family(4, 2, 1)),
}
"""The families are the energy of the logits, the relative energy and the layers' densities; the default weighs them
3:1:2 where there are several layers, and one-sided 3:1:4 where there is one."""
