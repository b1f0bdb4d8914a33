"""Energies that read more than features: a model's inputs, its maps, or several models."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError, NotFittedError
from ..features import Extractor, Features, Inputs, called, check_order, outputs_of, tensors_of, unpack, working_dtype
from ._base import Energy, alike
from ._calibration import Calibration
from ._resolution import least_resolution

__all__ = ["Assessed", "InputEnergy", "columns_of", "logits_at"]

ALONE, MARGIN = 8, 8.0
"""So many samples tell how much a score moves with its batch; the resolution is so many times that."""
IMAGES = 64
"""Of a plain tensor, so many samples go through a model at a time."""


class Assessed(NamedTuple):
    """Scores, and the predicted class of each sample among ``width``; None where the model has no logits."""

    scores: Tensor
    classes: Tensor | None
    width: int


class InputEnergy(Energy):
    """An energy of what goes into a model, not of its stored features.

    A model is attached, not owned: it is neither moved, nor changed, nor saved. Its fingerprint is kept, and another
    model is refused. A subclass gives :meth:`fit` and :meth:`judge`.

    Data is a loader (any iterable of batches: images, ``(images, labels)``, dictionaries), one such pair or
    dictionary, or a tensor of inputs. One batch is held at a time.
    """

    stored: ClassVar[tuple[str, ...]] = ()
    """The columns of stored features that it can do with instead, if any."""

    def __init__(self) -> None:
        super().__init__()
        self.extractors: tuple[Extractor, ...] = ()

    # What a subclass gives

    @abstractmethod
    def fit(self, data: Any) -> Self:
        """Learn from ID inputs; returns self."""

    @abstractmethod
    def judge(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        """The energy, (n,), and the logits, (n, C), of one batch of inputs."""

    # Models

    def attach(self, *models: nn.Module | Extractor) -> Self:
        """Say which model is read; once fitted, it must be the one that it was fitted with. Returns self."""
        self.check_count(len(models))
        extractors = tuple(map(self.hook, models))
        self.check_models([extractor.compute_fingerprint() for extractor in extractors])
        self.extractors = extractors
        return self

    def hook(self, model: nn.Module | Extractor) -> Extractor:
        """What reads a model."""
        return model if isinstance(model, Extractor) else Extractor(model)

    def check_count(self, count: int) -> None:
        if count != 1:
            raise InputError(f"{type(self).__name__} reads one model, not {count}. Call .attach(model).")

    @property
    def fingerprints(self) -> tuple[str | None, ...]:
        """Of the models that it was fitted with; empty before."""
        return () if self.fingerprint is None else (self.fingerprint,)

    def remember(self, fingerprints: Sequence[str | None]) -> None:
        """Keep the fingerprints of the models."""
        (self.fingerprint,) = fingerprints

    def check_models(self, found: Sequence[str | None]) -> None:
        """Refuse other models than those known, in any order; unknown ones (None) pass."""
        known, title = self.fingerprints, type(self).__name__
        if known and len(known) != len(found):
            raise InputError(f"{title} was fitted with {len(known)} models, not {len(found)}. Pass as many.")
        if not known or None in known or None in found:
            return
        strange = sorted(map(str, found)), sorted(map(str, known))
        if strange[0] != strange[1]:
            one, other = next(pair for pair in zip(*strange, strict=True) if pair[0] != pair[1])
            raise InputError(
                f"{title} was fitted with another model (fingerprints {one[:12]} and {other[:12]}). Attach the one "
                "that it was fitted with, its weights unchanged and in an Extractor with the same layers and head, "
                "or fit a new one."
            )

    def require_models(self) -> None:
        if not self.extractors:
            raise NotFittedError(
                f"{type(self).__name__} reads {self.reads[0]}, and no model is attached. Call .attach(model)"
                f"{' with the one that it was fitted with' if self.fingerprints else ''}; models are not saved."
            )
        self.check_models([extractor.fingerprint for extractor in self.extractors])

    def begin(self, data: Any) -> None:
        """What every fit starts with: a model is there; a calibration of what was learned before is void."""
        self.refuse_features(data)
        if not self.extractors:
            self.require_models()
        self.calibration = None
        self.remember([extractor.compute_fingerprint() for extractor in self.extractors])
        self.seen_ = self.extractors[0].seen(data)

    # Data

    def batches(self, data: Any, size: int = IMAGES) -> Iterator[Inputs]:
        """The inputs of a model a batch at a time; a loader has batches of its own."""
        for batch in self.chunks(data, size):
            yield unpack(batch, self.extractors[0].network).inputs

    def chunks(self, data: Any, size: int) -> Iterable[Any]:
        if isinstance(data, Tensor | np.ndarray):
            return (data[i : i + size] for i in range(0, len(data), size))
        if isinstance(data, Mapping | tuple):
            return [data]
        if isinstance(data, str | bytes) or not isinstance(data, Iterable):
            raise InputError(
                f"{type(self).__name__} reads {self.reads[0]}, and cannot run a model on {type(data).__name__}. Pass a "
                "loader, such as DataLoader(dataset, batch_size=64), or a tensor of inputs."
            )
        check_order(data)
        return nonempty(data)

    def refuse_features(self, data: Any) -> None:
        if isinstance(data, Features):
            raise InputError(self.refusal)

    @property
    def refusal(self) -> str:
        """Why stored features will not do."""
        return (
            f"{self.name} reads {self.reads[0]}, which stored features do not hold. Score it alone, on a loader: "
            f"create({self.name!r}).attach(model).fit(loader).score(loader)."
        )

    def stored_columns(self) -> tuple[str, ...]:
        """What it reads of stored features, as in a composition; an error where it can do nothing with them."""
        if not self.stored:
            raise InputError(self.refusal)
        return self.stored

    def energy(self, features: Features) -> Tensor:
        raise InputError(self.refusal)

    def forward(self, *inputs: Any) -> Tensor:
        """The energy of one batch of the model's inputs, (n,)."""
        self.require_models()
        return self.judge(Inputs(inputs, {}))[0]

    # Scores

    def score(self, data: Any, batch_size: int = IMAGES) -> Any:
        """How unusual each sample is, (n,), on the CPU; higher = more out-of-distribution."""
        return alike(self.assess(data, batch_size).scores, data)

    def assess(self, data: Any, batch_size: int = IMAGES, kept: list[Inputs] | None = None) -> Assessed:
        """Scores and predicted classes, in one pass over the data; the first batch goes into ``kept``."""
        self.refuse_features(data)
        self.require_fitted()
        self.require_models()

        def judged() -> Iterator[tuple[Tensor, Tensor | None]]:
            for inputs in self.batches(data, batch_size):
                if kept is not None and not kept:
                    kept.append(inputs)
                yield self.judge(inputs)

        return self.joined(judged())

    @torch.no_grad()
    def joined(self, judged: Iterable[tuple[Tensor, Tensor | None]]) -> Assessed:
        """All batches, checked, on the CPU."""
        scores, classes, width, seen = [torch.empty(0)], [torch.empty(0, dtype=torch.long)], 0, 0
        for energy, logits in judged:
            if not torch.isfinite(energy).all():
                bad = ~torch.isfinite(energy)
                raise InputError(
                    f"{int(bad.sum())} samples of a batch have no finite score, the first is sample "
                    f"{seen + int(bad.nonzero()[0])}. Check these inputs for NaN, and the model without autocast."
                )
            seen += len(energy)
            scores.append(energy.cpu())
            if logits is not None:
                classes.append(logits.argmax(1).cpu())
                width = logits.shape[1]
        return Assessed(torch.cat(scores[1:] or scores), torch.cat(classes) if width else None, width)

    # Calibration

    def calibrate(self, data: Any, per_class: bool = False) -> Self:
        """Keep the scores of held-out ID samples, which the model was **not** trained on; returns self."""
        first: list[Inputs] = []
        found = self.assess(data, kept=first)
        self.calibration = self.calibration_of(found, per_class, self.resolution_of(first, found.scores))
        return self

    def calibration_of(self, found: Assessed, per_class: bool, resolution: Tensor) -> Calibration:
        if not len(found.scores):
            raise InputError("Calibration needs at least one sample; there are none.")
        if not per_class:
            return Calibration(found.scores, resolution=resolution)
        return Calibration.by_class(found.scores, found.classes, found.width, resolution)

    def resolution_of(self, first: Sequence[Inputs], scores: Tensor) -> Tensor:
        """How much scores move with the batch: some of the first samples, from the lowest score to the highest, are
        scored again, one by one."""
        moved, start = 0.0, 0
        for inputs in first:
            order = scores[start : start + len(inputs)].argsort(stable=True)
            for i in order[torch.linspace(0, len(order) - 1, min(ALONE, len(order))).round().long()].tolist():
                alone = self.judge(inputs.rows(slice(i, i + 1)))[0]
                moved = max(moved, abs(float(alone.cpu()[0] - scores[start + i])))
            start += len(inputs)
        return least_resolution(scores).clamp(min=MARGIN * moved) if len(scores) else scores

    def p_value(self, data: Any) -> Any:
        """The share of ID samples at least as unusual, ``(1 + #{calibration >= score}) / (n + 1)``, float64."""
        calibration = self.require_calibrated()
        found = self.assess(data)
        p_values = self.p_values_of(found.scores, found.classes if calibration.per_class else None)
        return alike(p_values, data)

    def require_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(
                f"{type(self).__name__} has not been fitted. Call .attach(model).fit(loader) with ID data, or load a "
                "saved one."
            )


