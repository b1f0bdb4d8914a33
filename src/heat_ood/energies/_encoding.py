"""Settings and facts as JSON, and back: of known classes, of the right types, and not too many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import InputError
from ..files import short
from ..registry import CLASSES
from ._base import Energy
from ._settings import MOST_PARTS, Limited, check_kinds

__all__ = ["decode", "encode"]

DEEPEST = 20
"""Parts within parts, at most: what is nested deeper loads and then cannot be scored."""
NUMBERS = ("nan", "inf", "-inf")


def encode(value: Any) -> Any:
    """Settings as JSON: tuples as lists; energies, dataclasses, maps, lists and infinities as tagged objects."""
    if isinstance(value, Energy):
        if CLASSES.get(value.name) is not type(value):
            raise InputError(f"{type(value).__name__} cannot be saved: its class is not known. Call register(…) first.")
        return {"$energy": value.name, "settings": {k: encode(v) for k, v in value.settings.items()}}
    if is_dataclass(value) and not isinstance(value, type) and CLASSES.get(type(value).__name__) is type(value):
        return {
            "$value": type(value).__name__,
            "settings": {f.name: encode(getattr(value, f.name)) for f in fields(value)},
        }
    if isinstance(value, Mapping):
        return {"$map": [[k, encode(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return [encode(v) for v in value]
    if isinstance(value, list):
        return {"$list": [encode(v) for v in value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return encode(value.tolist())
    raise InputError(
        f"A setting of type {type(value).__name__} cannot be saved. Use numbers, strings, lists or energies."
    )


def decode(value: Any) -> Any:
    """What :func:`encode` wrote; settings of the wrong type, or too many parts, are an error."""
    return _Decoder().decode(value, 0)


class _Decoder:
    """Counts what it makes."""

    def __init__(self) -> None:
        self.made = 0

    def decode(self, value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return tuple(self.decode(v, depth) for v in value)
        if not isinstance(value, dict):
            return value
        if "$float" in value:
            if value["$float"] not in NUMBERS:
                raise InputError(f"{short(value['$float'])} is not a number")
            return float(value["$float"])
        if "$list" in value:
            return [self.decode(v, depth) for v in value["$list"]]
        if "$map" in value:
            return {k: self.decode(v, depth) for k, v in value["$map"]}
        return self.made_of(value["$value"] if "$value" in value else value["$energy"], value["settings"], depth + 1)

    def made_of(self, name: Any, content: Any, depth: int) -> Any:
        """A value of a known class."""
        self.made += 1
        if self.made > MOST_PARTS or depth > DEEPEST:
            raise InputError(f"it has more than {MOST_PARTS} parts, or parts within parts more than {DEEPEST} deep")
        if name not in CLASSES:
            raise InputError(f"it holds {name!r}, which is not known here: import the module that registers it first")
        cls = CLASSES[name]
        decoded = {k: self.decode(v, depth) for k, v in content.items()}
        settings = {k: v for k, v in decoded.items() if k not in getattr(cls, "GONE", ())}
        check_kinds(cls, settings)
        made = cls(**settings)
        if isinstance(made, Limited):
            made.check()
        return made
