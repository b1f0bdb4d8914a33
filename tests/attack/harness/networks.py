"""Small networks for the attack, among them one that is made again by its name."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Residual", "Tokens", "plain", "small"]


def seeded(seed: int = 0) -> torch.Generator:
    torch.manual_seed(seed)
    return torch.default_generator


def small() -> nn.Module:
    """Three classes, images of any size; the same at every call."""
    with torch.random.fork_rng(devices=[]):
        seeded(0)
        layers = (nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU())
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)).eval()


def plain(stem: nn.Module | None = None, seed: int = 0) -> nn.Sequential:
    """A convolutional network with BatchNorm; ``stem`` is a first block that several of them share."""
    with torch.random.fork_rng(devices=[]):
        seeded(seed)
        first = stem or nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        second = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.3))
        return nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


class Residual(nn.Module):
    """Two residual blocks; what is pooled is made by a function, not by a module."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            seeded(seed)
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.bn1, self.conv1 = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)
            self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
            self.bn2, self.conv2 = nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, padding=1)
            self.drop, self.head = nn.Dropout(0.5), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(x + self.conv1(F.relu(self.bn1(x))))
        x = self.down(x)
        x = F.relu(x + self.conv2(F.relu(self.bn2(x))))
        return self.head(self.drop(x.mean((2, 3))))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """A transformer over the patches of an image."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            seeded(seed)
            self.patches = nn.Conv2d(3, 16, 4, stride=4)
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True) for _ in range(2)
            )
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # type: ignore[no-any-return]
