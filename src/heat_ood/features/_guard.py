"""A model and its detector as one module: images in; logits, score and p-value out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import InputError
from ._features import Features

if TYPE_CHECKING:
    from ._extractor import Extractor

__all__ = ["Guard", "Guarded"]


class Guarded(NamedTuple):
    """What a guarded model says of each image; ``p_value`` is None before the detector is calibrated."""

    logits: Tensor | None
    score: Tensor
    p_value: Tensor | None


class Guard(nn.Module):
    """Classify and judge in one pass through the backbone.

    Args:
        extractor: reads the model's features.
        detector: scores them; fitted, and calibrated where p-values are wanted.

    The model and the detector are submodules: ``guard.to(device)`` moves both. Each pass runs the model in
    evaluation mode and without gradients, and leaves it as it was; any number of threads may call one guard at once.
    A surrounding ``torch.autocast`` has no part in it: features are made as they were for the fit.
    """

    def __init__(self, extractor: Extractor, detector: Any) -> None:
        super().__init__()
        if hasattr(detector, "stored_columns"):  # a method that reads more than features says why it cannot be guarded
            detector.stored_columns()
        self.model = extractor.model
        self.detector = detector
        self.extractor = extractor

    @torch.no_grad()
    def forward(self, images: Any = None, /, **batch: Any) -> Guarded:
        """Logits, score (higher = more out-of-distribution) and p-value of each image.

        Args:
            images: a batch as the model takes it, ``(images, labels)``, or a dictionary of inputs.
            batch: the inputs by name instead, as models of Hugging Face are called: ``guard(**batch)``.
        """
        logits, features = self.read(batch if images is None else images)
        score = self.detector.score(features)
        return Guarded(logits, score, self._p_value(features, score))

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, where the training samples had them."""
        seen = self.detector.seen_
        return None if seen is None else seen.classes

    @torch.no_grad()
    def predict(self, images: Any, fpr: float = 0.05) -> Tensor:
        """True where an image is out-of-distribution, at a false-alarm rate of at most ``fpr``."""
        return torch.as_tensor(self.detector.predict(self.read(images)[1], fpr=fpr))

    def verify(self) -> None:
        """Refuse a model whose weights are not those that the detector was fitted with, to the last bit.

        Every call looks for changes, and finds those that torch counts; of changes through ``.data`` or NumPy it sees
        those that a sample shows. This reads all weights.
        """
        self._check(self.extractor.compute_fingerprint())

    def _check(self, fingerprint: str | None) -> None:
        known = self.detector.fingerprint
        if None not in (known, fingerprint) and known != fingerprint:
            raise InputError(
                f"The guarded model is not the one that the detector was fitted with: its weights or the layers that "
                f"are read have changed (fingerprints {known[:12]} and {str(fingerprint)[:12]}). Load the weights of "
                "then, or protect the model anew."
            )

    def read(self, images: Any) -> tuple[Tensor | None, Features]:
        """The model's logits and the features of a batch, where the detector is, if the model is its own.

        ``torch.compile`` leaves it as it is: it would go past the modules that tell what flows through them.
        """
        if torch.compiler.is_compiling():  # only then: to import the compiler takes as long as to import torch
            from ._uncompiled import read_uncompiled

            found: tuple[Tensor | None, Features] = read_uncompiled(self, images)
            return found
        return self._read(images)

    def _read(self, images: Any) -> tuple[Tensor | None, Features]:
        """What :meth:`read` does; nothing compiles it."""
        logits, features = self.extractor.read(images)
        self._check(features.fingerprint)
        own = self.detector.device
        return logits, features if features.device == own else features.to(own)

    def _p_value(self, features: Features, score: Tensor) -> Tensor | None:
        if not self.detector.calibrated:
            return None
        logits = features.logits if self.detector.calibration.per_class else None
        return torch.as_tensor(self.detector.p_values_of(score, None if logits is None else logits.argmax(1)))
