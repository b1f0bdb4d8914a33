"""What the benchmarks share: features of a given size, timing, and the header that every result stands under."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from heat_ood import Features, __version__
from heat_ood.benchmarks import machine

__all__ = ["best", "features", "header", "matmul_rate", "peak_memory", "reset_peak"]


def header(title: str) -> None:
    """Say what is measured, on what, with which versions."""
    print(f"{title}\n{machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, heat-ood {__version__}")
    print(
        f"bare 2048² float32 product: {matmul_rate():.0f} GFLOP/s; command: python {' '.join(sys.argv)}\n", flush=True
    )


def best(function: Callable[[], object], repeats: int = 5, warm: bool = True) -> float:
    """The shortest of several runs, in seconds: what the work takes when nothing else gets in its way."""
    if warm:
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def matmul_rate(size: int = 2048) -> float:
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / best(lambda: a @ b) / 1e9


def features(n: int, d: int, classes: int, seed: int = 0) -> Features:
    """Sparse, non-negative, class-dependent features with a head, made a part at a time."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(classes, d, generator=generator)
    weight = torch.randn(classes, d, generator=generator) / d**0.5
    labels = torch.arange(n) % classes
    avg, std = torch.empty(n, d), torch.empty(n, d)
    for part in torch.arange(n).split(4096):
        for target in (avg, std):
            target[part] = (centres[labels[part]] + 0.5 * torch.randn(len(part), d, generator=generator)).relu()
    return Features(avg=avg, std=std, labels=labels, head=(weight, torch.zeros(classes)))


def reset_peak() -> None:
    """Start measuring the peak of resident memory anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory(kind: str = "VmHWM") -> float:
    """A line of /proc/self/status in MiB: VmHWM is the peak of resident memory, RssAnon what is anonymous now."""
    for line in Path(f"/proc/{os.getpid()}/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) / 1024
    return float("nan")
