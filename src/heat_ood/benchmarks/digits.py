"""Scikit-learn's digits with what is not one of them, and a small network to train on the spot: no download.

The 1,797 digits (8 × 8, values 0 to 16) are split at random by the seed: of the digits 0 to 6, 60 % train the network
and fit the detector, 20 % calibrate it, 20 % test it; 7, 8 and 9 are near-OOD. The network has seen neither the
calibration nor the test samples, but the same writers' hands occur in all parts. Far-OOD are patches of scikit-learn's
two sample photographs, stretched to the digits' range so that brightness does not give them away, and uniform noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["KNOWN", "Data", "Network", "load_data", "network", "train"]

KNOWN = 7
"""The digits below this are ID."""
_TRAIN, _CALIBRATION = 0.6, 0.2
_PATCH, _NOISE = 32, 500


@dataclass(frozen=True)
class Data:
    """Images (n, 1, 8, 8) with values in [0, 1]; labels where a class is known."""

    train: tuple[Tensor, Tensor]
    calibration: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    ood: dict[str, Tensor]


class Network(nn.Module):
    """Three convolutions, 64 maps of 4 × 4, their mean and a linear head.

    Example:
        >>> Network(7)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 7])
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stage1, self.stage2, self.stage3 = _block(1, 32), _block(32, 64), _block(64, 64)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.stage3(self.pool(self.stage2(self.stage1(x))))
        return self.head(maps.mean((2, 3)))  # type: ignore[no-any-return]


def _block(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def load_data(seed: int = 0) -> Data:
    """The digits, split by the seed, and what is not a known digit."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng(seed)
    known = rng.permutation(np.flatnonzero(digits.target < KNOWN))
    unknown = np.flatnonzero(digits.target >= KNOWN)
    ends = [round(_TRAIN * len(known)), round((_TRAIN + _CALIBRATION) * len(known))]

    def part(rows: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        return _as_images(digits.images[rows]), torch.from_numpy(digits.target[rows]).long()

    parts = [part(rows) for rows in np.split(known, ends)]
    noise = rng.integers(0, 17, (_NOISE, 8, 8))
    ood = {
        "digits 7–9": _as_images(digits.images[unknown]),
        "photo patches": _as_images(_patches()),
        "noise": _as_images(noise),
    }
    return Data(parts[0], parts[1], parts[2], ood)


def _as_images(values: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(values / 16).float().unsqueeze(1)


def _patches() -> np.ndarray[Any, Any]:
    """The photographs in grey, cut on a grid, averaged down to 8 × 8, each patch stretched to whole numbers 0 to 16."""
    from sklearn.datasets import load_sample_images

    found = []
    for photo in load_sample_images().images:
        grey = photo.mean(2)
        rows, columns = grey.shape[0] // _PATCH, grey.shape[1] // _PATCH
        cells = (
            grey[: rows * _PATCH, : columns * _PATCH]
            .reshape(rows * 8, _PATCH // 8, columns * 8, _PATCH // 8)
            .mean((1, 3))
        )
        found.append(cells.reshape(rows, 8, columns, 8).swapaxes(1, 2).reshape(-1, 8, 8))
    joined = np.concatenate(found)
    low, high = joined.min((1, 2), keepdims=True), joined.max((1, 2), keepdims=True)
    stretched: np.ndarray[Any, Any] = np.round(16 * (joined - low) / np.maximum(high - low, 1e-9))
    return stretched


def train(images: Tensor, labels: Tensor, seed: int = 0, epochs: int = 20, batch: int = 64) -> Network:
    """Plain cross-entropy; the same seed gives the same network."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Network(int(labels.max()) + 1)
        steps = epochs * -(-len(images) // batch)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
        for _ in range(epochs):
            for chosen in torch.split(torch.randperm(len(images)), batch):
                loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
    return model.eval()


def network() -> Network:
    """The network, trained on the spot (seconds)."""
    return train(*load_data().train)
