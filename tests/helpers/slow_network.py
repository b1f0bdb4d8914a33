"""A small network that takes its time, so that something can happen to whoever runs it."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor, nn


class Slow(nn.Module):
    """Two convolutions and a head, with a pause at each batch, where the folder has a file ``pause``."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, 10)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)

    def forward(self, images: Tensor) -> Tensor:
        if Path("pause").exists():
            time.sleep(0.15)
        maps = self.second(self.first(images).relu()).relu()
        return self.head(maps.mean((2, 3)))


def network() -> nn.Module:
    """What ``--model slow_network:network`` names."""
    return Slow()
