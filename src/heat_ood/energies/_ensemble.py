"""Several models as one detector: the mean of their energies or of their predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Self, TypeGuard

import torch
from torch import Tensor

from ..errors import InputError, NotFittedError
from ..features import Extractor, Features, Inputs, frozen
from ..registry import register
from ._base import CACHE_FRIENDLY
from ._head import free_energy, logits_of
from ._inputs import IMAGES, Assessed, InputEnergy, logits_at
from ._logits import MaximumSoftmax
from ._settings import check_settings

__all__ = ["Ensemble"]

KINDS = ("energy", "softmax")


@register("ensemble", "mean energy or softmax of several models")
class Ensemble(InputEnergy):
    r"""Classifiers trained from different seeds (Lakshminarayanan et al., 2017), with logits :math:`f^m`.

    .. math::
        E(x) = -\frac1M \sum_m \log \sum_c \exp f^m_c(x) \quad\text{or}\quad
        E(x) = -\max_c \frac1M \sum_m \operatorname{softmax}_c f^m(x)

    The paper averages predictions, ``softmax``; it is computed as the log-odds against the top class, which rank
    alike. The default averages the free energies, which for each member are the stronger detector.

    Args:
        kind: ``energy``, the mean free energy, or ``softmax``, the largest mean probability.

    Besides a loader, with the models attached, it takes a list of :class:`Features`, one a model.

    Example:
        >>> parts = [Features(logits=torch.tensor([[2.0, 0.0]])), Features(logits=torch.tensor([[0.0, 2.0]]))]
        >>> Ensemble().fit(parts).score(parts)
        tensor([-2.1269])
        >>> Ensemble("softmax").fit(parts).score(parts)
        tensor([0.])
    """

    no_prior = "it reads several models, and a residual the features of one"

    def __init__(self, kind: str = "energy") -> None:
        super().__init__()
        self.kind = kind
        self.members_: tuple[str | None, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return ("models",)

    @property
    def fitted(self) -> bool:
        return bool(self.members_)

    # Models

    @property
    def fingerprints(self) -> tuple[str | None, ...]:
        return self.members_

    def remember(self, fingerprints: Sequence[str | None]) -> None:
        self.members_ = tuple(fingerprints)

    def check_count(self, count: int) -> None:
        if count < 2:
            raise InputError(f"An ensemble has at least two models, not {count}. Pass all its members at once.")

    @property
    def refusal(self) -> str:
        return (
            "ensemble reads models, and stored features are those of one. Score it alone: on a list of features, one "
            "a model, or on a loader, with the models attached."
        )

    def fit(self, data: Any) -> Self:
        """Nothing is learned: check the settings and the first batch, and keep the models' fingerprints."""
        check_settings(self)
        if is_features(data):
            self.check_count(len(data))
            check_sizes(data)
            self.joined(map(self.of_logits, logits_of_each([part[:1] for part in data])))
            self.calibration = None
            self.remember([part.fingerprint for part in data])
        else:
            self.begin(data)
            self.joined(map(self.judge, islice(self.batches(data), 1)))
        return self

    def check(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind is {' or '.join(map(repr, KINDS))}, not {self.kind!r}.")

    # Scores

    def judge(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        return self.of_logits([member_logits(extractor, inputs) for extractor in self.extractors])

    def of_logits(self, each: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The energy, (n,), and the logarithm of the mean probabilities, (n, C)."""
        widths = [logits.shape[1] for logits in each]
        if len(set(widths)) > 1:
            raise InputError(f"The members have {', '.join(map(str, widths))} classes. They must be of the same task.")
        logits = torch.stack([part.to(each[0]) for part in each])
        mean = logits.log_softmax(2).logsumexp(0)
        if self.kind == "softmax":
            return MaximumSoftmax().of_logits(mean), mean
        return torch.stack([free_energy(part) for part in logits]).mean(0), mean

    def assess(self, data: Any, batch_size: int = IMAGES, kept: list[Inputs] | None = None) -> Assessed:
        if not is_features(data):
            return super().assess(data, batch_size, kept)
        self.require_fitted()
        check_sizes(data)
        self.check_models([part.fingerprint for part in data])
        return self.joined(map(self.of_logits, logits_of_each(data)))

    def require_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(
                "Ensemble has not been fitted. Call .attach(model1, model2, …).fit(loader) with ID data, or load a "
                "saved one."
            )

    # Saving

    def facts(self) -> dict[str, Any]:
        return {"members": list(self.members_)}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.members_ = tuple(facts["members"])

    def validate(self) -> None:
        super().validate()
        if len(self.members_) < 2 or not all(isinstance(member, str | None) for member in self.members_):
            raise InputError(f"its members are {self.members_!r}")


def is_features(data: Any) -> TypeGuard[Sequence[Features]]:
    """Whether data is one feature set a model."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(part, Features) for part in data)


def check_sizes(parts: Sequence[Features]) -> None:
    sizes = [len(part) for part in parts]
    if len(set(sizes)) > 1 or not sizes[0]:
        raise InputError(
            f"The members' features are of {', '.join(map(str, sizes))} samples. Pass the same samples for each."
        )


def logits_of_each(parts: Sequence[Features]) -> Iterator[list[Tensor]]:
    """The logits of all members, a batch at a time."""
    for batches in zip(*(part.only(("logits",)).batches(CACHE_FRIENDLY) for part in parts), strict=True):
        yield [logits_of(batch) for batch in batches]


def member_logits(extractor: Extractor, inputs: Inputs) -> Tensor:
    device = extractor._device()
    with frozen(extractor.network, device, extractor.autocast):
        return logits_at(extractor.network, inputs.to(device))
