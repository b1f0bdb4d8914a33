"""A prior and its residual: the corrected energy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Self

import torch
from torch import Tensor

from ..energies import (
    CHUNK,
    Energy,
    GaussianMixture,
    Prior,
    check_kinds,
    check_positive,
    check_settings,
    log_of,
    mixture_of,
    product_of,
)
from ..errors import InputError, NotFittedError
from ..features import Features, Space
from ..progress import Report
from ..registry import storable
from ._checkpoint import Checkpoint
from ._coordinates import Coordinates
from ._negatives import Negatives
from ._network import Network, shapes_of
from ._settings import Residual
from ._training import Epoch, Training

__all__ = ["Hybrid", "drawer", "gatherer"]

WATCHED = 4096
"""At most this many held-out samples watch the training."""


@storable("hybrid")
class Hybrid(Energy):
    r"""An energy corrected by a small network: :math:`E_h = E_q / T + E_θ` (HEAT, equation 3).

    Args:
        prior: the energy to correct, fitted or not. One that is not a :class:`Prior` (a composition) is corrected
            in the joint features of all that it reads.
        residual: the settings.
        seed: of the initial weights and of all sampling.
        columns: the features that the network reads, side by side and normalised; None is the prior's own space.
            Chains in other features than the prior's own follow their Gaussian mixture.

    Example:
        >>> z = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> hybrid = Hybrid(GaussianMixture(), Residual(epochs=1, hidden=8))
        >>> hybrid.fit(Features(avg=z, labels=torch.arange(300) % 2)).score(z).shape
        torch.Size([300])
    """

    temperature: Tensor

    def __init__(
        self,
        prior: Energy,
        residual: Residual | None = None,
        seed: int = 0,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.prior = prior
        self.residual = Residual() if residual is None else residual
        self.seed, self.columns = seed, columns
        self.space_: Space | None = None
        self.network: Network | None = None
        self.log_: list[dict[str, float]] = []
        self.outcome_ = ""
        self.title = prior.name
        self.register_buffer("temperature", None)

    @property
    def reads(self) -> tuple[str, ...]:
        own = () if self.space_ is None else self.space_.columns
        return tuple(dict.fromkeys((*self.prior.reads, *own)))

    @property
    def learns(self) -> tuple[str, ...]:
        return () if self.prior.fitted else self.prior.learns

    @property
    def fitted(self) -> bool:
        return self.prior.fitted and self.network is not None and self.temperature is not None

    # Fit

    def check(self) -> None:
        self.residual.check()
        if self.columns is not None:
            Space(tuple(self.columns))

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
        check_settings(self)
        if not self.prior.fitted:
            self.prior.fit(features)
        self.begin(features)
        training = self.prepare(features, held, contrast, device)
        if math.isinf(self.residual.lam):
            self.log_, self.outcome_ = [], "off (lam is infinite)"
        else:
            training.run(report, checkpoint)
            self.log_, self.outcome_ = [e.to_dict() for e in training.epochs], training.outcome
            if not training.useless:
                training.network.shift(self.residual.odds)
            self.announce()
        self.network = training.negatives.coordinates.absorb(training.network).requires_grad_(False)
        return self

    def prepare(
        self,
        features: Features,
        held: Features | None = None,
        contrast: Features | None = None,
        device: torch.device | str | None = None,
    ) -> Training:
        """The training of the residual of a fitted prior, before its first step; the arguments are those of ``fit``."""
        settings = self.residual
        held = features[:WATCHED] if held is None or not len(held) else held
        mixture = self.mixture_for(features).to(device)
        self.to(device)
        self.space_ = mixture.space

        dtype = mixture.white.dtype
        temperature = self.spread(held) if settings.temperature is None else settings.temperature
        self.temperature = torch.tensor(temperature, dtype=dtype, device=mixture.white.device)

        coordinates = Coordinates(mixture, settings.whiten)
        generator = torch.Generator(self.temperature.device).manual_seed(self.seed)
        self.network = settings.network(coordinates.width, generator, dtype)
        real = gatherer(features, coordinates)
        given, unseen = (None, None) if contrast is None else self.contrasts(contrast, coordinates, generator)
        guide = self.prior if isinstance(self.prior, Prior) and self.prior.space == mixture.space else mixture
        data = drawer(real, len(features), generator)
        negatives = Negatives(guide, coordinates, temperature, settings, generator, data, given, unseen)
        watched = gatherer(held, coordinates)(torch.arange(len(held))[:: math.ceil(len(held) / WATCHED)])
        return Training(self.network, negatives, real, len(features), watched, settings, generator)

    def mixture_for(self, features: Features) -> GaussianMixture:
        """The Gaussian mixture that proposes negatives, in the features that the network reads."""
        if isinstance(self.prior, Prior):
            if self.columns is None or tuple(self.columns) == self.prior.space.columns:
                return self.prior.sampler(features)
            return mixture_of(features, Space(tuple(self.columns)))
        columns = [c for c in self.prior.reads if c != "logits"]
        if "logits" in self.prior.reads:  # the features behind the logits stand for them
            columns.insert(0, "avg" if "avg" in features.available else "logits")
        return layered_mixture(features, columns, mixtures_in(self.prior))

    def contrasts(
        self, contrast: Features, coordinates: Coordinates, generator: torch.Generator
    ) -> tuple[Callable[[int], Tensor], Callable[[int], Tensor]]:
        """Draws of the contrast samples to train with, and of a tenth that only watches, if there are enough."""
        check_contrast(contrast, coordinates.mixture.space)
        count = len(contrast)
        aside = count // 10
        order = torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))
        parts = [contrast.subset(rows.sort().values) for rows in (order[aside:], order[:aside] if aside else order)]
        train, watch = (drawer(gatherer(part, coordinates), len(part), generator) for part in parts)
        return train, watch

    def spread(self, held: Features) -> float:
        """The standard deviation of the prior's energy."""
        spread = float(self.prior.score(held).double().std(correction=0))
        return spread if spread > 0 and math.isfinite(spread) else 1.0

    def announce(self) -> None:
        """Say what went wrong, if anything did."""
        if self.outcome_.startswith(("switched off", "diverged")):
            warnings.warn(
                f"The residual of {self.title}: {self.outcome_}. A residual that is switched off leaves its prior as "
                "it is. Try more samples, a smaller lr or a larger lam, or go without residuals.",
                RuntimeWarning,
                stacklevel=2,
            )

    # Energy

    def energy(self, features: Features) -> Tensor:
        prior, residual = self.parts(features)
        return torch.add(residual, prior / self.temperature)

    def parts(self, features: Features) -> tuple[Tensor, Tensor]:
        """The prior's own energy and the residual's, (n,) each."""
        z, network = self.points(features)
        prior = self.prior
        if isinstance(prior, GaussianMixture) and prior.space == self.space_:
            energy = prior.energy_of(z)
        else:
            energy = prior.energy(features).to(z)
        return energy, network(z)

    def correction(self, features: Features) -> Tensor:
        """The residual's energy alone, (n,)."""
        z, network = self.points(features)
        return network(z)

    def points(self, features: Features) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The samples as points of the residual's space, and the network that reads them."""
        if self.network is None or self.space_ is None:
            raise NotFittedError("A hybrid has no energy before it is fitted. Call .fit(features).")
        z = self.space_(features, self.temperature.dtype)
        self.check_width(z, self.width, self.space_.columns)
        return z, self.network

    @property
    def width(self) -> int:
        """How many features the network reads."""
        return 0 if self.network is None else int(self.network.layers[0].weight.shape[1])  # type: ignore[index]

    # Saving

    def validate(self) -> None:
        super().validate()
        weights = [] if self.network is None else list(self.network.parameters())
        if {p.dtype for p in weights} != {self.temperature.dtype}:
            raise InputError(f"the network's weights are not all {self.temperature.dtype}")
        if self.temperature.shape != ():
            raise InputError(f"the temperature has the shape {tuple(self.temperature.shape)}")
        check_positive("temperature", float(self.temperature))

    def facts(self) -> dict[str, Any]:
        space = self.space_ or Space()
        reads = {"columns": list(space.columns), "normalise": space.normalise, "width": self.width}
        return {"log": self.log_, "outcome": self.outcome_, "reads": reads}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.log_, self.outcome_ = log_of(facts["log"], (f.name for f in fields(Epoch))), str(facts["outcome"])
        reads = facts["reads"]
        check_kinds(Space, {name: reads[name] for name in ("columns", "normalise")})
        self.space_ = Space(tuple(reads["columns"]), reads["normalise"])
        self.residual.check()
        settings, width = self.residual, tensors["network.layers.0.weight"].shape[1]
        if width != reads["width"]:
            raise InputError(f"the network reads {width} features where there are {reads['width']}")
        asked = shapes_of(width, settings.hidden, settings.depth, settings.tied)
        brought = {n.removeprefix("network."): tuple(t.shape) for n, t in tensors.items() if n.startswith("network.")}
        if asked != brought:  # before anything of that size is made
            raise InputError(f"its weights are not those of a network of {settings!r}")
        self.network = settings.network(width)
        self.network.requires_grad_(False)


