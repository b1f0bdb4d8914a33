"""From a suite to features: open what is on disk, run the backbone once over each set, and keep what it says."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from ..errors import Argument, InputError
from ..features import Extractor, Features
from ..features import accuracy_of as right_and_sure
from ..heat import PRESETS
from ..images import ImageSet, Preprocessing
from ..results import Missing
from ._jobs import Data, silence
from ._readers import MissingData, SetSpec, open_set
from ._suites import Backbone, Contrast, Suite

__all__ = ["Prepared", "prepare", "prepare_stored"]

FITTED_IMAGES = 10_000
"""Methods that run the model are fitted to so many of the training images."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A suite's data, what is missing of it, and what there is to say of the model."""

    data: Data
    missing: tuple[Missing, ...]
    model: Mapping[str, Any]


def prepare(
    suite: Suite,
    root: str | PathLike[str] | None = None,
    cache: str | PathLike[str] = ".",
    *,
    backbone: Backbone | None = None,
    weights: str | PathLike[str] | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    workers: int = 0,
    limit: int | None = None,
    say: Say = lambda text: None,
) -> Prepared:
    """Features of all sets of a suite that are on disk, extracted once into the cache.

    Args:
        suite: what to open.
        root: the data root; None is the suite's own.
        cache: where features are kept, by what they were made of; an interrupted extraction goes on.
        backbone: another one than the suite's.
        weights: a checkpoint of one's own for the backbone.
        device: where the backbone runs.
        batch_size: images in one pass of it; None is as the suite says.
        workers: processes that decode images.
        limit: at most so many images of each set, spread evenly.
        say: told what is done.
    """
    place, backbone = suite.data_root(root), backbone or suite.backbone
    batch_size = backbone.batch_size if batch_size is None else batch_size
    opened, missing = open_sets(suite, place, limit)
    model = backbone.load(place, weights)
    if device is not None:
        model = model.to(device)
    extractor = Extractor(model, backbone.layers, backbone.head)
    folder = Path(cache).expanduser() / suite.name / "features"
    features: dict[str, Features] = {}
    for name, images in opened.items():
        images.preprocessing = preprocessing_of(backbone, model)
        path = folder / f"{name}-{digest_of(images, extractor)}"
        if not path.exists():
            say(f"features of {name}: {len(images):,} images")
        loader = DataLoader(images, batch_size=batch_size, num_workers=workers, shuffle=False)
        with silence():  # the cache is told by what it is made of, and is meant to be reused
            features[name] = extractor.extract(loader, path, description=name)
    if suite.contrast is not None:
        loader = DataLoader(opened["train"], batch_size=batch_size, num_workers=workers, shuffle=False)
        features["contrast"] = distorted(extractor, loader, suite.contrast, folder, say)
    data = assemble(suite, features, opened, extractor, batch_size)
    about = {"name": backbone.model, "fingerprint": extractor.fingerprint, **accuracy_of(data.test)}
    return Prepared(data, tuple(missing), about)


def distorted(extractor: Extractor, loader: DataLoader[Any], contrast: Contrast, folder: Path, say: Say) -> Features:
    """Features of distorted training images; images mix within a batch, so its size is part of what they are."""
    images: Any = loader.dataset
    samples = contrast.count(len(images))
    made_of = [digest_of(images, extractor), contrast.kinds, samples, contrast.seed, loader.batch_size]
    path = folder / f"contrast-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]}"
    if not path.exists():
        say(f"features of contrast: {samples:,} distorted images")
    with silence():
        return extractor.contrast(loader, path, contrast.kinds, samples=samples, seed=contrast.seed)


def prepare_stored(suite: Suite, folder: str | PathLike[str]) -> Prepared:
    """The same from stored features: a folder with a store for each set: ``train``, ``contrast``, ``test``, ``svhn``, …

    Without ``contrast`` HEAT does without.
    """
    place = Path(folder).expanduser()
    names = ["train", "test", *(["calibration"] if isinstance(suite.id.calibration, SetSpec) else [])]
    for name in names:
        if not (place / name).is_dir():
            raise InputError(
                f"There are no stored features of the ID set in {place / name}. Write them with heat-ood extract "
                f"--out {place / name}; the suite {suite.name} needs {', '.join(names)} and its OOD sets there."
            )
    if suite.contrast is not None and (place / "contrast").is_dir():
        names.append("contrast")
    found = {name: Features.open(place / name) for name in names}
    missing = []
    for spec in suite.ood:
        if (place / spec.name).is_dir():
            found[spec.name] = Features.open(place / spec.name)
        else:
            get = f"heat-ood extract --images … --out {place / spec.name}"
            missing.append(Missing(spec.name, get, str(place / spec.name)))
    check_some(suite, missing)
    data = assemble(suite, found, {}, None, 64)
    return Prepared(data, tuple(missing), {"fingerprint": data.train.fingerprint, **accuracy_of(data.test)})


