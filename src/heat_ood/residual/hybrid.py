"""A prior and its residual: the corrected energy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from ..energies import Energy, GaussianMixture, Prior
from ..energies.gmm import mixture_of
from ..errors import InputError, NotFittedError
from ..features import Features, Space
from .checkpoint import Checkpoint
from .coordinates import Coordinates
from .negatives import Negatives
from .network import Network
from .settings import Residual
from .training import Report, Training

__all__ = ["Hybrid"]

WATCHED = 4096
"""At most this many held-out samples watch the training."""


class Hybrid(Energy):
    r"""An energy corrected by a small network: :math:`E_h = E_q / T + E_θ` (HEAT, equation 3).

    Args:
        prior: the energy to correct, fitted or not. One that is not a :class:`Prior` (a composition) is corrected
            in the joint features of all that it reads, and chains follow their Gaussian mixture.
        residual: the settings.
        seed: of the initial weights and of all sampling.

    Example:
        >>> z = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> hybrid = Hybrid(GaussianMixture(), Residual(epochs=1, hidden=8))
        >>> hybrid.fit(Features(avg=z, labels=torch.arange(300) % 2)).score(z).shape
        torch.Size([300])
    """

    name = "hybrid"
    temperature: Tensor

    def __init__(self, prior: Energy, residual: Residual | None = None, seed: int = 0) -> None:
        super().__init__()
        self.prior = prior
        self.residual = Residual() if residual is None else residual
        self.seed = seed
        self.joint: GaussianMixture | None = None
        self.network: Network | None = None
        self.log: list[dict[str, float]] = []
        self.outcome = ""
        self.title = prior.name
        self.register_buffer("temperature", None)

    @property
    def reads(self) -> tuple[str, ...]:
        own = self.mixture.reads if self.fitted else ()
        return tuple(dict.fromkeys((*self.prior.reads, *own)))

    @property
    def mixture(self) -> GaussianMixture:
        """The Gaussian mixture that proposes negatives and gives the coordinates."""
        if isinstance(self.prior, Prior):
            return self.prior.mixture
        if self.joint is None:
            raise NotFittedError("A hybrid has no coordinates before it is fitted. Call .fit(features).")
        return self.joint

    @property
    def coordinates(self) -> Coordinates:
        """Where the network and the chains live."""
        return Coordinates(self.mixture, self.residual.whiten)

    @property
    def fitted(self) -> bool:
        return self.prior.fitted and self.network is not None and self.temperature is not None

    # Fit

    def fit(
        self,
        features: Features,
        held: Features | None = None,
        contrast: Features | None = None,
        report: Report | None = None,
        checkpoint: Checkpoint | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Fit the prior if it is not, then train the residual.

        Args:
            features: ID samples.
            held: held-out ID samples, for the temperature and for watching; None watches the training samples.
            contrast: samples to be told from ID, a share of the negatives.
            report: called with (done, total, numbers) after each step.
            checkpoint: where an interrupted training goes on.
            device: where to train.
        """
        settings = self.residual
        settings.check()
        if not self.prior.fitted:
            self.prior.fit(features)
        held = features[:WATCHED] if held is None or not len(held) else held
        self.fingerprint = features.fingerprint
        if not isinstance(self.prior, Prior):
            self.joint = self.joint_mixture(features)
        self.to(device)

        spread = float(self.prior.score(held).double().std(correction=0))
        automatic = spread if spread > 0 and math.isfinite(spread) else 1.0
        dtype = self.mixture.white.dtype
        temperature = automatic if settings.temperature is None else settings.temperature
        self.temperature = torch.tensor(temperature, dtype=dtype, device=self.mixture.white.device)

        coordinates = self.coordinates
        generator = torch.Generator(self.temperature.device).manual_seed(self.seed)
        self.network = settings.network(coordinates.width, generator, dtype)
        if math.isinf(settings.lam):
            self.log, self.outcome = [], "off (lam is infinite)"
            self.network.requires_grad_(False)
            return self

        real = self.gatherer(features)
        draw = self.drawer(real, len(features), generator)
        given = None if contrast is None else self.drawer(self.gatherer(contrast), len(contrast), generator)
        guide = self.prior if isinstance(self.prior, Prior) else self.mixture
        negatives = Negatives(guide, coordinates, temperature, settings, generator, draw, given)
        watched = self.gatherer(held)(torch.arange(len(held))[:: math.ceil(len(held) / WATCHED)])
        training = Training(self.network, negatives, real, len(features), watched, settings, generator)
        training.run(report, checkpoint)
        self.log, self.outcome = [e.to_dict() for e in training.epochs], training.outcome
        self.announce()
        return self

    def joint_mixture(self, features: Features) -> GaussianMixture:
        """The mixture of all that a composition reads; the features behind the logits stand for them."""
        columns = [c for c in self.prior.reads if c != "logits"]
        if "logits" in self.prior.reads:
            columns.insert(0, "avg" if "avg" in features.available else "logits")
        return mixture_of(features, Space(tuple(dict.fromkeys(columns))))

    def gatherer(self, features: Features) -> Callable[[Tensor], Tensor]:
        """The coordinates of samples by their numbers, on the device of the network."""
        coordinates, device = self.coordinates, self.temperature.device
        features = features.only(coordinates.mixture.reads)
        missing = set(coordinates.mixture.reads) - features.available
        if missing:
            raise InputError(
                f"{', '.join(sorted(missing))} is missing from {features!r}. Extract all feature sets in the same way."
            )

        def gather(chosen: Tensor) -> Tensor:
            with torch.no_grad():
                return coordinates.of(features[chosen].to(device))

        return gather

    @staticmethod
    def drawer(gather: Callable[[Tensor], Tensor], n: int, generator: torch.Generator) -> Callable[[int], Tensor]:
        def draw(count: int) -> Tensor:
            return gather(torch.randint(n, (count,), generator=generator, device=generator.device).cpu())

        return draw

    def announce(self) -> None:
        """Say what went wrong, if anything did."""
        if self.outcome.startswith(("switched off", "diverged")):
            warnings.warn(
                f"The residual of {self.title}: {self.outcome}. A residual that is switched off leaves its prior as it "
                "is. Try more samples, a smaller lr or a larger lam, or residual=None.",
                RuntimeWarning,
                stacklevel=2,
            )

    # Energy

    def energy(self, features: Features) -> Tensor:
        prior, residual = self.parts(features)
        return torch.add(residual, prior / self.temperature)

    def parts(self, features: Features) -> tuple[Tensor, Tensor]:
        """The prior's own energy and the residual's, (n,) each."""
        if self.network is None:
            raise NotFittedError("A hybrid has no energy before it is fitted. Call .fit(features).")
        z = self.mixture.space(features, self.mixture.white.dtype)
        if self.prior is self.mixture and self.residual.whiten:
            y = self.mixture.whiten(z)
            return self.mixture.energy_at(y), self.network(y)
        return self.prior.energy(features).to(z), self.network(self.coordinates.enter(z))

    # Saving

    def validate(self) -> None:
        super().validate()
        weights = [] if self.network is None else list(self.network.parameters())
        like = {p.dtype for p in (*weights, self.temperature)} == {self.mixture.white.dtype}
        if not like or weights[0].shape[1] != self.coordinates.width:
            raise InputError(f"the network does not read {self.coordinates.width} × {self.mixture.white.dtype}")
        if self.temperature.shape != () or not 0 < float(self.temperature) < math.inf:
            raise InputError("the temperature is not a positive number")

    def facts(self) -> dict[str, Any]:
        joint = None if self.joint is None else list(self.joint.columns)
        return {"log": self.log, "outcome": self.outcome, "joint": joint}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.log, self.outcome = list(facts["log"]), str(facts["outcome"])
        if not isinstance(self.prior, Prior):
            self.joint = GaussianMixture(tuple(facts["joint"]))
        hidden, width = tensors["network.layers.0.weight"].shape
        self.residual.check()
        depth = sum(name.startswith("network.") for name in tensors) // 2
        if hidden != self.residual.hidden or (depth != self.residual.depth and not self.residual.tied):
            raise InputError(f"the network has {depth} layers of width {hidden}, its settings are {self.residual!r}")
        self.network = self.residual.network(width)
        self.network.requires_grad_(False)