def mixtures_in(energy: Energy) -> list[GaussianMixture]:
    """The Gaussian mixtures that an energy is made of, itself among them."""
    return [m for m in energy.modules() if isinstance(m, GaussianMixture) and m.fitted and m.normalise]


def layered_mixture(
    features: Features, columns: Sequence[str], fitted: Sequence[GaussianMixture] = ()
) -> GaussianMixture:
    """A mixture of all columns whose layers are independent given the class, of those that are fitted where it can be.

    Where the labels do not tell the components (a class without samples), it is one mixture of all columns: clusters
    of different layers have nothing to do with each other.
    """
    layers: dict[str, list[str]] = {}
    for column in dict.fromkeys(columns):
        layers.setdefault(column.partition("@")[2], []).append(column)
    everything = Space(tuple(column for group in layers.values() for column in group))
    if len(layers) == 1 or features.labels is None:
        return mixture_of(features, everything)
    classes = features.classes or 1
    known = {tuple(m.columns): m for m in reversed(fitted) if m.clusters is None and len(m.nu) == classes}
    parts = [known.get(tuple(group)) or mixture_of(features, Space(tuple(group))) for group in layers.values()]
    return mixture_of(features, everything) if any(p.clusters is not None for p in parts) else product_of(parts)


def check_contrast(contrast: Features, space: Space) -> None:
    """Refuse contrast that is not finite, before it spoils a training."""
    missing, start = set(space.columns) - contrast.available, 0
    for batch in () if missing else contrast.only(space.columns).batches(CHUNK):
        bad = ~torch.isfinite(space(batch)).all(1)
        if bad.any():
            first = contrast.number_of(start + int(bad.nonzero()[0]))
            raise InputError(
                f"The contrast is not finite (NaN or infinite) in its sample {first}. Drop such samples from contrast, "
                "or extract it again in float32."
            )
        start += len(batch)


def gatherer(features: Features, coordinates: Coordinates) -> Callable[[Tensor], Tensor]:
    """The coordinates of samples by their numbers, on the device of the mixture."""
    columns, device = coordinates.mixture.reads, coordinates.mixture.white.device
    missing = set(columns) - features.available
    if missing:
        raise InputError(
            f"{', '.join(sorted(missing))} is missing from {features!r}. Extract all feature sets in the same way."
        )
    features = features.only(columns)

    def gather(chosen: Tensor) -> Tensor:
        with torch.no_grad():
            return coordinates.of(features[chosen].to(device))

    return gather


def drawer(gather: Callable[[Tensor], Tensor], n: int, generator: torch.Generator) -> Callable[[int], Tensor]:
    """Random samples, with replacement."""

    def draw(count: int) -> Tensor:
        return gather(torch.randint(n, (count,), generator=generator, device=generator.device).cpu())

    return draw
