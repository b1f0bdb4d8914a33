"""Shards: what an engine costs and gives, how moments merge, how a store of many shards opens and reads.

python benchmarks/scale.py                      # all but the two long ones, small enough for a coffee
python benchmarks/scale.py --only merge         # one part: engine, merge, open, random, extract, jpeg, memory
python benchmarks/scale.py --only engine --seconds 300
python benchmarks/scale.py --only memory --samples 2000000

Two things are not what they would be on a cluster. Moments of 10,000 shards are those of a few files, read and added
again and again, since 10,000 of them would take 330 GB: the files are then in memory, and a disk would be slower. And
both Ray workers are on this machine.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from common import header, peak_memory, reset_peak
from heat_ood import HEAT, Extractor, Features
from heat_ood.allocation import keep_memory
from heat_ood.features import Shard, Space, keep_moments, merge_shards, shard_name, shards_of
from heat_ood.scale import Engine, extract
from methods import resnet50

CLASSES, WIDTH = 1000, 2048


class Watch:
    """The peak of anonymous memory while a block runs, in MiB, looked at twenty times a second."""

    def __enter__(self) -> Watch:
        self.most, self.over = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def look(self) -> None:
        while not self.over.wait(0.05):
            self.most = max(self.most, peak_memory("RssAnon"))

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self.thread.join()


class Network(nn.Module):
    """Convolutions that take the time."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = [3, width, width, width]
        self.maps = nn.Sequential(*(m for a, b in pairwise(sizes) for m in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.maps(images).mean((2, 3)))


def loader(n: int) -> DataLoader[Any]:
    torch.manual_seed(0)
    return DataLoader(TensorDataset(torch.rand(n, 3, 32, 32), torch.arange(n) % 10), batch_size=64)


def one_worker(n: int, folder: str) -> Callable[[Shard], Any]:
    """What a worker, and the plain process, do: hold the network, extract a shard."""
    extractor, data = Extractor(Network()), loader(n)

    def do(shard: Shard) -> None:
        extractor.extract(data, folder, shard=shard, progress=False)
        told = (
            f"{peak_memory():.0f} MiB resident, {peak_memory('RssAnon'):.0f} anonymous, its {data_size(data)} of images"
        )
        Path(f"{folder}-worker-{os.getpid()}").write_text(told)

    return do


def data_size(data: DataLoader[Any]) -> str:
    images: Any = data.dataset
    return f"{images.tensors[0].nbytes / 2**20:.0f} MiB"


def engine(seconds: float) -> None:
    """The plain process, one worker and two, shard by shard, on the same images."""
    torch.set_num_threads(1)
    network, probe = Network().eval(), torch.rand(64, 3, 32, 32)
    with torch.inference_mode():
        network(probe)
        began = time.perf_counter()
        for _ in range(10):
            network(probe)
    rate = 640 / (time.perf_counter() - began)
    shards = 20
    n = max(64 * shards, int(rate * seconds) // (64 * shards) * 64 * shards)
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        do = one_worker(n, f"{place}/plain")
        for number in range(shards):
            do(Shard(number, shards))
        plain = time.perf_counter() - began
        print(f"plain process   {plain:8.1f} s, {n / plain:,.0f} images/s of {n:,} in {shards} shards")
        for workers in (1, 2):
            began = time.perf_counter()
            make = functools.partial(one_worker, n, f"{place}/ray-{workers}")
            _, outcome = extract(make, f"{place}/ray-{workers}", shards, Engine(workers=workers), progress=False)
            took = time.perf_counter() - began
            print(
                f"Ray, {workers} worker{'s' if workers > 1 else ' '}  {took:8.1f} s with Ray's own start, "
                f"{outcome.seconds:.1f} s from the first worker's start: {plain / took:.2f} × the plain process; "
                f"{len(outcome.retried)} retried"
            )
        for file in sorted(Path(place).glob("*-worker-*")):
            print(f"{file.name.rpartition('-worker-')[0]:10} worker: {file.read_text()}")
        same = [(Path(place) / name / "manifest.json").read_bytes() for name in ("ray-1", "ray-2")]
        print(f"the stores of one worker and of two are equal: {same[0] == same[1]}")


def merge(shards: int) -> None:
    """Moments of many shards, 1,000 classes × 2,048 features."""
    from heat_ood.features._kept import Contents, Known, moments_file, stored
    from heat_ood.features._manifest import read_manifest

    space, few = Space(("avg",)), 4
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number in range(few):
            z = torch.rand(2 * CLASSES, WIDTH, generator=torch.Generator().manual_seed(number))
            Features(avg=z, labels=torch.arange(2 * CLASSES) % CLASSES).save(root / shard_name(number))
            began = time.perf_counter()
            keep_moments(root / shard_name(number), [space])
            summed = time.perf_counter() - began
        size = moments_file(root / shard_name(0), space).stat().st_size
        known = [(root / shard_name(i), Contents.of(read_manifest(root / shard_name(i)))) for i in range(few)]
        assert stored(*known[0][:1], space, known[0][1]) is not None
        began = time.perf_counter()
        with Watch() as watch:
            moments = Known(tuple(known[i % few] for i in range(shards)), CLASSES)(space)
        took = time.perf_counter() - began
        print(
            f"{shards:,} shards, {CLASSES:,} × {WIDTH:,}: {size / 2**20:.1f} MiB each "
            f"(class sums {8 * CLASSES * WIDTH / 2**20:.1f}, half of one outer product "
            f"{4 * WIDTH * (WIDTH + 1) / 2**20:.1f}), {shards * size / 2**30:.1f} GiB in all; merged in {took:.1f} s, "
            f"{1000 * took / shards:.1f} ms each; {moments.n:,} samples; peak anonymous {watch.most:,.0f} "
            f"MiB; summing one shard of {2 * CLASSES:,} samples {summed:.2f} s"
        )


def many(root: Path, shards: int, rows: int, width: int) -> Features:
    for number in range(shards):
        z = torch.rand(rows, width, generator=torch.Generator().manual_seed(number)).half()
        Features(avg=z, labels=torch.arange(rows) % 10).save(root / shard_name(number))
    return merge_shards(root)


def opening(shards: int) -> None:
    """A store of many shards."""
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        many(Path(place), shards, 4, 8)
        made = time.perf_counter() - began
        times = []
        for _ in range(3):
            began = time.perf_counter()
            opened = Features.open(place)
            times.append(time.perf_counter() - began)
        size = (Path(place) / "manifest.json").stat().st_size / 2**20
        print(
            f"{shards:,} shards, {len(opened):,} samples: opened in {min(times):.2f} s (at most 2 asked for), manifest "
            f"{size:.1f} MiB; made and closed in {made:.0f} s"
        )


def random_access(shards: int, rows: int = 2000, width: int = 1024) -> None:
    """Batches of random rows, across shards and in one file."""
    with tempfile.TemporaryDirectory() as place:
        store = many(Path(place) / "shards", shards, rows, width)
        Features(avg=store.avg, labels=store.labels).save(Path(place) / "one")
        one = Features.open(Path(place) / "one")
        rng, rates = np.random.default_rng(0), dict[str, list[float]](one=[], shards=[])
        for _ in range(30):
            index = torch.from_numpy(rng.integers(0, len(store), 256))
            for name, features in (("one", one), ("shards", store)):
                began = time.perf_counter()
                assert features[index].avg is not None
                rates[name].append(256 / (time.perf_counter() - began))
        alone, cut = (float(np.median(rates[name])) for name in ("one", "shards"))
        print(
            f"random rows of {len(store):,} × {width} float16: one file {alone:,.0f}/s, {shards} shards {cut:,.0f}/s: "
            f"{cut / alone:.0%} (at least 70 % asked for)"
        )


def forward() -> None:
    """``extract`` beside the bare forward pass: same network, same batches in memory, same run, in turns."""
    beside("three convolutions, 32 × 32", Network(), loader(2048))
    images = TensorDataset(torch.rand(64, 3, 224, 224), torch.arange(64) % 10)
    beside("ResNet-50, 224 × 224", resnet50(10), DataLoader(images, batch_size=16))


def beside(title: str, network: nn.Module, loader: DataLoader[Any], rounds: int = 5) -> None:
    data = [(x, y) for x, y in loader]
    n = sum(len(x) for x, _ in data)
    extractor = Extractor(network.eval())
    bare, whole, shares = [], [], []
    with tempfile.TemporaryDirectory() as place:
        extractor.extract(data, f"{place}/warm", progress=False)
        for number in range(rounds):
            began, used = time.perf_counter(), time.process_time()
            with torch.inference_mode():
                for x, _ in data:
                    network(x)
            bare.append(n / (time.perf_counter() - began))
            work, used = time.process_time() - used, time.process_time()
            began = time.perf_counter()
            extractor.extract(data, f"{place}/{number}", progress=False)
            whole.append(n / (time.perf_counter() - began))
            shares.append(work / (time.process_time() - used))
    a, b, cpu = (float(np.median(values)) for values in (bare, whole, shares))
    print(
        f"{title}: forward pass {a:,.0f} images/s, extract {b:,.0f}: {b / a:.1%} (at least 95 % asked for); in "
        f"processor time {cpu:.1%}; median of {rounds} rounds"
    )


def jpeg(n: int = 600) -> None:
    """What processes that decode give, where decoding takes the time."""
    from PIL import Image

    from heat_ood.images import Preprocessing, open_images

    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "images").mkdir()
        pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC)
        for number in range(n):
            picture.save(Path(place) / "images" / f"{number:05}.jpg", quality=90)
        images = open_images(Path(place) / "images", labels=False)
        images.preprocessing = Preprocessing(size=(224, 224))
        network = nn.Sequential(nn.Conv2d(3, 16, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        extractor = Extractor(nn.Sequential(network, nn.Linear(16, 10)))
        for workers in (0, 1, 2):
            began = time.perf_counter()
            extractor.extract(DataLoader(images, batch_size=32, num_workers=workers), progress=False)
            print(f"JPEG 500 × 375, {workers} decoding processes: {n / (time.perf_counter() - began):,.0f} images/s")


def memory(samples: int, shards: int = 200, width: int = 1024) -> None:
    """A fit and scores of many float16 features, in shards: the peak of anonymous memory."""
    place = Path(tempfile.mkdtemp(prefix="heat-ood-scale-"))
    try:
        weight = torch.randn(10, width, generator=torch.Generator().manual_seed(0)) / width**0.5
        for number in range(shards):
            g = torch.Generator().manual_seed(number)
            rows = samples // shards
            y = torch.arange(rows) % 10
            z = (torch.randn(rows, width, generator=g) + 3 * weight[y] * width**0.5).relu().half()
            Features(avg=z, labels=y, head=(weight, None)).save(place / shard_name(number))
        store = merge_shards(place)
        reset_peak()
        with Watch() as watch:
            began = time.perf_counter()
            heat = HEAT().fit(store, progress=False)
            fitted = time.perf_counter() - began
            began = time.perf_counter()
            scores = heat.score(store)
            scored = time.perf_counter() - began
        print(
            f"{samples:,} × {width} float16 in {len(shards_of(store))} shards: fitted in {fitted:.0f} s, scored in "
            f"{scored:.0f} s ({len(scores) / scored:,.0f} samples/s), peak anonymous memory {watch.most:,.0f} MiB "
            f"(below 2,048 asked for), peak resident with mapped files {peak_memory():,.0f} MiB"
        )
    finally:
        shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("engine", "merge", "open", "random", "extract", "jpeg", "memory"))
    parser.add_argument("--seconds", type=float, default=30.0, help="that the plain process is to take")
    parser.add_argument("--shards", type=int, default=1000, help="to merge and to open")
    parser.add_argument("--samples", type=int, default=200_000, help="of the memory run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_memory()  # as the command line and the workers do
    header("Shards, one thread a process")
    parts = {
        "engine": lambda: engine(given.seconds),
        "merge": lambda: merge(given.shards),
        "open": lambda: opening(given.shards),
        "random": lambda: random_access(50),
        "extract": forward,
        "jpeg": jpeg,
        "memory": lambda: memory(given.samples),
    }
    for name, part in parts.items():
        if given.only in (None, name):
            part()


if __name__ == "__main__":
    main()
