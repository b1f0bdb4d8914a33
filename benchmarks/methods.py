"""What each method costs: fit, throughput, memory, and its share of the backbone's own forward pass.

    python benchmarks/methods.py [--methods knn vim] [--imagenet] [--save docs/results/cost.md]

Features are made, of the size that a CIFAR network gives (50,000 training samples of 512 features, 10 classes) or, with
--imagenet, a ResNet-50 (2,048 features, 1,000 classes); 10,000 samples are scored. The backbone is a ResNet-50 on
224 × 224 images, as in the paper's cost table; odin, gram and the ensemble run it, and are timed on the same images.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from common import best, features, header, peak_memory, reset_peak
from heat_ood import Energy, Features, create, methods

IMAGES = 16
BEYOND = {"inputs", "maps", "models"}


class Bottleneck(nn.Module):
    def __init__(self, inner: int, stride: int, before: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, 4 * inner, 1, bias=False),
            nn.BatchNorm2d(4 * inner),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or before != 4 * inner:
            self.skip = nn.Sequential(nn.Conv2d(before, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner))

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.skip(x)).relu()


def resnet50(classes: int = 1000) -> nn.Module:
    """The architecture of He et al. (2016), untrained: it takes as long as a trained one."""
    stem = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    )
    stages, before = [], 64
    for inner, stride, depth in ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3)):
        stages.append(nn.Sequential(*[Bottleneck(inner, s, b) for s, b in shapes(inner, stride, before, depth)]))
        before = 4 * inner
    return nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes)).eval()


def shapes(inner: int, stride: int, before: int, depth: int) -> list[tuple[int, int]]:
    return [(stride, before)] + [(1, 4 * inner)] * (depth - 1)


@torch.inference_mode()
def pass_of(model: nn.Module, images: Tensor) -> float:
    """Seconds of the backbone an image."""
    return best(lambda: model(images), repeats=2) / len(images)


def on_features(name: str, train: Features, test: Features) -> tuple[float, float, float]:
    """Seconds to fit, seconds a sample, MiB held at most beyond what there was while scoring."""
    method: list[Energy] = []
    seconds = best(lambda: (method.clear(), method.append(create(name).fit(train))), repeats=1, warm=False)
    before = peak_memory("VmRSS")
    reset_peak()
    method[0].score(test)
    beyond = peak_memory() - before
    return seconds, best(lambda: method[0].score(test), repeats=3) / len(test), beyond


def on_images(name: str, images: Tensor, model: nn.Module) -> tuple[float, float, float]:
    members = [model] * 5 if name == "ensemble" else [model]
    method = create(name).attach(*members)  # type: ignore[attr-defined]
    seconds = best(lambda: method.fit(images), repeats=1, warm=False)
    before = peak_memory("VmRSS")
    reset_peak()
    method.score(images)
    beyond = peak_memory() - before
    return seconds, best(lambda: method.score(images), repeats=3) / len(images), beyond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(methods()))
    parser.add_argument("--imagenet", action="store_true")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    d, classes = (2048, 1000) if options.imagenet else (512, 10)
    header(f"Cost of each method: 50,000 training samples of {d} features, {classes} classes; 10,000 scored")
    warnings.filterwarnings("ignore")

    model, images = resnet50(), torch.randn(IMAGES, 3, 224, 224)
    train, test = features(50_000, d, classes), features(10_000, d, classes, seed=1)

    lines = ["| method | fit, s | samples/s | µs a sample | share of a ResNet-50 pass | MiB beyond the features |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    print("\n".join(lines), flush=True)
    passes: list[float] = []
    for name in options.methods:
        beyond = set(methods()[name]) & BEYOND
        fit, seconds, memory = on_images(name, images, model) if beyond else on_features(name, train, test)
        forward = pass_of(model, images)
        passes.append(forward)
        row = [name, "–" if beyond else f"{fit:.2f}", f"{1 / seconds:,.0f}", f"{1e6 * seconds:,.1f}"]
        row += [f"{100 * seconds / forward:.3g} %", f"{max(memory, 0):,.0f}"]
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    if options.save:
        note = f"`python {' '.join(sys.argv)}`: {torch.get_num_threads()} threads, torch {torch.__version__}. "
        note += f"A ResNet-50 pass of one 224 × 224 image, in batches of {IMAGES}, took {1000 * min(passes):.0f} to "
        note += f"{1000 * max(passes):.0f} ms; it is measured anew beside each method, for the machine is shared. "
        note += "The ensemble has five members; odin, gram and the ensemble include their passes through the model."
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(note + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
