"""Real images through real networks with real weights: onnxruntime says what torch says.

A p-value may differ where a score is within 1e-4 of a spread of what it is ranked against (``export_data.tied``): there
rounding tells which of the two is larger. Everywhere else it is the same number, and so is the decision.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from torch import nn

from export_data import Pixels
from heat_ood import HEAT, create, methods, protect
from heat_ood.energies import InputEnergy
from heat_ood.export import export
from heat_ood.guarding import LiveJudge
from heat_ood.heat import AGAINST_CONTRAST
from heat_ood.images import IMAGENET, Preprocessing
from method_data import Case

pytestmark = pytest.mark.filterwarnings("ignore")
READ_FEATURES = tuple(name for name in methods() if name != "heat" and not isinstance(create(name), InputEnergy))
"""All methods that read features, as the registry has them; HEAT, which composes them here, has tests of its own."""
RATE, CLASSES = 0.1, 20


class Suite(NamedTuple):
    """A trained network; images that it was trained on, held-out ones, and new ones, of which the last are OOD."""

    model: Any
    train: Pixels
    held_out: Pixels
    new: np.ndarray[Any, Any]


def module_at(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"export_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cifar(data_dir: Path) -> Suite:
    nets = module_at(data_dir / "nets.py")
    prepared = Preprocessing((32, 32), nets.MEAN, nets.STD)

    def read(name: str, rows: slice) -> tuple[Any, Any]:
        with np.load(data_dir / name) as file:
            return file["images"][rows], file["labels"][rows] if "labels" in file else None

    images, labels = read("cifar100_train.npz", slice(0, 3000))
    kept = labels < CLASSES
    held, true = read("cifar100_test.npz", slice(0, 2000))
    known = held[true < CLASSES]
    new = np.concatenate([known[150:174], read("ood/svhn.npz", slice(0, 8))[0]])
    return Suite(
        of_few_classes(nets.load("cifar100")),
        Pixels(images[kept][:300], labels[kept][:300], prepared, None),
        Pixels(known[:150], np.zeros(150), prepared, None),
        new,
    )


@pytest.fixture(scope="module")
def imagenet(data_dir: Path) -> Suite:
    """EfficientNet-Lite0 with its weights."""
    file = data_dir / "imagenet" / "load.py"
    if not file.is_file():
        pytest.skip(f"no networks and images in {file.parent}")
    load = module_at(file)
    prepared, labels = Preprocessing((224, 224), *IMAGENET), load.labels("id")
    rows = {name: part[labels[part] < CLASSES] for name, part in load.protocol().items()}
    fit, held, test = rows["fit"], rows["calibration"], rows["test"][:6]
    images = load.images("id", np.concatenate([fit, held, test]))
    return Suite(
        of_few_classes(load.network("lite0")),
        Pixels(images[: len(fit)], labels[fit], prepared, None),
        Pixels(images[len(fit) : -len(test)], labels[held], prepared, None),
        np.concatenate([images[-len(test) :], load.images("textures", np.arange(2))]),
    )


def of_few_classes(model: Any) -> Any:
    """A trained network that tells fewer classes apart: as many as few images can speak for."""
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    head.weight, head.bias = (nn.Parameter(t.detach()[:CLASSES].clone()) for t in (head.weight, head.bias))
    head.out_features = CLASSES
    return model


def compared(suite: Suite, detector: Any, file: Path, alike: Any, **settings: Any) -> None:
    guard = protect(
        suite.model, suite.train.loader(), suite.held_out.loader(), detector=detector, progress=False, **settings
    )
    exported, judge = export(guard, file, fpr=RATE), LiveJudge(guard)
    live = judge.judge(suite.new)
    alike(exported.judge(suite.new), live, judge, RATE)
    alike(exported.judge(suite.new[:1]), judge.judge(suite.new[:1]), judge, RATE, among=live)


def test_every_method_that_reads_features(cifar: Suite, file: Path, alike: Any) -> None:
    """In one graph, side by side: every term of the composition is a method's own score."""
    assert {"ash", "knn", "openmax", "residual-flow", "vim", "ebm"} <= set(READ_FEATURES)
    every = HEAT([Case(name).create() for name in READ_FEATURES], residual=None, beta=1.0)
    compared(cifar, every, file, alike, layers=None)


def test_the_default_with_all_layers_and_contrast(imagenet: Suite, file: Path, alike: Any) -> None:
    detector = HEAT(residual=replace(AGAINST_CONTRAST, epochs=1, hidden=32))
    compared(imagenet, detector, file, alike, layers="stages", contrast=True)


def test_the_paper_s(cifar: Suite, file: Path, alike: Any) -> None:
    residual: Any = HEAT.paper("cifar100").residual
    quick = {name: replace(one, epochs=1, hidden=16, steps=2) for name, one in residual.items()}
    compared(cifar, HEAT.paper("cifar100", residual=quick), file, alike, layers=None)
