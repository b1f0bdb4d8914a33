"""What a benchmark runs on, one TOML file each: the ID set, the backbone, the OOD sets and their groups."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from ..energies import methods
from ..errors import InputError
from ..features import CONTRAST, check_kinds
from ..images import Preprocessing
from ..models import load_model
from ._readers import MissingData, SetSpec
from ._strict import Table, read_toml

__all__ = ["Backbone", "Contrast", "InDistribution", "Suite", "Variant", "suite", "suites"]

FOLDER = Path(__file__).parent / "suites"
OWN = "suites"
"""Where suites of one's own are found by name, below the current folder; HEAT_OOD_SUITES names another place."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESERVED = ("id", "train", "contrast", "calibration", "test")
UNGROUPED = "ood"
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
        contrast: what HEAT is fitted with besides the training images; None does without.
        variants: further rows of HEAT.
        left_out: methods that are not run unless they are asked for, and why.
        notes: what a reader of the results should know.
        root: the usual data root: of the suites that come with the package within the current folder, of one's own
            beside its file.
        paper: the suite whose numbers in the paper stand beside; by default the one of its own name.
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
    file: Path = FOLDER

    @property
    def custom(self) -> bool:
        """Whether it is a file of the user's."""
        return self.file.parent != FOLDER

    def data_root(self, given: str | PathLike[str] | None = None) -> Path:
        """Where the data lie: as given; else, of a suite with a name, as ``HEAT_OOD_DATA`` says; else as it says."""
        if given is not None:
            return Path(given).expanduser()
        named = not self.custom or self.file.parent == own_folder()
        if named and (place := os.environ.get("HEAT_OOD_DATA")):
            return Path(place).expanduser()
        return self.file.parent / Path(self.root).expanduser() if self.custom else Path(self.root)


def suites() -> dict[str, Suite]:
    """All suites that have a name: those that come with the package, and those of one's own.

    Example:
        >>> "cifar10" in suites()
        True
    """
    return {name: read_suite(file) for name, file in sorted(files_by_name().items())}


def files_by_name() -> dict[str, Path]:
    """The files of all suites that have a name; the package's own come first."""
    return {file.stem: file for folder in (own_folder(), FOLDER) for file in folder.glob("*.toml")}


def own_folder() -> Path:
    """Where suites of one's own are found by name."""
    return Path(os.environ.get("HEAT_OOD_SUITES", OWN)).expanduser().resolve()


