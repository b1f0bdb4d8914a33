"""What all tests share: the data folder, and a torchvision that imports where its compiled part is missing."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
import torch


def repair_torchvision() -> torch.library.Library | None:
    """Declare the operators that torchvision registers fake kernels for, if its own library could not be loaded."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return library
    return None


_torchvision = repair_torchvision()
torch.set_num_threads(1)  # two workers share two cores


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the CIFAR networks and images: HEAT_OOD_DATA, or ../shared/data beside the repository."""
    folder = Path(os.environ.get("HEAT_OOD_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "nets.py").is_file():
        pytest.skip(f"no data in {folder}; set HEAT_OOD_DATA to the folder that holds nets.py")
    return folder
