"""A normalising flow as the residual of a Gaussian."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import HeatError, InputError, NotFittedError
from ..features import Features
from ..progress import progress_bars
from ..registry import register
from ._base import Energy
from ._gmm import GaussianMixture, check_gaussian
from ._settings import check_settings, log_of

__all__ = ["GaussianFlow"]

HELD_OUT = 0.1
WATCHED = 4096


@register("residual-flow", "normalising flow as residual of a Gaussian")
class GaussianFlow(Energy):
    r"""Negative log density of a Gaussian whose whitened deviations a flow straightens (Zisselman and Tamar, 2020).

    .. math:: E(z) = -\log \mathcal{N}(f(y); 0, I) - \log |\det f'(y)| + \log |L|,
        \qquad y = L^{-1}(z - \mu_{\hat c}), \quad \Sigma = L L^\top

    where :math:`\hat c` is the class with the nearest mean and :math:`f` a chain of affine couplings that starts at
    the identity, where the energy is half the smallest squared Mahalanobis distance. It is trained by maximum
    likelihood and keeps the epoch with the best held-out likelihood; where none is better than the Gaussian's, it is
    the Gaussian. The features are normalised, as for all Gaussians of this library; the paper takes them raw. The
    flow is zuko's: ``pip install 'heat-ood[flow]'``.

    Args:
        columns: what it reads, side by side.
        normalise: put each sample on the unit sphere first.
        couplings: how many affine couplings.
        hidden: width of the two hidden layers of each.
        epochs: passes over the training samples.
        batch: samples in a training step.
        lr: Adam's learning rate, which falls to zero along a half cosine.
        seed: of the initial weights, the split and the order.

    Example:
        >>> z = torch.rand(300, 4, generator=torch.Generator().manual_seed(0))
        >>> flow = GaussianFlow(couplings=2, hidden=8, epochs=1)
        >>> flow.fit(Features(avg=z, labels=torch.arange(300) % 2)).score(z).shape
        torch.Size([300])
    """

    rises = ("far",)
    trains = True
    no_prior = "it is a corrected Gaussian already"

    def __init__(
        self,
        columns: tuple[str, ...] = ("avg",),
        normalise: bool = True,
        couplings: int = 4,
        hidden: int = 256,
        epochs: int = 10,
        batch: int = 256,
        lr: float = 3e-4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.columns, self.normalise, self.couplings, self.hidden = columns, normalise, couplings, hidden
        self.epochs, self.batch, self.lr, self.seed = epochs, batch, lr, seed
        self.density = GaussianMixture(columns, normalise)
        self.flow: nn.Module | None = None
        self.log_: list[dict[str, float]] = []

    @property
    def reads(self) -> tuple[str, ...]:
        return self.density.reads

    @property
    def fitted(self) -> bool:
        return self.density.fitted and self.flow is not None

    # Fit

    def check(self) -> None:
        for name in ("couplings", "hidden", "epochs", "batch", "lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be positive, not {getattr(self, name)}.")
        check_gaussian(self.density.space)

    def fit(self, features: Features) -> Self:
        """Fit the Gaussian, then train the flow on what it leaves unexplained."""
        check_settings(self)
        self.begin(features)
        self.density = GaussianMixture(self.columns, self.normalise, seed=self.seed).fit(features)
        white, generator = self.density.white, torch.Generator().manual_seed(self.seed)
        flow = identity_flow(white.shape[0], self.couplings, self.hidden, self.seed).to(white)

        order = torch.randperm(len(features), generator=generator)
        count = min(round(HELD_OUT * len(features)), WATCHED)
        held, fitting = order[:count].sort().values, order[count:]
        watched = self.deviations(features[held if count else fitting[:WATCHED].sort().values])
        best, weights = nll(flow, watched), state_of(flow)
        self.log_ = [{"epoch": 0, "held_out": best}]

        optimiser = torch.optim.Adam(flow.parameters(), lr=self.lr)
        steps = math.ceil(len(fitting) / self.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.epochs * steps)
        with progress_bars() as bars:
            report = bars.add(self.name)
            for epoch in range(self.epochs):
                shuffled = fitting[torch.randperm(len(fitting), generator=generator)]
                for step, chosen in enumerate(torch.split(shuffled, self.batch)):
                    loss = -flow().log_prob(self.deviations(features[chosen.sort().values])).mean()
                    if not torch.isfinite(loss):
                        break
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()
                    nn.utils.clip_grad_norm_(flow.parameters(), 10.0 * math.sqrt(white.shape[0]))
                    optimiser.step()
                    schedule.step()
                    report(epoch * steps + step + 1, self.epochs * steps, {"held-out": self.log_[-1]["held_out"]})
                self.log_.append({"epoch": epoch + 1, "held_out": nll(flow, watched)})
                if self.log_[-1]["held_out"] < best:
                    best, weights = self.log_[-1]["held_out"], state_of(flow)
        flow.load_state_dict(weights)
        self.flow = flow.requires_grad_(False).eval()
        return self

    @torch.no_grad()
    def deviations(self, features: Features) -> Tensor:
        """The whitened deviations from the nearest class mean."""
        features = features.only(self.reads).to(self.density.white.device)
        return self.density.deviations(self.density.coordinates(features))

    # Energy

    def energy(self, features: Features) -> Tensor:
        if self.flow is None:
            raise NotFittedError("GaussianFlow has not been fitted. Call .fit(features) with ID features.")
        k = self.density.white.shape[0]
        volume = self.density.log_volume - 0.5 * k * math.log(2 * math.pi)
        density: Tensor = self.flow().log_prob(self.density.deviations(self.density.coordinates(features)))
        return volume - density

    # Saving

    def facts(self) -> dict[str, Any]:
        return {"log": self.log_, "width": 0 if self.flow is None else self.density.white.shape[0]}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.log_ = log_of(facts["log"], ("epoch", "held_out"))
        width = facts["width"]
        if width != len(tensors["density.white"]):
            raise InputError(f"the flow has {width} coordinates, the Gaussian {len(tensors['density.white'])}")
        brought = [tensor.numel() for name, tensor in tensors.items() if name.startswith("flow.")]
        least = self.couplings * self.hidden * (self.hidden + width)  # of the weights alone
        if self.couplings > len(brought) or least > sum(brought):
            raise InputError(f"{self.couplings} couplings of width {self.hidden} are more than there are weights for")
        self.flow = identity_flow(width, self.couplings, self.hidden, self.seed).requires_grad_(False)

    def validate(self) -> None:
        super().validate()
        weights = () if self.flow is None else self.flow.parameters()
        if {p.dtype for p in weights} != {self.density.white.dtype}:
            raise InputError(f"the flow's weights are not all {self.density.white.dtype}")
        assert self.flow is not None
        if not torch.isfinite(self.flow().log_prob(self.density.white.new_zeros(1, self.density.white.shape[0]))).all():
            raise InputError("the flow has no density at the origin")


def identity_flow(width: int, couplings: int, hidden: int, seed: int) -> nn.Module:
    """Affine couplings that change nothing yet."""
    try:
        from zuko.flows import NICE
    except ImportError as error:
        raise HeatError("residual-flow needs zuko. Install it: pip install 'heat-ood[flow]'.") from error
    if width < 2:
        raise InputError("residual-flow needs at least two features that vary: a coupling splits them in two.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        flow: nn.Module = NICE(width, transforms=couplings, hidden_features=(hidden, hidden), randmask=True)
    for coupling in flow.transform.transforms:  # type: ignore[union-attr]
        last = coupling.hyper[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return flow


@torch.no_grad()
def nll(flow: nn.Module, y: Tensor) -> float:
    """The mean negative log likelihood; infinite where it cannot be computed."""
    value = float(-flow().log_prob(y).mean())
    return value if math.isfinite(value) else math.inf


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
