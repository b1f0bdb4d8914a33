"""Energies of the classifier's own output: the free energy and the softmax probability."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from ..errors import InputError
from ..features import Features, Space
from ..features.spaces import working_dtype
from .base import Energy, Prior
from .gmm import GaussianMixture, mixture_of

__all__ = ["EnergyLogits", "MaximumSoftmax"]


class EnergyLogits(Prior):
    r"""Free energy of the logits (Liu et al., 2020).

    .. math:: E(z) = -T \log \sum_c \exp(f_c(z) / T), \qquad f(z) = W z + b

    It has no density of its own: chains start from a Gaussian mixture of the features that the head reads, and its
    gradient goes through the head. Features without a head have their logits for a space.

    Args:
        temperature: :math:`T`; one is what the papers use.
        proposals: fit the mixture, which takes a pass over the features and is needed to propose, not to score.

    Example:
        >>> free = EnergyLogits(proposals=False).fit(Features(logits=torch.zeros(3, 2)))
        >>> free.score(torch.zeros(1, 2))
        tensor([-0.6931])
    """

    name = "energy"
    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, temperature: float = 1.0, proposals: bool = True) -> None:
        super().__init__()
        self.temperature, self.proposals = temperature, proposals
        self.density: GaussianMixture | None = None
        self.register_buffer("weight", None)
        self.register_buffer("bias", None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("logits",)

    @property
    def fitted(self) -> bool:
        return not self.proposals or (self.density is not None and self.density.fitted)

    @property
    def space(self) -> Space:
        return Space(("logits" if self.weight is None else "avg",), normalise=False)

    def fit(self, features: Features) -> Self:
        if self.temperature <= 0:
            raise InputError(f"temperature must be positive, not {self.temperature}.")
        if "logits" not in features.available:
            raise InputError(
                f"The energy of the logits needs logits, and there are none in {features!r}. "
                "Pass logits=… or head=(W, b)."
            )
        self.begin(features)
        self.weight, self.bias = None, None
        avg = features[:1].avg
        if features.head is not None and avg is not None:
            self.weight, self.bias = (t.to(avg.device, working_dtype(avg)).clone() for t in features.head)
        if self.proposals:
            self.density = mixture_of(features, self.space)
        return self

    @property
    def mixture(self) -> GaussianMixture:
        if self.density is None:
            raise InputError("The energy of the logits proposes from a Gaussian mixture. Fit it with proposals=True.")
        return self.density

    def energy(self, features: Features) -> Tensor:
        logits = features.logits
        if logits is None:
            raise InputError(f"The energy of the logits needs logits, and there are none in {features!r}.")
        return self.free(logits.to(working_dtype(logits)))

    def free(self, logits: Tensor) -> Tensor:
        return -self.temperature * (logits / self.temperature).logsumexp(1)

    def logits_of(self, z: Tensor) -> Tensor:
        return z if self.weight is None else torch.nn.functional.linear(z, self.weight, self.bias)

    def energy_of(self, z: Tensor) -> Tensor:
        return self.free(self.logits_of(z))

    def gradient_of(self, z: Tensor) -> Tensor:
        p = (self.logits_of(z) / self.temperature).softmax(1)
        return -p if self.weight is None else -p @ self.weight

    def validate(self) -> None:
        super().validate()
        if not self.temperature > 0:
            raise InputError(f"the temperature is {self.temperature}")
        if (self.weight is None) != (self.bias is None):
            raise InputError("half of the head is missing")
        if self.weight is None or self.bias is None:
            return
        width = self.weight.shape[1] if self.density is None else self.density.white.shape[1]
        like = self.weight.dtype == self.bias.dtype and self.weight.is_floating_point()
        if not like or self.weight.shape != (len(self.bias), width):
            raise InputError(f"the head has the shapes {tuple(self.weight.shape)} and {tuple(self.bias.shape)}")

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if self.proposals:
            self.density = GaussianMixture(("avg" if "weight" in tensors else "logits",), normalise=False)


class MaximumSoftmax(Energy):
    r"""Minus the largest softmax probability (Hendrycks and Gimpel, 2017): :math:`E(x) = -\max_c p(c \mid x)`.

    Computed as the log of the odds against the top class, which ranks alike and does not saturate at one.

    Example:
        >>> MaximumSoftmax().score(torch.tensor([[5.0, 0.0], [0.1, 0.0]])).tolist()
        [-5.0, -0.10000000149011612]
    """

    name = "msp"

    @property
    def reads(self) -> tuple[str, ...]:
        return ("logits",)

    def fit(self, features: Features) -> Self:
        self.begin(features)
        return self

    def energy(self, features: Features) -> Tensor:
        logits = features.logits
        if logits is None:
            raise InputError(f"The softmax probability needs logits, and there are none in {features!r}.")
        logits = logits.to(working_dtype(logits))
        top = logits.argmax(1, keepdim=True)
        others = logits.scatter(1, top, -torch.inf).logsumexp(1)
        # a lone class has no odds against it; an infinite logit is not hidden
        return others.clamp(min=torch.finfo(logits.dtype).min / 2) - logits.gather(1, top).squeeze(1)
