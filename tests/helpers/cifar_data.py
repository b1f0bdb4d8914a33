"""Small CIFAR files in their authors' binary layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["write_cifar", "write_cifar10", "write_cifar100"]


def write_cifar(file: Path, pixels: np.ndarray[Any, Any], *labels: np.ndarray[Any, Any]) -> None:
    """Records of the label bytes, then 1,024 bytes each of red, green and blue, row after row."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        for i, image in enumerate(pixels):
            out.write(bytes(int(column[i]) for column in labels))
            for channel in range(3):
                out.write(image[:, :, channel].tobytes())


def write_cifar10(folder: Path, a_batch: int = 4, tests: int = 6, seed: int = 0) -> dict[str, Any]:
    """Five training batches and a test batch; the images and labels by split."""
    rng, found = np.random.default_rng(seed), dict[str, Any]()
    for split, names, n in (
        ("train", [f"data_batch_{i}" for i in range(1, 6)], a_batch),
        ("test", ["test_batch"], tests),
    ):
        pixels = rng.integers(0, 256, (len(names) * n, 32, 32, 3), dtype=np.uint8)
        labels = np.arange(len(pixels)) % 10
        for i, name in enumerate(names):
            part = slice(i * n, (i + 1) * n)
            write_cifar(folder / f"{name}.bin", pixels[part], labels[part])
        found[split] = pixels, labels
    return found


def write_cifar100(folder: Path, n: int = 7, seed: int = 0) -> dict[str, Any]:
    """A training and a test file; a record has a coarse and a fine label."""
    rng, found = np.random.default_rng(seed), dict[str, Any]()
    for split in ("train", "test"):
        pixels = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        fine = 93 + np.arange(n) % 7
        write_cifar(folder / f"{split}.bin", pixels, fine // 5, fine)
        found[split] = pixels, fine
    return found
