"""What a guard costs beside its bare network, as a ratio within one run.

    python benchmarks/guard.py [--repetitions 60] [--only cifar]

The network alone, and the same network guarded: without earlier layers, by the energy of its logits and by HEAT; and
with all stages by HEAT corrected against contrast, which is what ``protect`` makes. Passes alternate, so that what else
the machine does meets all alike; the ratios are of medians, of fewer passes where batches are large. ResNet-34 takes
224 × 224 images, the small CIFAR network 32 × 32. The detectors are fitted to few images: what they say does not matter
here, what they cost does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from common import header
from heat_ood import HEAT, Extractor, create
from heat_ood.heat import AGAINST_CONTRAST

ROOT = Path(__file__).parents[1]
BATCHES = (1, 8, 32)
FITTED, CONTRAST = 200, 100
"""Images to fit to, and distorted ones."""
REST = 0.02
"""Seconds between two passes, for threads that spin a while after theirs and would slow down the next."""


def resnet34() -> tuple[nn.Module, tuple[int, ...], int]:
    """As timm makes it, with weights that nobody trained."""
    try:
        import timm
    except RuntimeError:  # a torchvision that is not of this torch: the network needs none of its operators
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import timm

    model: nn.Module = timm.create_model("resnet34", pretrained=False, num_classes=10)
    return model.eval(), (3, 224, 224), 20


def cifar() -> tuple[nn.Module, tuple[int, ...], int]:
    """The small network of the development data, or one like it where they are not there."""
    sys.path.insert(0, str(ROOT / "suites"))
    data = Path(os.environ.get("HEAT_OOD_DATA", ROOT.parent / "shared" / "data"))
    from shared_networks import cifar10

    return cifar10(data).eval(), (3, 32, 32), 64


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...], int]]] = {"resnet34": resnet34, "cifar": cifar}


def guards(model: nn.Module, shape: tuple[int, ...], batch: int) -> dict[str, Any]:
    """The network guarded in several ways, each fitted and calibrated."""
    generator = torch.Generator().manual_seed(0)

    def loader(n: int) -> list[tuple[Tensor, Tensor]]:
        images = [torch.rand(min(batch, n - i), *shape, generator=generator) for i in range(0, n, batch)]
        return [(x, torch.arange(i * batch, i * batch + len(x)) % 10) for i, x in enumerate(images)]

    train, held = loader(FITTED), loader(CONTRAST)
    found: dict[str, Any] = {}
    for name, layers in (("no layers", None), ("stages", "stages")):
        extractor = Extractor(model, layers)
        fitting, calibration = (extractor.extract(part, progress=False) for part in (train, held))
        if layers is None:
            found[f"{name}, energy"] = extractor.guard(create("energy").fit(fitting).calibrate(calibration))
        contrast = extractor.contrast(held, progress=False)
        corrected = HEAT(residual=replace(AGAINST_CONTRAST, epochs=1)).fit(fitting, contrast, progress=False)
        found[f"{name}, HEAT"] = extractor.guard(corrected.calibrate(calibration))
    return found


def medians(ways: dict[str, Callable[[Tensor], object]], images: Tensor, repetitions: int) -> dict[str, float]:
    """Seconds of a pass by each way; one after the other, over and over."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(repetitions + 3):
        order = list(ways) if i % 2 else list(ways)[::-1]  # nobody always comes after the same one
        for name in order:
            time.sleep(REST)
            start = time.perf_counter()
            ways[name](images)
            if i >= 3:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(some) for name, some in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=60)
    parser.add_argument("--only", choices=NETWORKS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    header("A guard beside its bare network: the median of its passes by that of the network's, less one")
    print("| network | batch | bare, ms | guard | more, % | more, ms |\n|---|---|---|---|---|---|")
    for network in [options.only] if options.only else NETWORKS:
        model, shape, batch = NETWORKS[network]()
        made = guards(model, shape, batch)

        @torch.inference_mode()
        def bare(images: Tensor, model: nn.Module = model) -> object:
            return model(images)

        for size in BATCHES:
            images = torch.rand(size, *shape)
            found = medians({"bare": bare, **made}, images, max(5, round(options.repetitions / size**0.5)))
            base = found.pop("bare")
            for name, seconds in found.items():
                more = f"{100 * (seconds / base - 1):.1f} | {1000 * (seconds - base):.2f}"
                print(f"| {network} | {size} | {1000 * base:.2f} | {name} | {more} |", flush=True)


if __name__ == "__main__":
    main()
