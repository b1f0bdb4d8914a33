"""A small guard for the tests of the service, the pictures that it judges, and a real process that serves it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from heat_ood import protect
from heat_ood.images import Preprocessing

__all__ = ["HALF", "Pictures", "encoded", "make_guard", "served", "small"]

HALF = Preprocessing(size=(12, 12), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))
SOURCE = Path(__file__).parents[2] / "src"


class Pictures(Dataset[Any]):
    """Random pictures of three classes, prepared as the guard's own."""

    classes = ("ant", "bee", "cat")
    preprocessing = HALF

    def __init__(self, n: int, seed: int) -> None:
        self.pixels = np.random.default_rng(seed).integers(0, 256, (n, 20, 16, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return HALF(Image.fromarray(self.pixels[i])), i % 3


def small() -> nn.Module:
    """A network by its name, ``serving_data:small``, so that a folder can keep it."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def make_guard(detector: Any, folder: Path | None = None, **options: Any) -> Any:
    from heat_ood import Extractor

    train, held_out = (DataLoader(Pictures(n, seed), batch_size=50) for n, seed in ((150, 0), (300, 1)))
    extractor = Extractor(small(), name="serving_data:small")
    options = {"contrast": False, "progress": False, **options}
    return protect(extractor, train, held_out, folder, detector=detector, **options)


def encoded(pixels: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


@contextmanager
def served(guard: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[tuple[str, Any]]:
    """``heat-ood serve`` as a process of its own: its address, and the process; it is ended with the block."""
    paths = [str(SOURCE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **(env or {})}
    line = [sys.executable, "-m", "heat_ood", "serve", str(guard), "--port", "0", *options]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        if not re.fullmatch(r"http://\S+:\d+", first):
            _, said = process.communicate(timeout=20)
            raise AssertionError(f"{first!r}: {said}")
        yield first, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=20)
        for stream in (process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
