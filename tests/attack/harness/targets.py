"""Valid files of every format, made once: what the attack starts from."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).parents[2] / "helpers"
if str(HELPERS) not in sys.path:
    sys.path.insert(0, str(HELPERS))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

import method_data  # noqa: E402
from heat_ood import HEAT, Extractor, Features, Residual, create, protect  # noqa: E402

from . import networks  # noqa: E402

__all__ = ["KINDS", "MODEL", "Target", "build", "found"]

MODEL = "harness.networks:small"
"""The model of guards and of images on the command line."""
KINDS = ("detector", "store", "checkpoint", "guard", "results", "evaluation", "suite", "images", "npz")
SETTINGS: dict[str, Any] = {"priors": ("gmm", "energy"), "residual": Residual(epochs=3, hidden=8, depth=2, batch=64)}
"""Of the fit that is interrupted, and resumed."""


@dataclass(frozen=True)
class Target:
    """A folder of valid files.

    Args:
        kind: the format.
        name: of the method or the variant.
        folder: where it lies.
    """

    kind: str
    name: str
    folder: Path


def found(root: Path) -> dict[str, list[Target]]:
    """What :func:`build` made, by format."""
    return {kind: [Target(kind, folder.name, folder) for folder in sorted((root / kind).iterdir())] for kind in KINDS}


def build(root: Path) -> None:
    """Make all of them; the same on every run."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detectors(root / "detector")
        stores(root / "store")
        checkpoints(root / "checkpoint")
        pictures(root)
        guards(root)
        results(root)
        suites(root / "suite")
        tools(root / "tools")


def detectors(root: Path) -> None:
    """One of each method that is registered, and of some ways to put them together."""
    from storage_data import QUICK, VARIANTS

    for name in method_data.CASES:
        case = method_data.Case(name)
        case.fitted().calibrate(case.data(60, seed=1)).save(root / name)
    for name in ("heat joint", "heat mapping", "heat chains", "composition", "hybrid", "heat per class"):
        VARIANTS[name]().save(root / f"+{name}")
    assert QUICK.hidden < 100