def open_sets(suite: Suite, root: Path, limit: int | None) -> tuple[dict[str, ImageSet], list[Missing]]:
    """The images of all sets that are there; without the ID set nothing can be done, and all missing ones are named."""
    specs = {"train": suite.id.train, "test": suite.id.test}
    if isinstance(suite.id.calibration, SetSpec):
        specs["calibration"] = suite.id.calibration
    opened: dict[str, ImageSet] = {}
    needed: list[Missing] = []
    missing: list[Missing] = []
    for name, spec in [*specs.items(), *((spec.name, spec) for spec in suite.ood)]:
        try:
            opened[name] = open_set(spec, root, labels=name in specs, limit=limit)
        except MissingData as error:
            (needed if name in specs else missing).append(Missing(name, error.get, str(error.put)))
    if needed:
        lines = "; ".join(f"{m.name}: get {m.get or 'it'}, put it at {m.put}" for m in (*needed, *missing))
        raise InputError(
            f"The suite {suite.name} cannot run: its ID set is not there. {lines}. Or say where it is with ",
            Argument("root"),
            ".",
        )
    check_some(suite, missing)
    return opened, missing


def check_some(suite: Suite, missing: list[Missing]) -> None:
    if {m.name for m in missing} >= set(suite.counted):
        lines = "; ".join(f"{m.name}: get {m.get or 'it'}, put it at {m.put}" for m in missing)
        raise InputError(f"None of the OOD sets of {suite.name} is there. {lines}.")


def assemble(
    suite: Suite,
    features: Mapping[str, Features],
    images: Mapping[str, ImageSet],
    extractor: Extractor | None,
    batch_size: int,
) -> Data:
    """Split the test set where the suite says so, and leave the training images to fit a model-reading method."""
    parts, pictures = dict(features), dict(images)
    if not isinstance(suite.id.calibration, SetSpec):
        whole = parts["test"]
        count = suite.id.calibration if len(whole) > suite.id.calibration else len(whole) // 5  # a limited set
        rows = np.random.default_rng(suite.id.seed).permutation(len(whole))
        for name, chosen in (("calibration", rows[:count]), ("test", rows[count:])):
            parts[name] = whole.subset(torch.from_numpy(chosen))
            if "test" in images:
                pictures[name] = chosen_of(images["test"], chosen)
    if "train" in images:
        few = np.linspace(0, len(images["train"]) - 1, min(FITTED_IMAGES, len(images["train"]))).round().astype(int)
        pictures["train"] = chosen_of(images["train"], few)
    ood = {spec.name: parts[spec.name] for spec in suite.ood if spec.name in parts}
    return Data(
        parts["train"],
        parts["calibration"],
        parts["test"],
        ood,
        extractor,
        pictures,
        batch_size,
        parts.get("contrast"),
        preset_of(suite.id.name),
    )


def preset_of(name: str) -> str:
    """The paper's settings for an ID set; they differ in the width of the residuals alone."""
    return name if name in PRESETS else "imagenet" if name.startswith("imagenet") else "cifar10"


def chosen_of(images: ImageSet, rows: np.ndarray[Any, Any]) -> ImageSet:
    """Some images of a set, in the given order."""
    few = copy.copy(images)
    few.rows = [images.rows[int(row)] for row in rows]
    few.targets = None if images.targets is None else np.asarray(images.targets)[rows]
    return few


def preprocessing_of(backbone: Backbone, model: Any) -> Preprocessing:
    """What the suite says, or what the model itself asks for."""
    if backbone.preprocessing is not None:
        return backbone.preprocessing
    config = getattr(model, "pretrained_cfg", None)
    if not config:
        raise InputError(
            f"The model {backbone.model} does not say how it wants its images. Give the suite's backbone a table "
            "preprocessing with size, mean and std."
        )
    return Preprocessing.from_config(config if isinstance(config, dict) else vars(config))


def digest_of(images: ImageSet, extractor: Extractor) -> str:
    """What features are made of: the images, their preprocessing, the model and its layers."""
    made_of = [images.identity, images.preprocessing.to_dict(), extractor.fingerprint]
    return hashlib.sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()[:12]


def accuracy_of(test: Features) -> dict[str, float]:
    """The share of ID test samples that the model classifies correctly, where both are known."""
    found = right_and_sure(test)
    return {} if found is None else {"accuracy": found[0]}
