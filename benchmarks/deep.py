"""What the deep default costs beside a ResNet-50 pass: the layers' pooling, and the score from pooled features.

    python benchmarks/deep.py [--samples 8192]

Features are made, of the widths of a ResNet-50's four stages (256, 512, 1,024 and 2,048 channels, avg and std of each,
1,000 classes); the default is fitted with contrast, its residual for one epoch, and scores 2,048 of them. The backbone
is a ResNet-50 on 224 × 224 images in batches of 16; its pooling is timed as the difference of a pass with and without.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from common import best, header
from heat_ood import HEAT, Extractor, Features
from heat_ood.heat import AGAINST_CONTRAST
from methods import resnet50

WIDTHS, CLASSES, IMAGES = (256, 512, 1024, 2048), 1000, 16


def made(n: int, seed: int) -> Features:
    """Non-negative features of every stage, with class centres; the last stage is what the head reads."""
    generator, labels = torch.Generator().manual_seed(seed), torch.arange(n) % CLASSES

    def column(width: int) -> torch.Tensor:
        centres = torch.rand(CLASSES, width, generator=torch.Generator().manual_seed(width))
        return (centres[labels] + 0.5 * torch.randn(n, width, generator=generator)).relu()

    *early, last = ((column(w), column(w)) for w in WIDTHS)
    weight = torch.randn(CLASSES, WIDTHS[-1], generator=torch.Generator().manual_seed(0)) / WIDTHS[-1] ** 0.5
    layers = {f"stage{i}": pair for i, pair in enumerate(early, 1)}
    return Features(avg=last[0], std=last[1], labels=labels, head=(weight, torch.zeros(CLASSES)), layers=layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192)
    options = parser.parse_args()
    header("The deep default beside a ResNet-50 pass")
    train, contrast, test = made(options.samples, 1), made(2048, 2), made(2048, 3)
    detector = HEAT(residual=replace(AGAINST_CONTRAST, epochs=1)).fit(train, contrast, progress=False)
    score = best(lambda: detector.score(test), 3) / len(test)

    model, images = resnet50(CLASSES), torch.randn(IMAGES, 3, 224, 224)
    last, stages = Extractor(model), Extractor(model, layers=("1", "2", "3", "4"))
    with torch.inference_mode():
        bare = best(lambda: model(images), 5) / IMAGES
        one, all_ = (best(lambda e=e: e(images), 5) / IMAGES for e in (last, stages))
    print(
        f"a bare pass {1000 * bare:.1f} ms an image; read by Extractor {1000 * one:.1f}, all stages {1000 * all_:.1f}"
    )
    print(f"{', '.join(detector.used)}: {1e6 * score:.0f} µs a score, {100 * score / bare:.2f} % of the bare pass")


if __name__ == "__main__":
    main()
