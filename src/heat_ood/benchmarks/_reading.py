"""Suites by their names, and from the TOML files that describe them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..energies import methods
from ..errors import InputError
from ..images import Preprocessing
from ._readers import SetSpec
from ._strict import Table, read_toml
from ._suites import FOLDER, Backbone, Contrast, InDistribution, Suite, Variant, own_folder

__all__ = ["suite", "suites"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESERVED = ("id", "train", "contrast", "calibration", "test")
UNGROUPED = "ood"


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
        apart=read_apart(top, groups),
        pictures=top.take("pictures", bool, True),
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


def read_apart(top: Table, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    apart = top.many("apart", str, ())
    unlike(top, "apart", list(apart))
    for name in apart:
        if name not in groups:
            raise top.error("apart", f"names {name!r}, which is no group", f"There are {', '.join(groups)}.")
    if set(apart) == set(groups):
        raise top.error("apart", "names all groups", "Leave out one at least, that there is an average.")
    return tuple(apart)


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
        rows=table.text("rows", None),
        folder=beside(table) if "rows" in table.data else None,
    )


def read_backbone(table: Table) -> Backbone:
    preprocessing = table.table("preprocessing", None)
    layers = table.data.get("layers")
    head = table.data.get("head")
    if head is True:
        raise table.error("head", "is true", "Give its name, false if there is none, or leave it out to find it.")
    if (size := table.take("batch_size", int, 64)) < 1:
        raise table.error("batch_size", f"is {size}", "Take at least 1 image.")
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
        batch_size=size,
        folder=beside(table),
    )


def beside(table: Table) -> Path | None:
    """Where the modules of a suite of one's own lie."""
    return None if table.file.parent == FOLDER else table.file.parent


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
