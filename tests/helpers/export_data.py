"""Guards that are exported, and pictures for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from heat_ood import Residual, protect
from heat_ood.features import Guard
from heat_ood.images import Preprocessing

__all__ = ["HALF", "SMALL", "Pixels", "guarded", "noise", "small_network", "tied"]

HALF = Preprocessing(size=(12, 10), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))
SMALL = Residual(epochs=1, hidden=8, depth=3)


class Pixels(Dataset[Any]):
    """Pixels of classes, prepared as a guard is to prepare them."""

    def __init__(
        self, pixels: np.ndarray[Any, Any], labels: Any, preprocessing: Preprocessing, classes: tuple[str, ...] | None
    ) -> None:
        self.pixels, self.labels, self.preprocessing, self.classes = pixels, labels, preprocessing, classes

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.preprocessing.normalised(self.pixels[i][None])[0], int(self.labels[i])

    def loader(self, batch: int = 50) -> DataLoader[Any]:
        return DataLoader(self, batch_size=batch)


def noise(n: int, seed: int, level: int = 0) -> np.ndarray[Any, Any]:
    """Noisy pictures of three colours."""
    random = np.random.default_rng(seed)
    strong = 60 * np.eye(3)[np.arange(n) % 3][:, None, None]
    return (random.integers(0, 120, (n, 12, 10, 3)) + strong + level).clip(0, 255).astype(np.uint8)


def small_network() -> nn.Module:
    """Not trained, but with a head that predicts each class now and then."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3)),
    )
    head: Any = network[6]
    with torch.no_grad():
        head.weight.normal_(std=8)
        head.bias.copy_(-head.weight @ network[:6](HALF.normalised(noise(60, 9))).mean(0))
    return network


def guarded(detector: Any, *, per_class: bool = False, model: nn.Module | None = None, **settings: Any) -> Guard:
    parts = (Pixels(noise(n, seed), np.arange(n) % 3, HALF, ("ant", "bee", "cat")) for n, seed in ((150, 0), (240, 1)))
    train, held_out = (part.loader() for part in parts)
    return protect(
        model or small_network(), train, held_out, detector=detector, per_class=per_class, progress=False, **settings
    )


def tied(scores: np.ndarray[Any, Any], limits: np.ndarray[Any, Any], margin: float) -> np.ndarray[Any, Any]:
    """Where a score is so near to what it is ranked against that rounding tells which is larger: ties."""
    ordered = np.sort(limits)
    return np.searchsorted(ordered, scores + margin) != np.searchsorted(ordered, scores - margin)
