"""What a benchmark runs on, one TOML file each: the ID set, the backbone, the OOD sets and their groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from torch import nn

from ..errors import InputError
from ..features import CONTRAST, check_kinds
from ..images import Preprocessing
from ..models import load_model
from ._readers import MissingData, SetSpec

__all__ = ["Backbone", "Contrast", "InDistribution", "Suite", "Variant", "own_folder"]

FOLDER = Path(__file__).parent / "suites"
OWN = "suites"
"""Where suites of one's own are found by name, below the current folder; HEAT_OOD_SUITES names another place."""
MOST = 50_000
"""Distorted images where a suite does not say how many."""


@dataclass(frozen=True)
class InDistribution:
    """The ID set.

    Args:
        name: of the set.
        title: for people.
        train: what the backbone was trained on, and detectors are fitted to.
        test: images that the backbone has not seen.
        calibration: a set of its own, or how many of ``test`` are taken out for it: the first of a permutation.
        seed: of ``numpy.random.default_rng``, which draws the permutation.
    """

    name: str
    title: str
    train: SetSpec
    test: SetSpec
    calibration: SetSpec | int
    seed: int = 0


@dataclass(frozen=True)
class Backbone:
    """The network whose features are used.

    Args:
        title: for people.
        model: its name, for :func:`heat_ood.models.load_model`.
        weights: a ``.safetensors`` file within the data root.
        pretrained: fetch timm's own weights.
        preprocessing: of images; None is what the model itself asks for.
        layers: earlier layers to pool.
        head: the linear head's name, False if there is none, None to find it.
        get: how to get the weights.
        batch_size: images in one pass; few are faster where maps are large and the processor's cache is small.
        folder: where else the module of ``package.module:function`` is looked for: beside the suite's file.
    """

    title: str
    model: str
    weights: str | None = None
    pretrained: bool = False
    preprocessing: Preprocessing | None = None
    layers: str | tuple[str, ...] | None = None
    head: str | bool | None = None
    get: str = ""
    batch_size: int = 64
    folder: Path | None = None

    def load(self, root: str | PathLike[str], weights: str | PathLike[str] | None = None) -> nn.Module:
        """The model in evaluation mode, with its weights, or with those of a file of one's own.

        A function that makes the model and has an argument ``root`` is given the data root.
        """
        own = None if weights is None else Path(weights)
        file = own if own is not None or self.weights is None else Path(root) / Path(self.weights).expanduser()
        if file is not None and own is None and not file.is_file():
            raise MissingData(f"the backbone ({self.title})", file, self.get)
        pretrained = self.pretrained and own is None
        return load_model(self.model, file, pretrained=pretrained, folder=self.folder, root=Path(root).expanduser())


@dataclass(frozen=True)
class Contrast:
    """The distorted training images that HEAT learns to tell from the data.

    Args:
        kinds: of distortions, in equal shares.
        samples: so many, of training images drawn at random, several of one where there are fewer; None is one of each,
            50,000 at most.
        seed: of the draw and of the distortions.
    """

    kinds: tuple[str, ...] = CONTRAST
    samples: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_kinds(self.kinds)
        if self.samples is not None and not 1 <= self.samples <= 100 * MOST:
            raise InputError(
                f"samples is {self.samples}. Take at least 1 image and at most {100 * MOST:,}; contrast = false does "
                "without."
            )
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}. Take one of at least 0.")

    def count(self, images: int) -> int:
        """How many to make of so many training images."""
        return min(images, MOST) if self.samples is None else self.samples


@dataclass(frozen=True)
class Variant:
    """A further row: other priors, each corrected as in the paper; another backbone; or both."""

    name: str
    title: str
    priors: tuple[str, ...] | None = None
    backbone: Backbone | None = None


@dataclass(frozen=True)
class Suite:
    """A benchmark: see ``docs/benchmarks.md`` for the file that describes it.

    Args:
        name: of the file.
        title: for people.
        id: the ID set.
        backbone: the network.
        ood: the OOD sets.
        groups: names of OOD sets by group, as ``{"near": ("cifar100", …), …}``; ``ood`` where there are none.
        apart: groups that are reported and count in no average.
        contrast: what HEAT is fitted with besides the training images; None does without.
        variants: further rows of HEAT.
        left_out: methods that are not run unless they are asked for, and why.
        notes: what a reader of the results should know.
        root: the usual data root: of the suites that come with the package within the current folder, of one's own
            beside its file.
        paper: the suite whose numbers in the paper stand beside; by default the one of its own name.
        pictures: whether its images may be shown in results and reports.
        file: the file it was read from.
    """

    name: str
    title: str
    id: InDistribution
    backbone: Backbone
    ood: tuple[SetSpec, ...]
    groups: Mapping[str, tuple[str, ...]]
    contrast: Contrast | None = Contrast()
    variants: tuple[Variant, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    root: str = "data"
    paper: str | None = None
    apart: tuple[str, ...] = ()
    pictures: bool = True
    file: Path = FOLDER

    @property
    def custom(self) -> bool:
        """Whether it is a file of the user's."""
        return self.file.parent != FOLDER

    @property
    def counted(self) -> tuple[str, ...]:
        """The OOD sets that count in averages."""
        return tuple(name for group, names in self.groups.items() if group not in self.apart for name in names)

    def data_root(self, given: str | PathLike[str] | None = None) -> Path:
        """Where the data lie: as given; else, of a suite with a name, as ``HEAT_OOD_DATA`` says; else as it says."""
        if given is not None:
            return Path(given).expanduser()
        named = not self.custom or self.file.parent == own_folder()
        if named and (place := os.environ.get("HEAT_OOD_DATA")):
            return Path(place).expanduser()
        return self.file.parent / Path(self.root).expanduser() if self.custom else Path(self.root)


def own_folder() -> Path:
    """Where suites of one's own are found by name."""
    return Path(os.environ.get("HEAT_OOD_SUITES", OWN)).expanduser().resolve()
