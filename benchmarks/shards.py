"""Stores of shards against one file: ``python benchmarks/shards.py [--folder …]``.

Makes stores of float16 features in shards and in one, says how long it takes to close and to open them, and how many
rows a second come by their numbers at random, from files that are in the page cache. One thread.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from common import header
from heat_ood.features import Features, merge_shards, shard_name

SETTINGS = ((200, 1000, 1024), (1000, 200, 1024), (10_000, 20, 1024))
"""Shards, samples in each, and features of a sample."""
BATCH, BATCHES, ROUNDS = 1024, 100, 7


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def make(folder: Path, shards: int, size: int, width: int) -> None:
    """The first shard is saved, the others are copies of it: what they hold does not matter here."""
    generator = torch.Generator().manual_seed(0)
    first = Features(
        avg=torch.rand(size, width, generator=generator).half(),
        labels=torch.arange(size) % 10,
        head=(torch.rand(10, width, generator=generator), None),
        fingerprint="0" * 64,
    )
    first.save(folder / shard_name(0))
    for number in range(1, shards):
        shutil.copytree(folder / shard_name(0), folder / shard_name(number))


def measure(root: Path, shards: int, size: int, width: int) -> str:
    folder = root / f"{shards}"
    make(folder, shards, size, width)
    closing = seconds(lambda: merge_shards(folder))
    opening = statistics.median(seconds(lambda: Features.open(folder)) for _ in range(5))
    many = Features.open(folder)
    many.save(root / f"{shards}-one")
    one = Features.open(root / f"{shards}-one")
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, len(one), BATCH) for _ in range(BATCHES)]

    def gather(features: Features) -> None:
        for some in rows:
            _ = features[some].avg

    gather(one)
    gather(many)
    times = [(seconds(lambda: gather(one)), seconds(lambda: gather(many))) for _ in range(ROUNDS)]
    rates = [BATCH * BATCHES / statistics.median(column) for column in zip(*times, strict=True)]
    share = statistics.median(a / b for a, b in times)
    times_told = f"{closing:.1f} s | {opening:.2f} s | {rates[0]:,.0f} | {rates[1]:,.0f} | {share:.0%}"
    return f"| {shards:,} × {size:,} | {times_told} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the stores are made, and removed again")
    given = parser.parse_args()
    torch.set_num_threads(1)
    header("Stores of shards")
    print("| shards × samples | close | open | rows a second, one file | in shards | share |")
    print("|---|---|---|---|---|---|")
    for setting in SETTINGS:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            print(measure(Path(folder), *setting), flush=True)


if __name__ == "__main__":
    main()