def suite(name: str | PathLike[str]) -> Suite:
    """A suite by its name, or by the TOML file that describes it.

    Example:
        >>> suite("cifar10").groups["far"]
        ('textures', 'svhn')
    """
    text, known = str(name), files_by_name()
    if text in known:
        return read_suite(known[text])
    file = Path(name).expanduser()
    if file.is_file():
        return read_suite(file.resolve())
    close = difflib.get_close_matches(text, known, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise InputError(
        f"There is no suite {text!r}, and no such file. {meant}There are {', '.join(sorted(known))}; or pass a .toml "
        "file."
    )


def read_suite(file: Path) -> Suite:
    """A suite from its file; anything that is not as it should be is an error."""
    top = read_toml(file)
    ood, groups = read_ood(top)
    left_out = top.table("left_out", None)
    variants = tuple(read_variant(t) for t in top.tables("variants", ()))
    unlike(top, "variants", [v.name for v in variants])
    return top.made(
        Suite,
        name=file.stem,
        title=top.text("title"),
        id=read_id(top.table("id")),
        backbone=read_backbone(top.table("backbone")),
        ood=ood,
        groups=MappingProxyType(groups),
        contrast=read_contrast(top),
        variants=variants,
        left_out=MappingProxyType({} if left_out is None else read_left_out(left_out)),
        notes=top.many("notes", str, ()),
        root=top.text("root", "." if file.parent != FOLDER else "data"),
        paper=top.text("paper", None),
        file=file,
    )


def read_id(table: Table) -> InDistribution:
    name = named(table)
    own = isinstance(table.data.get("calibration"), dict)
    drawn = 1 if own else table.take("calibration", int)
    if drawn < 1:
        raise table.error("calibration", f"is {drawn}", "Take at least 1 test image, or give a set.")
    if not own and table.take("seed", int, 0) < 0:
        raise table.error("seed", f"is {table.data['seed']}", "Take one of at least 0.")
    return table.made(
        InDistribution,
        name=name,
        title=table.text("title", name),
        train=read_set(table.table("train"), f"{name}-train"),
        test=read_set(table.table("test"), f"{name}-test"),
        calibration=read_set(table.table("calibration"), f"{name}-calibration") if own else drawn,
        **({} if own else {"seed": table.take("seed", int, 0)}),
    )


def read_ood(top: Table) -> tuple[tuple[SetSpec, ...], dict[str, tuple[str, ...]]]:
    found, groups = [], dict[str, tuple[str, ...]]()
    tables = top.tables("ood")
    if not tables:
        raise top.error("ood", "is empty", "Add at least one OOD set: [[ood]].")
    for table in tables:
        name, group = named(table), table.text("group", UNGROUPED)
        if name in RESERVED:
            raise table.error("name", f"is {name!r}, which is taken", "Name the set otherwise.")
        groups[group] = (*groups.get(group, ()), name)
        found.append(read_set(table, name))
    unlike(top, "ood", [spec.name for spec in found])
    if UNGROUPED in groups and len(groups) > 1:
        raise top.error("ood", f"has sets without a group ({groups[UNGROUPED][0]})", "Give all a group, or none.")
    return tuple(found), groups


def read_set(table: Table, name: str) -> SetSpec:
    return table.made(
        SetSpec,
        name=name,
        reader=table.text("reader"),
        path=table.text("path"),
        split=table.text("split", None),
        images=table.text("images", None),
        get=table.text("get", ""),
        limit=table.take("limit", int, None),
    )


def read_backbone(table: Table) -> Backbone:
    preprocessing = table.table("preprocessing", None)
    layers = table.data.get("layers")
    head = table.data.get("head")
    if head is True:
        raise table.error("head", "is true", "Give its name, false if there is none, or leave it out to find it.")
    return table.made(
        Backbone,
        title=table.text("title"),
        model=table.text("model"),
        weights=table.text("weights", None),
        pretrained=table.take("pretrained", bool, False),
        preprocessing=None if preprocessing is None else read_preprocessing(preprocessing),
        layers=table.many("layers", str) if isinstance(layers, list) else table.text("layers", None),
        head=table.take("head", bool) if isinstance(head, bool) else table.text("head", None),
        get=table.text("get", ""),
        folder=None if table.file.parent == FOLDER else table.file.parent,
    )


def read_preprocessing(table: Table) -> Preprocessing:
    values: dict[str, Any] = {
        "interpolation": table.text("interpolation", None),
        "crop_pct": table.take("crop_pct", float, None),
        "squash": table.take("squash", bool, None),
        "mean": table.many("mean", float, None),
        "std": table.many("std", float, None),
    }
    size = table.take("size", int, None)
    values["size"] = None if size is None else (size, size)
    return table.made(Preprocessing, **{key: value for key, value in values.items() if value is not None})


def read_contrast(top: Table) -> Contrast | None:
    if top.data.get("contrast") is True:
        raise top.error("contrast", "is true", "Give a table, false to do without, or leave it out for the default.")
    if top.data.get("contrast") is False:
        top.take("contrast", bool)
        return None
    table: Table | None = top.table("contrast", None)
    usual = Contrast()
    if table is None:
        return usual
    return table.made(
        Contrast,
        kinds=table.many("kinds", str, usual.kinds),
        samples=table.take("samples", int, usual.samples),
        seed=table.take("seed", int, usual.seed),
    )


def read_variant(table: Table) -> Variant:
    backbone = table.table("backbone", None)
    return table.made(
        Variant,
        name=named(table),
        title=table.text("title"),
        priors=table.many("priors", str, None),
        backbone=None if backbone is None else read_backbone(backbone),
    )


def read_left_out(table: Table) -> dict[str, str]:
    known = methods()
    for name in table.data:
        if name not in known:
            raise table.error(name, "is not a method", f"There are {', '.join(known)}.")
    return {name: table.text(name) for name in table.data}


def named(table: Table) -> str:
    name: str = table.text("name")
    if not NAME.fullmatch(name):
        raise table.error("name", f"is {name!r}", "Use letters, digits, '.', '-' and '_': it is part of file names.")
    return name


def unlike(table: Table, key: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise table.error(key, f"names {name!r} twice", "Give each a name of its own.")
