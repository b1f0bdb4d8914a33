"""ODIN: the softmax at a high temperature, of inputs moved towards the predicted class."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import Argument, InputError
from ..features import Extractor, Features, Inputs, check_same_model, frozen
from ..registry import register
from ._base import CACHE_FRIENDLY
from ._composition import compose
from ._head import logits_of
from ._inputs import IMAGES, Assessed, InputEnergy, logits_at
from ._resolution import resolution_of
from ._settings import check_positive, check_settings

__all__ = ["ODIN"]

FARTHEST = 1e6
"""Inputs are not moved farther: no model that is meant has a finite answer there."""


@register("odin", "softmax at a high temperature, of perturbed inputs")
class ODIN(InputEnergy):
    r"""The largest softmax probability at temperature :math:`T`, after a step that raises it (Liang et al., 2018).

    .. math::
        E(x) = -\max_c \operatorname{softmax}_c\left(f(x') / T\right), \qquad
        x' = x - ε \operatorname{sign}\left(-\nabla_x \log \max_c \operatorname{softmax}_c(f(x) / T)\right)

    Computed as :math:`T \log \frac{1}{C-1} \sum_{c \ne \hat c} \exp((f_c - f_{\hat c}) / T)`, the log-odds against the
    top class :math:`\hat c` in units of logits: it ranks alike, and keeps the digits that the probabilities lose at
    a high temperature. Stored features, as in a composition, are scored by their logits, without the step.

    Args:
        temperature: :math:`T`; the paper takes 1000.
        epsilon: :math:`ε`, in units of the model's input, which is normalised. The paper tunes it on OOD data,
            between 0 and 0.004; one value is fixed here.
        std: what each channel was divided by; then :math:`ε` is in units of pixels in [0, 1], as in the authors' code.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.eye(2)
        >>> odin = ODIN(epsilon=0.1).attach(model)
        >>> odin.score(torch.tensor([[3.0, 0.0], [0.5, 0.0]]))
        tensor([-3.2000, -0.7000])
    """

    rises = ("unsure",)
    no_prior = "its gradient is one of inputs, and features have none"
    stored = ("logits",)

    def __init__(
        self, temperature: float = 1000.0, epsilon: float = 0.0014, std: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.temperature, self.epsilon, self.std = temperature, epsilon, std
        self.perturbed_: bool | None = None  # whether the calibration is one of inputs
        self._warned = False

    @property
    def reads(self) -> tuple[str, ...]:
        return ("inputs",)

    def fit(self, data: Any) -> Self:
        """Nothing is learned: check the settings and the first batch, and keep the model's fingerprint."""
        check_settings(self)
        if isinstance(data, Features):
            if not len(data):
                raise InputError("ODIN cannot be fitted to no samples at all. Pass ID features.")
            self.require_logits(data)
            self.calibration, self.fingerprint = None, data.fingerprint
        else:
            self.begin(data)
            self.joined(map(self.judge, islice(self.batches(data), 1)))
        self.perturbed_ = None
        return self

    def check(self) -> None:
        check_positive("temperature", self.temperature, " The paper takes 1000.")
        if not 0 <= self.epsilon <= FARTHEST:
            raise InputError(
                f"epsilon is the size of a step, zero or more, at most {FARTHEST:g}, not {self.epsilon}. "
                "The paper takes 0.0014."
            )
        given: Any = self.std
        if given is not None and not (isinstance(given, Sequence) and given and all(map(is_positive, given))):
            raise InputError(f"std is one positive number a channel, as (0.2, 0.2, 0.2), not {self.std!r}.")

    # Inputs

    def judge(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        (extractor,) = self.extractors
        device = extractor._device()
        with torch.inference_mode(False), frozen(extractor.network, device, extractor.autocast):
            moved, logits = self.perturb(extractor, inputs.to(device))
            return self.of_logits(logits_at(extractor.network, moved)), logits

    def perturb(self, extractor: Extractor, inputs: Inputs) -> tuple[Inputs, Tensor]:
        """The inputs a step towards the predicted class, and the logits before it."""
        leaves: list[Tensor] = []

        def leaf(x: Tensor) -> Tensor:
            leaves.append(x.detach().clone().requires_grad_())
            return leaves[-1]

        with torch.enable_grad():
            logits = logits_at(extractor.network, replaced(inputs, leaf))
            if logits.shape[1] == 1 or not self.epsilon:
                return inputs, logits.detach()
            odds = self.temperature * (gaps(logits) / self.temperature).logsumexp(1)
            found = torch.autograd.grad(odds.sum(), leaves, allow_unused=True) if leaves and odds.requires_grad else ()
        if all(g is None for g in found):
            raise InputError(
                "ODIN cannot move the inputs: no gradient of the logits reaches them. Pass floating-point inputs to a "
                "model that does not stop gradients (torch.no_grad, detach), or do without the step: pass ",
                Argument("epsilon", 0),
                ".",
            )
        pairs = zip((x.detach() for x in leaves), found, strict=True)
        moved = iter([x if g is None else x - self.step(x) * g.sign() for x, g in pairs])
        return replaced(inputs, lambda _: next(moved)), logits.detach()

    def step(self, x: Tensor) -> Tensor | float:
        if self.std is None:
            return self.epsilon
        if x.ndim < 2 or len(self.std) not in (1, x.shape[1]):
            raise InputError(
                f"std has {len(self.std)} numbers for inputs of shape {tuple(x.shape)}. Pass one for each channel."
            )
        return self.epsilon / x.new_tensor(tuple(self.std)).reshape(-1, *[1] * (x.ndim - 2))

    # Logits

    def of_logits(self, logits: Tensor) -> Tensor:
        """The energy, (n,), of logits (n, C) at the temperature; zero where there is one class."""
        return compose(gaps(logits), 1 / self.temperature) if logits.shape[1] > 1 else torch.zeros_like(logits[:, 0])

    def energy(self, features: Features) -> Tensor:
        return self.of_logits(logits_of(features))

    def require_logits(self, features: Features) -> None:
        """Refuse features without logits; that the step is missing is said once."""
        if "logits" not in features.available:
            raise InputError(
                f"ODIN reads inputs or, without the input perturbation, logits; there are none in {features!r}. Pass a "
                "loader to a model that is attached, or features with logits or a head."
            )
        if not self._warned:
            self._warned = True
            warnings.warn(
                "ODIN scores stored features without the input perturbation: its temperature alone is left. Pass a "
                "loader, with the model attached, for the whole method.",
                stacklevel=3,
            )

    def assess(self, data: Any, batch_size: int = IMAGES, kept: list[Inputs] | None = None) -> Assessed:
        whole = not isinstance(data, Features)
        if self.calibrated and self.perturbed_ is not None and self.perturbed_ != whole:
            raise InputError(
                f"ODIN was calibrated {'with' if self.perturbed_ else 'without'} the input perturbation, and its "
                f"scores of {'inputs' if whole else 'features'} do not compare. Pass "
                f"{'inputs' if self.perturbed_ else 'features'}, or calibrate it again."
            )
        return self.assessed(data, batch_size, kept)

    def assessed(self, data: Any, batch_size: int = IMAGES, kept: list[Inputs] | None = None) -> Assessed:
        check_settings(self)
        if not isinstance(data, Features):
            return super().assess(data, batch_size, kept)
        self.require_logits(data)
        check_same_model(self.fingerprint, data.fingerprint)
        batches = data.only(("logits",)).batches(CACHE_FRIENDLY)
        return self.joined((self.energy(batch), batch.logits) for batch in batches)

    def calibrate(self, data: Any, per_class: bool = False) -> Self:
        first: list[Inputs] = []
        found = self.assessed(data, kept=first)
        if isinstance(data, Features) and len(data):
            resolution = resolution_of(lambda some: self.assessed(some).scores, data, found.scores)
        else:
            resolution = self.resolution_of(first, found.scores)
        self.calibration = self.calibration_of(found, per_class, resolution)
        self.perturbed_ = not isinstance(data, Features)
        if self.fingerprint is None:
            self.fingerprint = self.extractors[0].fingerprint if self.perturbed_ else data.fingerprint
        return self

    def stored_columns(self) -> tuple[str, ...]:
        if self.calibrated and self.perturbed_:
            raise InputError(
                "odin was calibrated on inputs, which stored features do not hold. Score it alone on a loader, or "
                "calibrate it on features, without the input perturbation."
            )
        return self.stored

    # Saving

    def facts(self) -> dict[str, Any]:
        return {"perturbed": self.perturbed_}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.perturbed_ = facts["perturbed"]

    def validate(self) -> None:
        super().validate()
        if not isinstance(self.perturbed_, bool | None):
            raise InputError(f"whether it moved the calibration's inputs is {self.perturbed_!r}")


def is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def gaps(logits: Tensor) -> Tensor:
    """How far each of the other classes is below the top one, (n, C - 1)."""
    n, classes = logits.shape
    top = logits.argmax(1, keepdim=True)
    others = torch.arange(classes - 1, device=logits.device).expand(n, -1)
    return logits.gather(1, others + (others >= top)) - logits.gather(1, top)


def replaced(inputs: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    """The inputs with ``function`` of each floating tensor; the other tensors are copied."""

    def change(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return function(value) if value.is_floating_point() else value.clone()

    return Inputs(tuple(map(change, inputs.args)), {k: change(v) for k, v in inputs.kwargs.items()})
