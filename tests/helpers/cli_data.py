"""A small model, its features, and how to run a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
