"""A small model, its features, and how to run a command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heat_ood import Features

MODEL = """
import time
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small()
    def forward(self, x):
        time.sleep(0.05)
        return self.net(x)

slow = Slow

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small()
    def forward(self, x):
        return self.net(x).softmax(1)
"""

EXTRACT = ("extract", "--model", "tiny_model_of_cli:small", "--size", 8, "--batch-size", 5)
Run = Callable[..., Any]


def features(seed: int, n: int = 120, shift: float = 0.0) -> Features:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    z = np.abs(rng.normal(size=(n, 6)) + 3 * np.eye(3, 6)[labels] + shift * (np.arange(6) > 2)).astype(np.float32)
    return Features(avg=z, std=z[:, ::-1].copy(), labels=labels, head=(np.eye(3, 6, dtype=np.float32), None))


COLOURS = """
import torch
from torch import nn

def colours():
    '''Right on pictures whose strongest channel is their class, prepared as they are: mean and std of one half.'''
    net = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )
    with torch.no_grad():
        for layer, weight in ((net[0], torch.eye(3).repeat(2, 1) * torch.tensor([[1.0]] * 3 + [[-1.0]] * 3)),
                              (net[2], torch.eye(6))):
            layer.weight.copy_(weight[:, :, None, None])
            layer.bias.zero_()
        net[6].weight.copy_(8 * torch.cat([torch.eye(3), -torch.eye(3)], 1))
        net[6].bias.zero_()
    return net
"""
"""A network that needs no training, for ``colour_pictures``."""


def colour_pictures(
    folder: Path, each: int, seed: int, names: Sequence[str] = ("red", "tan", "sky"), size: int = 8
) -> Path:
    """A folder of noisy pictures in class folders: the strongest channel is the class."""
    rng = np.random.default_rng(seed)
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.normal(80, 30, (size, size, 3)) + 90 * np.eye(3)[label] * rng.uniform(0.5, 1.3)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder
