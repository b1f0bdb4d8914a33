"""What the network makes of labelled ID images: a mistake in the model or the images shows there first."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._output import note

__all__ = ["Accuracy", "accuracy_on"]

POOR = 0.5
"""An accuracy below this share of the network's own confidence is said to be poor."""


class Accuracy(NamedTuple):
    """The share of samples that are classified rightly, and the mean confidence in it."""

    accuracy: float
    confidence: float

    def __str__(self) -> str:
        return f"{100 * self.accuracy:.2f} % (mean confidence {100 * self.confidence:.1f} %)"

    @property
    def poor(self) -> bool:
        return self.accuracy < POOR * self.confidence


def accuracy_on(data: Any, what: str, remedy: str = "") -> Accuracy | None:
    """Of features with labels, with a warning where it is poor; None where it cannot be known.

    Args:
        data: features; anything else has no accuracy.
        what: the samples, for the warning.
        remedy: what else could be meant.
    """
    from ..features import Features, accuracy_of

    found = accuracy_of(data) if isinstance(data, Features) else None
    if found is None:
        return None
    result = Accuracy(*found)
    if result.poor:
        note(
            f"warning: the network is right on {100 * result.accuracy:.2f} % of {what}, and "
            f"{100 * result.confidence:.1f} % sure of itself: wrong normalisation, "
            "size, class order or missing weights show so. Classes are numbered "
            f"in the order of the names of their folders.{remedy}"
        )
    return result
