"""The one interface: an energy says how unusual a sample is, higher = more out-of-distribution."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from os import PathLike
from typing import Any, ClassVar, Self, overload

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError, NotFittedError
from ..features import Array, Features, Seen, check_same_model, precision
from ._calibration import Calibration, bounded
from ._marks import NO_MARKS, known_share, marks_of
from ._resolution import resolution_of

__all__ = ["CACHE_FRIENDLY", "CHUNK", "Energy", "alike", "predicted"]

Floats = np.ndarray[Any, Any]
CACHE_FRIENDLY = 1024
"""Samples scored at a time: activations of this many samples stay in a core's cache."""
OVERLAP = 0.5
"""A calibration set of which at least this share was fitted to is refused; fewer may be duplicates in the data."""
CHUNK = 4096
"""Samples read at a time where a fit goes over all of them."""
REMEDIES = {
    "std": "Extract it with Extractor (std needs maps or tokens)",
    "logits": "Pass logits=… or head=(W, b)",
    "head": "Pass head=(W, b), or let Extractor find it",
    "labels": "Pass labels=…, the class of each sample",
}


class Energy(nn.Module, ABC):
    r"""A function from features to one number a sample, with all that a detector needs around it.

    A subclass gives :attr:`reads`, :meth:`fit` and :meth:`energy`; scoring in batches, calibration, p-values,
    decisions, saving and loading come from here. Learned state lives in buffers, constructor arguments stay as given.
    """

    name: ClassVar[str]
    no_prior: ClassVar[str] = "it has no gradient in feature space"
    """Why a residual cannot correct it, where it is not a :class:`Prior`."""
    rises: ClassVar[tuple[str, ...]] = ()
    """Where its energy is sure to be high: ``far`` from all ID features, ``unsure`` where logits say nothing."""
    trains: ClassVar[bool] = False
    """Whether :meth:`fit` trains a network."""
    former: ClassVar[dict[str, str]] = {}
    """Tensors that had another name in files of earlier versions: the names of today by those of then."""
    calibration: Calibration | None

    def __init__(self) -> None:
        super().__init__()
        self.calibration = None
        self.fingerprint: str | None = None
        self.seen_: Seen | None = None
        self.marks_ = NO_MARKS
        self.samples_ = 0

    # What a subclass gives

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """The columns of :class:`Features` that it needs: ``avg``, ``std@layer3``, ``logits``, ``head``, ``labels``."""

    @property
    def learns(self) -> tuple[str, ...]:
        """What it needs to be fitted, and not to score: ``head``, ``labels``."""
        return ()

    @abstractmethod
    def fit(self, features: Features) -> Self:
        """Learn from ID features; returns self."""

    @abstractmethod
    def energy(self, features: Features) -> Tensor:
        """The energy of each sample of one batch, (n,)."""

    @property
    def fitted(self) -> bool:
        """Whether it can score."""
        return all(buffer is not None for _, buffer in self._buffers.items())

    def forward(self, *columns: Tensor) -> Tensor:
        """The energy of one batch, (n,), from the columns that :attr:`reads` names, in this order.

        Nothing is checked or moved, so that ``torch.export`` and ``torch.compile`` can follow it; :meth:`score` is for
        everything else.
        """
        return self.energy(Features.unchecked(dict(zip(self.reads, columns, strict=True))))

    # What every energy can do

    def begin(self, features: Features) -> None:
        """What every fit starts with: all that it needs is there; a calibration of what was learned before is void."""
        title = type(self).__name__
        if not isinstance(features, Features):
            raise InputError(f"{title} is fitted to Features, not to {type(features).__name__}. {self.example}")
        missing = [name for name in (*self.reads, *self.learns) if name not in features.available]
        if missing:
            columns = dict.fromkeys(name.partition("@")[0] for name in missing)
            remedies = "; ".join(REMEDIES.get(name, f"Pass {name}=…") for name in columns)
            layers = " (an earlier layer needs Extractor(…, layers=…))" if any("@" in name for name in missing) else ""
            raise InputError(
                f"{title} cannot be fitted: it needs {', '.join(missing)}, and there is no such thing in {features!r}. "
                f"{remedies}{layers}, or choose a method that does without."
            )
        if not len(features):
            raise InputError(f"{title} cannot be fitted to no samples at all. Pass ID features.")
        self.calibration, self.fingerprint, self.seen_ = None, features.fingerprint, features.seen
        self.marks_, self.samples_ = marks_of(features, self._marked(features)), len(features)

    def _marked(self, features: Features) -> str:
        """The column that samples are told apart by: what the head reads, if it is read."""
        return next((c for c in ("avg", *self.reads) if c in self.reads and c in features.available), "avg")

    @classmethod
    def as_prior(cls, **settings: Any) -> Energy:
        """What HEAT composes and corrects in place of it: itself, or a smooth form of it."""
        return cls(**settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, unchanged."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as scikit-learn asks for them."""
        return self.settings

    def set_params(self, **settings: Any) -> Self:
        """Change settings, as scikit-learn does; what was learned with the old ones is gone. Returns self."""
        if unknown := set(settings) - set(self.settings):
            known = ", ".join(self.settings) or "none"
            raise InputError(f"{type(self).__name__} has no setting {sorted(unknown)[0]!r}. It has {known}.")
        type(self).__init__(self, **{**self.settings, **settings})
        return self

    @overload
    def score(self, features: Floats, batch_size: int = CACHE_FRIENDLY) -> Floats: ...
    @overload
    def score(self, features: Features | Tensor, batch_size: int = CACHE_FRIENDLY) -> Tensor: ...
    def score(self, features: Features | Array, batch_size: int = CACHE_FRIENDLY) -> Tensor | Floats:
        """How unusual each sample is, (n,), on the CPU; higher = more out-of-distribution.

        An array of numpy, where a single column is read, gives an array of numpy; so do the p-values and decisions.
        """
        scores: Tensor | Floats = alike(self.scan(features, self.energy, batch_size), features)
        return scores

    def decision_function(self, features: Features | Array) -> Tensor | Floats:
        """:meth:`score` by the name that scikit-learn has for it, with **our** sign: higher = more OOD."""
        return self.score(features)

    @torch.inference_mode()
    def scan(self, features: Features | Array, function: Callable[[Features], Tensor], batch_size: int) -> Tensor:
        """``function`` of each batch, one after the other, checked and joined."""
        features = self.accept(features)
        with precision(self.device):
            parts = [
                self.checked(function(batch), batch, features, i * batch_size)
                for i, batch in enumerate(self.moved(features, batch_size))
            ]
        return torch.cat(parts) if parts else torch.empty(0)

    def accept(self, features: Features | Array) -> Features:
        """Features as they are; a plain tensor where a single column is read; an error that says what to pass."""
        self.require_fitted()
        if isinstance(features, Tensor | np.ndarray):
            features = self.wrap(features)
        if not isinstance(features, Features):
            raise InputError(f"{type(self).__name__} scores Features, not {type(features).__name__}. {self.example}")
        missing = [name for name in self.reads if name not in features.available]
        if missing:
            raise InputError(
                f"{type(self).__name__} reads {', '.join(self.reads)}, and {', '.join(missing)} is missing from "
                f"{features!r}. Extract the test samples in the same way as the training samples."
            )
        check_same_model(self.fingerprint, features.fingerprint)
        if self.seen_ is not None:
            self.seen_.check(features.seen)
        return features

    def wrap(self, array: Array) -> Features:
        """A plain tensor as features, where the energy reads a single column."""
        if len(self.reads) > 1:
            raise InputError(
                f"{type(self).__name__} reads several columns ({', '.join(self.reads)}): a plain tensor will not do. "
                f"{self.example}"
            )
        column, _, layer = self.reads[0].partition("@")
        avg, std, logits = (array if column == name else None for name in ("avg", "std", "logits"))
        return Features(layers={layer: (avg, std)}) if layer else Features(avg, std, logits)

    @property
    def example(self) -> str:
        """What to pass, for error messages."""
        plain = [f"{name}=…" for name in self.reads if "@" not in name]
        layers = dict.fromkeys(name.partition("@")[2] for name in self.reads if "@" in name)
        named = [f"layers={{{', '.join(f'{layer!r}: (avg, std)' for layer in layers)}}}"] if layers else []
        return f"Pass Features({', '.join(plain + named)})."

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return next((t.device for t in chain(self.buffers(), self.parameters())), torch.device("cpu"))

    def moved(self, features: Features, batch_size: int) -> Iterator[Features]:
        """Batches on the energy's own device."""
        device = self.device
        for batch in features.only(self.reads).batches(batch_size):
            yield batch if device.type == "cpu" else batch.to(device)

    def checked(self, energy: Tensor, batch: Features, features: Features, start: int) -> Tensor:
        """The energy of a batch of features on the CPU, or an error that names the first sample that is not finite."""
        if not torch.isfinite(energy).all():
            bad = ~torch.isfinite(energy)
            broken = [
                name for name in self.reads if (c := batch.column(name)) is not None and not torch.isfinite(c).all()
            ]
            cause = (
                f"{' and '.join(broken)} is not finite there"
                if broken
                else "its features are too large to compute with"
            )
            first = features.number_of(start + int(bad.nonzero()[0]))
            raise InputError(
                f"{int(bad.sum())} samples have no finite score, the first is sample {first}: {cause}. "
                "Drop those samples, or extract them again in float32."
            )
        return energy.cpu()

    def check_width(self, z: Tensor, width: int, columns: Sequence[str] = ("avg",)) -> None:
        """Refuse samples with another number of features than those that it was fitted to."""
        if z.shape[1] != width:
            raise InputError(
                f"{' and '.join(columns)} has {z.shape[1]} features, and {type(self).__name__} was fitted to {width}. "
                "Extract the test samples with the same model and layers."
            )

    def require_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(
                f"{type(self).__name__} has not been fitted. Call .fit(features) with ID features, or load a saved one."
            )

    # Calibration

    def calibrate(self, features: Features | Array, per_class: bool = False) -> Self:
        """Keep the scores of held-out ID samples, which the backbone was **not** trained on; returns self.

        Of a store of shards with more than a million samples, a million are drawn at random, always the same: what is
        kept and sorted does not grow with the store then, and they are as exchangeable with new ones as all of them.

        Args:
            features: ID samples, exchangeable with those to come.
            per_class: rank each sample among those of its predicted class, so that the false-alarm rate holds for each.
        """
        features = bounded(self.accept(features))
        if not len(features):
            raise InputError("Calibration needs at least one sample; the features are empty.")
        self._refuse_fitted(features)
        scores = self.score(features)
        resolution = resolution_of(self.score, features, scores)
        classes = predicted(features) if per_class else None
        count = features.classes or 1
        self.calibration = (
            Calibration.by_class(scores, classes, count, resolution)
            if per_class
            else Calibration(scores, resolution=resolution)
        )
        return self

    def fitted_to(self, features: Features) -> bool:
        """Whether it was fitted to these samples, as far as their number and a few marks of them can tell."""
        same = self.fingerprint == features.fingerprint and self.samples_ == len(features)
        return self.fitted and same and self.marks_ == marks_of(features, self._marked(features))

    def _refuse_fitted(self, features: Features) -> None:
        """Refuse to be calibrated on the samples that it was fitted to, as far as a few marks of them can tell."""
        share = known_share(self.marks_, self.samples_, features, self._marked(features))
        if share >= OVERLAP:
            raise InputError(
                f"About {share:.0%} of these samples are among those that {type(self).__name__} was fitted to, so that "
                "its p-values would not hold for new ones. Calibrate on held-out ID samples, which neither the network "
                "nor the detector has seen."
            )

    @property
    def calibrated(self) -> bool:
        """Whether it gives p-values and decisions."""
        return self.calibration is not None

    @overload
    def p_value(self, features: Floats) -> Floats: ...
    @overload
    def p_value(self, features: Features | Tensor) -> Tensor: ...
    def p_value(self, features: Features | Array) -> Tensor | Floats:
        """The share of ID samples at least as unusual, ``(1 + #{calibration >= score}) / (n + 1)``, float64.

        Scores nearer than ``calibration.resolution`` count as equal.
        """
        calibration, known = self.require_calibrated(), self.accept(features)
        classes = predicted(known) if calibration.per_class else None
        p_values: Tensor | Floats = alike(self.p_values_of(self.score(known), classes), features)
        return p_values

    def p_values_of(self, scores: Tensor, classes: Tensor | None = None) -> Tensor:
        """The p-values of scores already computed; ``classes`` are the predicted ones, if calibrated per class."""
        return self.require_calibrated().p_value(scores, classes)

    @overload
    def predict(self, features: Floats, fpr: float = 0.05) -> Floats: ...
    @overload
    def predict(self, features: Features | Tensor, fpr: float = 0.05) -> Tensor: ...
    def predict(self, features: Features | Array, fpr: float = 0.05) -> Tensor | Floats:
        """True where a sample is judged out-of-distribution: exactly ``p_value <= fpr``."""
        self.require_calibrated().check(fpr)
        return self.p_value(features) <= fpr

    def threshold(self, fpr: float = 0.05) -> float | Tensor:
        """The score above which :meth:`predict` says OOD; one a class, (C,), if calibrated per predicted class."""
        return self.require_calibrated().threshold(fpr)

    def require_calibrated(self) -> Calibration:
        if self.calibration is None:
            raise NotFittedError(
                f"{type(self).__name__} has not been calibrated. Call .calibrate(held_out) with ID features that the "
                "backbone did not see in training."
            )
        return self.calibration

    # Saving

    def save(self, path: str | PathLike[str]) -> None:
        """Write a folder of a JSON and a safetensors file; neither the model nor the data is needed to load it."""
        from ._storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read back what :meth:`save` wrote; no code from the files is run."""
        from ._storage import load

        energy = load(path)
        if not isinstance(energy, cls):
            raise InputError(
                f"{path} holds a {type(energy).__name__}, not a {cls.__name__}. Use {type(energy).__name__}.load."
            )
        return energy

    def facts(self) -> dict[str, Any]:
        """Learned state that is not a tensor, for the JSON file."""
        return {}

    def build(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Make the submodules that :meth:`fit` would make, before the tensors are put into them."""

    def validate(self) -> None:
        """Refuse learned state that does not fit together, before it is used: for what is read from a file."""
        if not self.fitted:
            raise InputError("some of its tensors are missing")

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        state = ("fitted" if self.fitted else "not fitted") + (", calibrated" if self.calibrated else "")
        return f"{type(self).__name__}({arguments})  # {state}"


def alike(values: Tensor, given: Any) -> Any:
    """As an array of numpy where one was given."""
    return values.numpy() if isinstance(given, np.ndarray) else values


def predicted(features: Features) -> Tensor:
    """The class that the classifier predicts for each sample, a batch at a time."""
    if "logits" not in features.available:
        raise InputError(
            f"The predicted class needs logits, and there are none in {features!r}. Pass logits or a head."
        )
    found = [torch.empty(0, dtype=torch.long)]
    for batch in features.only(("logits",)).batches(CACHE_FRIENDLY):
        logits = batch.logits
        assert logits is not None
        found.append(logits.argmax(1).cpu())
    return torch.cat(found)
