"""A small network for the extractor's tests, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Net", "expected_std", "images"]


class Net(nn.Module):
    """A small convolutional network whose pooling, head and result are what a test says."""

    def __init__(self, finish: Callable[[Net, Tensor], Any] | None = None, width: int = 12) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 12, 3, stride=2, padding=1)
        self.final = nn.Linear(width, 5)
        self.drop = nn.Dropout(0.5)
        self.finish = finish or (lambda net, x: net.final(x.mean((2, 3))))

    def maps(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.bn(self.conv(x)))))

    def forward(self, x: Tensor) -> Any:
        return self.finish(self, self.maps(x))


def images(n: int = 4, size: int = 8) -> Tensor:
    return torch.rand(n, 3, size, size)


def expected_std(maps: Tensor) -> Tensor:
    return maps.flatten(2).std(2, correction=0)
