"""A folder as a reader of the README or of the page on deployment has it: a network, its weights, images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

__all__ = ["NETS", "furnish", "trained"]

NETS = """
from torch import nn


def small():
    first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU())
    return nn.Sequential(first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 2))
"""


def picture(path: Path, seed: int, label: int) -> None:
    pixels = np.random.default_rng(seed).integers(60 * label, 60 * label + 120, (12, 12, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def trained(model: nn.Module) -> nn.Module:
    """A few steps on images of the two kinds, dark and bright."""
    torch.manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        labels = torch.randint(0, 2, (32,))
        x = (torch.rand(32, 3, 12, 12) * 120 + 60 * labels.view(-1, 1, 1, 1)) / 255
        loss = nn.functional.cross_entropy(model((x - 0.45) / 0.22), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def furnish(folder: Path) -> None:
    """A network with its weights, images in folders and a photograph."""
    (folder / "nets.py").write_text(NETS)
    space: dict[str, Any] = {}
    exec(NETS, space)
    save_file(trained(space["small"]()).state_dict(), folder / "small.safetensors")
    for part, count, first in (("train", 40, 0), ("held-out", 30, 500)):
        for label, name in enumerate(("dark", "bright")):
            for i in range(count):
                picture(folder / part / name / f"{i}.png", first + 1000 * label + i, label)
    picture(folder / "photo.png", 99, 1)
