"""What energies of the logits and of the head have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..errors import InputError
from ..features import Features, Space, working_dtype
from ._base import CHUNK, Energy
from ._borrowing import Borrowing
from ._settings import check_settings

__all__ = [
    "HeadPrior",
    "OfLogits",
    "OfLogitsPrior",
    "check_classes",
    "check_head",
    "free_energy",
    "logits_in",
    "logits_of",
    "mean_of",
]


def free_energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    r""":math:`-T \log \sum_c \exp(f_c / T)`, (n,)."""
    return -temperature * (logits / temperature).logsumexp(1)


def logits_of(features: Features) -> Tensor:
    """The logits of one batch in the type to compute with."""
    logits = features.logits
    if logits is None:
        raise InputError(f"There are no logits in {features!r}. Pass logits=… or head=(W, b).")
    return logits.to(working_dtype(logits))


def logits_in(features: Features) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Logits and labels a chunk at a time, checked."""
    seen = 0
    for batch in features.only(("logits",)).batches(CHUNK):
        logits = logits_of(batch)
        if not torch.isfinite(logits).all():
            first = features.number_of(seen + int((~torch.isfinite(logits)).any(1).nonzero()[0]))
            raise InputError(f"The logits of sample {first} are not finite. Drop it, or extract again in float32.")
        seen += len(logits)
        yield logits, batch.labels


class OfLogits(Energy):
    """An energy of the logits alone."""

    @property
    def reads(self) -> tuple[str, ...]:
        return ("logits",)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        self.learn(features)
        return self

    def learn(self, features: Features) -> None:
        """What there is to learn of ID samples, if anything."""

    @abstractmethod
    def of_logits(self, logits: Tensor) -> Tensor:
        """The energy, (n,), of logits (n, C)."""

    def energy(self, features: Features) -> Tensor:
        return self.of_logits(logits_of(features))


class OfLogitsPrior(Borrowing):
    """An energy of the logits that a residual can correct.

    Chains live in the features that the head reads, and the gradient goes through the head. Features without a head
    have their logits for a space.
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.met_ = False  # whether it has seen features, and so knows whether there is a head
        self.register_buffer("weight", None)
        self.register_buffer("bias", None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("logits",)

    @property
    def fitted(self) -> bool:
        return self.met_ and (not self.proposals or (self.density is not None and self.density.fitted))

    @property
    def space(self) -> Space:
        return Space(("logits" if self.weight is None else "avg",), normalise=False)

    def space_of(self, tensors: dict[str, Tensor]) -> Space:
        return Space(("avg" if "weight" in tensors else "logits",), normalise=False)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        self.weight, self.bias = None, None
        avg = features[:1].avg
        if features.head is not None and avg is not None:
            self.weight, self.bias = (t.to(avg.device, working_dtype(avg)).clone() for t in features.head)
        self.borrow(features)
        self.met_ = True
        return self

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().build(facts, tensors)
        self.met_ = True

    @abstractmethod
    def of_logits(self, logits: Tensor) -> Tensor:
        """The energy, (n,), of logits (n, C)."""

    def energy(self, features: Features) -> Tensor:
        return self.of_logits(logits_of(features))

    def logits_at(self, z: Tensor) -> Tensor:
        """The logits of points of the space."""
        return z if self.weight is None else linear(z, self.weight, self.bias)

    def energy_of(self, z: Tensor) -> Tensor:
        return self.of_logits(self.logits_at(z))

    def validate(self) -> None:
        super().validate()
        if (self.weight is None) != (self.bias is None):
            raise InputError("half of the head is missing")
        if self.weight is not None and self.bias is not None:
            width = self.weight.shape[1] if self.density is None else self.density.white.shape[1]
            check_head(self.weight, self.bias, width)


class HeadPrior(Borrowing):
    """An energy of the raw features that the head reads, and of the head; a residual can correct it.

    A subclass gives :meth:`energy_of` and, where there is something to learn, :meth:`learn`.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, proposals: bool = False) -> None:
        super().__init__(proposals)
        self.register_buffer("weight", None)
        self.register_buffer("bias", None)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("avg",)

    @property
    def learns(self) -> tuple[str, ...]:
        return ("head",)

    @property
    def space(self) -> Space:
        return Space(("avg",), normalise=False)

    def fit(self, features: Features) -> Self:
        check_settings(self)
        self.begin(features)
        avg, head = features[:1].avg, features.head
        assert avg is not None
        assert head is not None
        self.weight, self.bias = (t.to(avg.device, working_dtype(avg)).clone() for t in head)
        try:
            self.learn(features)
            self.borrow(features)
        except BaseException:
            for name in self._buffers:  # half a fit is none
                self._buffers[name] = None
            raise
        return self

    def learn(self, features: Features) -> None:
        """What there is to learn of ID samples, besides the head."""

    def chunks(self, features: Features) -> Iterator[Tensor]:
        """The samples as points of the space, a chunk at a time, checked."""
        seen = 0
        for batch in features.only(self.reads).batches(CHUNK):
            z = self.space(batch)
            if not torch.isfinite(z).all():
                first = features.number_of(seen + int((~torch.isfinite(z)).any(1).nonzero()[0]))
                raise InputError(f"avg is not finite in sample {first}. Drop it, or extract again in float32.")
            seen += len(z)
            yield z

    def energy(self, features: Features) -> Tensor:
        z = self.space(features, self.weight.dtype)
        self.check_width(z, self.weight.shape[1])
        return self.energy_of(z)

    def logits_at(self, z: Tensor) -> Tensor:
        """The logits of points of the space."""
        return linear(z, self.weight, self.bias)

    def validate(self) -> None:
        super().validate()
        check_head(self.weight, self.bias, self.weight.shape[-1])
        if self.density is not None and self.density.white.shape[1] != self.weight.shape[1]:
            raise InputError("the mixture and the head read features of different widths")


def check_head(weight: Tensor, bias: Tensor, width: int) -> None:
    """Refuse a head whose parts do not fit together."""
    like = weight.dtype == bias.dtype and weight.is_floating_point()
    if not like or weight.shape != (len(bias), width) or not weight.numel():
        raise InputError(f"the head has the shapes {tuple(weight.shape)} and {tuple(bias.shape)}")
    if not (weight.isfinite().all() and bias.isfinite().all()):
        raise InputError("the head is not finite")


def check_classes(energy: OfLogits, logits: Tensor, classes: int) -> None:
    """Refuse logits of another classifier."""
    if logits.shape[1] != classes:
        raise InputError(
            f"There are logits of {logits.shape[1]} classes, and {type(energy).__name__} was fitted to {classes}. "
            "Pass logits of the same classifier."
        )


def mean_of(chunks: Iterable[Tensor]) -> Tensor:
    """The mean of all rows, (d,), in float64, a chunk at a time."""
    total, n = torch.zeros(()).double(), 0
    for z in chunks:
        total, n = total.to(z.device) + z.sum(0, dtype=torch.float64), n + len(z)
    return total / n
