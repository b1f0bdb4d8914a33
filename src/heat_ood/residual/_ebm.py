"""The fully data-driven energy-based model, without a prior."""

from __future__ import annotations

import warnings
from dataclasses import asdict, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..energies import Flat, check_kinds, check_settings, log_of
from ..errors import InputError
from ..features import Features, Space
from ..progress import Report, progress_bars
from ..registry import register
from ._checkpoint import Checkpoint
from ._coordinates import Coordinates
from ._denoising import Denoised, Denoising, DenoisingTraining
from ._hybrid import WATCHED, Hybrid, gatherer
from ._network import Network
from ._settings import Residual
from ._wells import Wells, shapes_of_wells

__all__ = ["EnergyBasedModel"]

DEFAULT = Denoising()
HELD_OUT = 0.1


@register("ebm", "energy-based model without prior (HEAT, table 2)")
class EnergyBasedModel(Hybrid):
    r"""An energy learned from data alone (HEAT, table 2): :math:`E(z) = E_θ(z)`, no prior and no labels.

    By default it learns to tell from noisy samples what the noise was, which makes it the log density of the data
    smoothed by that noise (``Denoising``): it needs no negatives. A tenth of the samples watches. With a
    :class:`Residual` it is trained as a residual of HEAT is, against samples of one widened Gaussian of all ID
    samples, moved by Langevin chains where ``steps`` says so, as in the paper; that knows nothing far from its
    negatives.

    Args:
        columns: the features that it reads.
        normalise: put each sample on the unit sphere first.
        residual: how the network is trained.
        seed: of the initial weights and of all sampling.

    Example:
        >>> z = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> quick = Denoising(epochs=1, wells=8)
        >>> EnergyBasedModel(residual=quick).fit(Features(avg=z)).score(z).shape
        torch.Size([300])
    """

    residual: Residual | Denoising  # type: ignore[assignment]  # what has no prior can be trained without negatives
    network: Network | Wells | None  # type: ignore[assignment]
    trains = True
    no_prior = "it is a network already, trained as a residual is"

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        residual: Residual | Denoising = DEFAULT,
        seed: int = 0,
    ) -> None:
        super().__init__(Flat(columns, normalise), None, seed, columns)
        self.residual, self.normalise, self.title = residual, normalise, self.name

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
        """Whiten the samples, then train; ``contrast`` is for a :class:`Residual` alone.

        Args:
            features: ID samples.
            held: held-out ID samples, for watching; None takes a tenth of ``features``, or watches all of them where
                a :class:`Residual` is trained.
            contrast: samples to be told from ID, a share of the negatives.
            report: called with (done, total, numbers) after each step.
            checkpoint: where an interrupted training goes on.
            device: where to train.
        """
        with progress_bars(report is None) as bars:
            report = report or bars.add(self.name)
            if isinstance(self.residual, Residual):
                return super().fit(features, held, contrast, report, checkpoint, device)
            if contrast is not None:
                raise InputError(
                    "ebm learns by denoising, which has no negatives: contrast would be lost. Leave it out, or pass "
                    "residual=Residual()."
                )
            check_settings(self)
            return self.denoise(features, held, self.residual, report, checkpoint, device)

    def denoise(
        self,
        features: Features,
        held: Features | None,
        settings: Denoising,
        report: Report,
        checkpoint: Checkpoint | None,
        device: torch.device | str | None,
    ) -> Self:
        assert isinstance(self.prior, Flat)
        if not self.prior.fitted:
            self.prior.fit(features)
        self.begin(features)
        self.to(device)
        mixture = self.prior.mixture
        self.space_, coordinates = mixture.space, Coordinates(mixture, whiten=True)
        self.temperature = torch.ones_like(mixture.log_volume)

        generator = torch.Generator(mixture.white.device).manual_seed(self.seed)
        scale = (1 + settings.noise**2) ** -0.5
        network = Wells(coordinates.width, settings.wells, scale, generator, mixture.white.dtype)
        gather, rows = gatherer(features, coordinates), torch.arange(len(features))
        if held is None or not len(held):
            order = torch.randperm(len(features), generator=torch.Generator().manual_seed(self.seed))
            count = min(round(HELD_OUT * len(features)), WATCHED)
            rows = order[count:].sort().values
            watched = gather(order[:count].sort().values if count else rows)
        else:
            step = -(-len(held) // WATCHED)
            watched = gatherer(held, coordinates)(torch.arange(len(held))[::step])
        training = DenoisingTraining(network, lambda i: gather(rows[i]), len(rows), watched, settings, generator)
        training.run(report, checkpoint)
        self.log_, self.outcome_ = [asdict(epoch) for epoch in training.epochs], training.outcome
        self.announce()
        for layer in network.layers:
            assert isinstance(layer, nn.Linear)
            coordinates.absorb_into(layer)
        self.network = network.requires_grad_(False)
        return self

    def announce(self) -> None:
        if isinstance(self.residual, Residual):
            super().announce()
        elif self.outcome_.startswith("diverged"):
            warnings.warn(
                f"The energy-based model {self.outcome_}. It keeps the best epoch before, or its initial weights. Try "
                "a smaller lr: create('ebm', residual=Denoising(lr=…)).",
                RuntimeWarning,
                stacklevel=2,
            )

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if isinstance(self.residual, Residual):
            super().build(facts, tensors)
            return
        self.residual.check()
        self.log_, self.outcome_ = log_of(facts["log"], (f.name for f in fields(Denoised))), str(facts["outcome"])
        reads = facts["reads"]
        check_kinds(Space, {name: reads[name] for name in ("columns", "normalise")})
        self.space_ = Space(tuple(reads["columns"]), reads["normalise"])
        width, inputs = tensors["network.layers.0.weight"].shape
        if inputs != reads["width"]:
            raise InputError(f"the network reads {inputs} features where there are {reads['width']}")
        asked = shapes_of_wells(inputs, width, self.residual.wells)
        brought = {n.removeprefix("network."): tuple(t.shape) for n, t in tensors.items() if n.startswith("network.")}
        if asked != brought:  # before anything of that size is made
            raise InputError(f"its weights are not those of a network of {self.residual!r}")
        self.network = Wells(inputs, self.residual.wells, outputs=width).requires_grad_(False)
