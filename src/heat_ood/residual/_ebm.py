"""The fully data-driven energy-based model, without a prior."""

from __future__ import annotations

from typing import Any, Self

import torch

from ..energies import Flat
from ..features import Features
from ..progress import Report, progress_bars
from ..registry import register
from ._checkpoint import Checkpoint
from ._hybrid import Hybrid
from ._settings import Residual

__all__ = ["EnergyBasedModel"]

DEFAULT = Residual(shared=False)


@register("ebm", "energy-based model without prior (HEAT, table 2)")
class EnergyBasedModel(Hybrid):
    r"""An energy learned from data alone (HEAT, table 2): :math:`E(z) = E_θ(z)`, no prior.

    The network is trained as a residual of HEAT is by default, against samples of one widened Gaussian of all ID
    samples, so that the two differ by the prior alone. ``Residual(steps=20, …)`` moves them by Langevin chains, as the
    paper does; that takes many times as long.

    Args:
        columns: the features that it reads.
        normalise: put each sample on the unit sphere first.
        residual: how the network is trained.
        seed: of the initial weights and of all sampling.

    Example:
        >>> z = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> quick = Residual(epochs=1, hidden=8)
        >>> EnergyBasedModel(residual=quick).fit(Features(avg=z)).score(z).shape
        torch.Size([300])
    """

    trains = True
    no_prior = "it is a network already, trained as a residual is"

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        residual: Residual = DEFAULT,
        seed: int = 0,
    ) -> None:
        super().__init__(Flat(columns, normalise), residual, seed, columns)
        self.normalise, self.title = normalise, self.name

    @classmethod
    def as_prior(cls, **settings: Any) -> Flat:
        return Flat(**settings)

    def fit(
        self,
        features: Features,
        held: Features | None = None,
        contrast: Features | None = None,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        with progress_bars(report is None) as bars:
            return super().fit(features, held, contrast, report or bars.add(self.name), checkpoint, device)
