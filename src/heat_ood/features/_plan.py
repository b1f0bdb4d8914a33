"""Where the features of a model flow, and what one pass gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ._columns import Layer
from ._maps import Maps

__all__ = ["FlowError", "Given", "Plan", "Reading", "Site"]

Given = tuple[Tensor, Tensor | None]


class FlowError(Exception):
    """The calls of this pass are not those that the plan was made for."""


class Site(NamedTuple):
    """A tensor that goes into a module or comes out of it: its number among those that do."""

    module: str
    entering: bool
    slot: int


@dataclass
class Plan:
    """Where the features of a model flow: found once, then read in every pass.

    A pass is *direct* where all that is read goes in or out of modules that are called once: then no call in between
    need be looked at, which costs next to nothing.
    """

    calls: int  # how many calls a pass makes
    output: str | None  # the output that holds the logits or, without a head, the features
    site: tuple[int, str] | None = None  # the head's call; of a head given as (W, b), the call that makes its input
    given: Given | None = None  # a head that is not a layer of the model
    maps: Maps | None = None
    layers: dict[str, tuple[int | None, slice | None]] = field(default_factory=dict)
    direct: bool = False
    features_at: Site | None = None  # what the head reads, in a direct pass
    maps_at: Site | None = None
    head: Given | None = None  # the model's own tensors, in a direct pass
    draws: bool = True  # whether a pass draws random numbers

    @property
    def tapped(self) -> list[str]:
        """The modules that tell what they read or return."""
        sites = [site.module for site in (self.features_at, self.maps_at) if site is not None]
        return list(dict.fromkeys([*self.layers, *(sites if self.direct else ())]))


@dataclass
class Reading:
    """What one pass gave."""

    avg: Tensor
    std: Tensor | None
    layers: dict[str, Layer]
    logits: Tensor | None = None
    head: Given | None = None
    product: Tensor | None = None  # of avg and the head, in full precision
    fingerprint: str = ""  # of the model that it was read of

    def same(self, other: Reading) -> bool:
        """Whether both gave the same, to the last bit."""
        mine, theirs = self.columns, other.columns
        return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)

    @property
    def columns(self) -> dict[str, Tensor]:
        """What there is, by the names that energies use."""
        found = {"avg": self.avg, "std": self.std, "logits": self.logits if self.product is None else self.product}
        for name, layer in self.layers.items():
            found |= {f"avg@{name}": layer.avg, f"std@{name}": layer.std}
        return {name: column for name, column in found.items() if column is not None}