def stores(root: Path) -> None:
    method_data.samples(60, seed=1).save(root / "samples")
    method_data.samples(60, seed=5).save(root / "others")
    extractor = Extractor(networks.small(), layers="stages", name=MODEL)
    images = torch.rand(48, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    loader = [(images[i : i + 16], torch.arange(16) % 3) for i in range(0, 48, 16)]
    extractor.extract(loader, root / "extracted", progress=False)


def checkpoints(root: Path) -> None:
    """A fit that was interrupted in its second residual, so that one is finished and one is begun."""
    from detector_data import Stop
    from heat_ood.heat import _detector as library

    for seed in (0, 1):
        data, usual = method_data.samples(240, seed=seed), library.progress_bars
        library.progress_bars = Stop(16 - 2 * seed)  # type: ignore[assignment]
        try:
            HEAT(**SETTINGS).fit(data, checkpoint=root / str(seed))
        except KeyboardInterrupt:
            pass
        finally:
            library.progress_bars = usual
        assert any((root / str(seed)).iterdir()), "the fit was not interrupted where there is something to keep"


def pictures(root: Path) -> None:
    """A few images in each kind of file that is read, and archives of them."""
    for name, seed in (("few", 0), ("more", 1)):
        rng, folder = np.random.default_rng(seed), root / "images" / name
        folder.mkdir(parents=True)
        for kind in ("png", "jpg", "bmp", "gif", "tif", "webp", "ppm"):
            pixels = rng.integers(0, 255, (8 + seed, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"image.{kind}")
        archive = root / "npz" / name
        archive.mkdir(parents=True)
        images, labels = rng.integers(0, 255, (6, 8, 8, 3), dtype=np.uint8), np.arange(6) % 3
        (np.savez_compressed if seed else np.savez)(archive / "images.npz", images=images, labels=labels)


def guards(root: Path) -> None:
    """One of a model with a name, before images whose preparation is known."""
    from torch.utils.data import DataLoader

    from heat_ood.images import Preprocessing, open_images

    loaders = []
    for part, count in (("train", 60), ("held-out", 40)):
        for label in range(3):
            folder = root / "pictures" / part / f"class{label}"
            folder.mkdir(parents=True)
            rng = np.random.default_rng([label, count])
            for i in range(count // 3):
                pixels = rng.normal(80, 30, (8, 8, 3)) + 90 * np.eye(3)[label]
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        images = open_images(root / "pictures" / part)
        images.preprocessing = Preprocessing(size=(8, 8))
        loaders.append(DataLoader(images, batch_size=20))
    for name, method in (("heat", HEAT(("gmm", "energy"), residual=None)), ("knn", create("knn", k=5))):
        extractor = Extractor(networks.small(), layers="stages", name=MODEL)
        protect(extractor, *loaders, root / "guard" / name, detector=method, contrast=False, progress=False)


def results(root: Path) -> None:
    from results_data import cost, gallery, rich

    for name, made in (("main", rich), ("gallery", gallery), ("cost", cost)):
        (root / "results" / name).mkdir(parents=True)
        made().save(root / "results" / name / "results.json")
    from heat_ood.evaluation import evaluate_scores

    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        scores = {f"set {i}": rng.normal(i, 1, 50) for i in range(1, 3)}
        found = evaluate_scores(rng.normal(size=80), scores, curves=True, bootstrap=20)
        (root / "evaluation" / name).mkdir(parents=True)
        found.save(root / "evaluation" / name / "evaluation.json")


SUITE = """
title = "A small suite"
notes = ["one", "two"]

[id]
name = "things"
title = "Things"
calibration = 20
seed = 0
train = {{ reader = "npz", path = "images.npz", get = "nowhere" }}
test = {{ reader = "npz", path = "images.npz", limit = 40 }}

[backbone]
title = "a small network"
model = "{model}"
layers = "{layers}"

[backbone.preprocessing]
size = 8
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]

[contrast]
kinds = ["mixup", "jigsaw-2"]
samples = 20

[[ood]]
name = "noise"
group = "far"
reader = "npz"
path = "images.npz"

[[ood]]
name = "near"
group = "near"
reader = "npz"
path = "images.npz"
limit = 30

[left_out]
ensemble = "it needs several networks"
"""


def suites(root: Path) -> None:
    rng = np.random.default_rng(0)
    for name, layers in (("stages", "stages"), ("one", "0")):
        (root / name).mkdir(parents=True)
        (root / name / "suite.toml").write_text(SUITE.format(model=MODEL, layers=layers))
        images, labels = rng.integers(0, 255, (60, 8, 8, 3), dtype=np.uint8), np.arange(60) % 3
        np.savez(root / name / "images.npz", images=images, labels=labels)


def tools(root: Path) -> None:
    """What routes need besides: features to score and to fit, and a program that no image may start."""
    method_data.samples(16, seed=2).save(root / "test")
    method_data.samples(240, seed=0).save(root / "train")
    method_data.samples(20, seed=3).save(root / "ood")
    images = method_data.Case("gmm").fitted().calibrate(method_data.samples(60, seed=1))
    images.save(root / "gmm")
    data = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    extractor = Extractor(networks.small(), name=MODEL)
    train: Features = extractor.extract([(data, torch.arange(60) % 3)], progress=False)
    create("gmm").fit(train).save(root / "of-images")
    create("gmm").fit(Features.open(root.parent / "store" / "extracted")).save(root / "of-extracted")
    (root / "programs").mkdir()
    for name in ("gs", "gswin64c"):
        program = root / "programs" / name
        program.write_text('#!/bin/sh\ntouch "$HEAT_OOD_CANARY"\n')
        program.chmod(0o755)
    (root / "built.json").write_text(json.dumps({"torch": torch.__version__}))
