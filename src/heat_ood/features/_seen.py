"""What features were made by and of; it travels with them, and with the detector that is fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError
from ..files import plain, restored
from ._identity import dataset_of, identity_of
from ._stamps import Stamps, stamps_of

__all__ = ["Seen", "seen_of"]


@dataclass(frozen=True)
class Seen:
    """The model, how images were prepared for it, the classes and the samples; None where it is not known.

    Args:
        model: as it was named (``timm:resnet50``), or its class.
        weights: the file that its weights came from.
        preprocessing: size, crop, interpolation, mean, std, by name.
        classes: the names of the classes, in order.
        source: where the samples lie.
        samples: digests of the samples, to tell them from others, and from themselves after a change.
        layers: the earlier layers that were read, as the extractor was given them: names, or ``("stages",)``.
        head: the name of the head where one was given, ``none`` where it was said that there is none.

    Example:
        >>> small, large = (Seen(preprocessing={"size": [n, n], "mean": [0.5]}) for n in (32, 64))
        >>> small.check(large)
        Traceback (most recent call last):
        heat_ood.errors.InputError: These samples were prepared otherwise than those before: size [64, 64] instead of
        [32, 32]. Prepare all of them alike: the same size, crop, interpolation, mean and std.
    """

    model: str | None = None
    weights: str | None = None
    preprocessing: Mapping[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    source: str | None = None
    samples: str | None = None
    layers: tuple[str, ...] | None = None
    head: str | None = None

    def check(self, other: Seen | None) -> None:
        """Refuse samples that were prepared otherwise; what is not known passes."""
        if other is None or self.preprocessing is None or other.preprocessing is None:
            return
        mine, theirs = plain(self.preprocessing), plain(other.preprocessing)
        names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        if names:
            sides = ", ".join(f"{name} {theirs.get(name)} instead of {mine.get(name)}" for name in names)
            raise InputError(
                f"These samples were prepared otherwise than those before: {sides}. Prepare all of them alike: the "
                "same size, crop, interpolation, mean and std."
            )

    def to_dict(self) -> dict[str, Any]:
        """What is known, as JSON can hold it."""
        return {f.name: plain(value) for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @classmethod
    def read(cls, data: Any) -> Seen:
        """What :meth:`to_dict` gave; keys of a later version are left out."""
        known = {f.name for f in fields(cls)}
        return restored(cls, {key: value for key, value in dict(data).items() if key in known}, "seen")


def seen_of(
    loader: Any,
    model: str | None,
    weights: str | None,
    stamps: Callable[[Any], Stamps | None] = stamps_of,
) -> Seen:
    """What can be known of what a loader yields: a data set may tell how its images are prepared, and its classes."""
    dataset = dataset_of(loader)
    preprocessing: Any = getattr(dataset, "preprocessing", None)
    prepared = preprocessing.to_dict() if hasattr(preprocessing, "to_dict") else None
    classes, root = getattr(dataset, "classes", None), getattr(dataset, "root", None)
    named = isinstance(classes, list | tuple) and all(isinstance(name, str) for name in classes)
    return Seen(
        model,
        weights,
        None if prepared is None else plain(prepared),
        tuple(classes) if named and classes is not None else None,
        None if root is None else str(root),
        identity_of(loader, stamps),
    )
