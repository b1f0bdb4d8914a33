"""How many samples a fit on a store of shards needs, besides the moments of all: quality against their number.

python experiments/sample_size.py [--seeds 2] [--out sample_size.jsonl]

The Gaussian parts know all training samples of the shared CIFAR networks; residuals are trained, and energies
standardised, by samples of bounded size. Sizes are judged by ID data alone: test images against distorted ones of
kinds that the detector was not given (it has no contrast), and how far scores of test images are from those of the fit
to all samples, in units of their spread. The last column looks at OOD sets afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from functools import cache
from pathlib import Path

from heat_ood import HEAT, Features
from heat_ood.features import Moments, Space
from heat_ood.heat import _detector as detector
from heat_ood.heat import _sampling as sampling
from heat_ood.metrics import auroc

CACHE = Path.home() / ".cache" / "heat-ood"
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 45_000)
OOD = ("svhn", "textures", "tinyimagenet")


def store(network: str, name: str) -> Features:
    (folder,) = (CACHE / network / "features").glob(f"{name}-*")
    return Features.open(folder)


def bound(fitted: int, held: int) -> None:
    """Other bounds than the library's."""
    for module in (sampling, detector):
        module.MOST_FITTED, module.MOST_HELD = fitted, held  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("sample_size.jsonl"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for network in ("shared-cifar10", "shared-cifar100"):
        train, test = store(network, "train"), store(network, "test")
        distorted = store(network, "contrast")[::5]
        others = {name: store(network, name) for name in OOD}

        @cache
        def moments(space: Space, train: Features = train) -> Moments:
            return Moments.of(((space(batch), batch.labels) for batch in train.batches(4096)), train.classes or 1)

        known = train.standing_for(moments)
        for seed in range(given.seeds):
            reference = None
            for size in reversed(SIZES):
                held = max(100, size // 5)
                if size + held > len(train):
                    size, held = len(train) * 5 // 6, len(train) // 6
                bound(size, held)
                began = time.perf_counter()
                heat = HEAT(seed=seed).fit(known, progress=False)
                seconds = time.perf_counter() - began
                scores = heat.score(test).double()
                reference = scores if reference is None else reference
                row = {
                    "network": network,
                    "seed": seed,
                    "fitted": size,
                    "held": held,
                    "distorted": auroc(scores, heat.score(distorted).double()),
                    "moved": float((scores - reference).std() / reference.std()),
                    "shifted": float((scores - reference).mean().abs() / reference.std()),
                    "ood": {name: auroc(scores, heat.score(other).double()) for name, other in others.items()},
                    "seconds": round(seconds, 1),
                }
                sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