def columns_of(energy: Energy) -> tuple[str, ...]:
    """What an energy reads of stored features; an error where they do not hold it."""
    return energy.stored_columns() if isinstance(energy, InputEnergy) else energy.reads


def nonempty(loader: Iterable[Any]) -> Iterator[Any]:
    number = -1
    for number, batch in enumerate(loader):  # noqa: B007
        yield batch
    if number < 0:
        raise InputError("The loader yields no batches. Check its data set; a generator can be used only once.")


def logits_at(model: nn.Module, inputs: Inputs) -> Tensor:
    """The model's logits, (n, C), in the type to compute with; the inputs are safe from the model."""
    n = len(inputs)
    own = Inputs(tuple(map(copied, inputs.args)), {k: copied(v) for k, v in inputs.kwargs.items()})
    output = called(model, own)
    found = {name: value for name, value in outputs_of(output, n).items() if value.ndim > 1}
    if not found:
        raise InputError(
            f"The model returns no logits: no tensor of {n} rows. Wrap it in a module whose forward returns them."
        )
    flat = [value for value in found.values() if value.numel() == n * value.shape[1]]
    wanted = (flat or list(found.values()))[0]
    same = (t for t in tensors_of(output) if t.data_ptr() == wanted.data_ptr() and t.shape == wanted.shape)
    logits = next(same, getattr(output, "logits", wanted)).flatten(1)
    return logits.to(working_dtype(logits))


def copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
