"""How much a score moves with its batch, beside the resolution that calibration gives it.

    python benchmarks/resolution.py

The network is the one of CIFAR-100 in the development data: 8,000 training images are fitted to, 1,000 test images
calibrate in batches of 250, and 150 of them go through the network again one by one and in sevens. A share above one
would break the promise that equal samples count as equal.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

from common import header
from heat_ood import HEAT, Extractor, Features, InputError, create, methods

ROOT = Path(__file__).parents[1]
FITTED, HELD, AGAIN = 8000, 1000, 150


def main() -> None:
    sys.path.insert(0, str(ROOT / "suites"))
    from shared_networks import cifar100, networks

    data = Path(os.environ.get("HEAT_OOD_DATA", ROOT.parent / "shared" / "data"))
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    header("What a batch changes in a score, and the resolution of the calibration")
    extractor, prepared = Extractor(cifar100(data), "stages"), networks(data / "nets.py").normalise

    def read(part: str, count: int, size: int) -> Features:
        with np.load(data / f"cifar100_{part}.npz") as file:
            images, labels = file["images"][:count], torch.from_numpy(file["labels"][:count].astype(np.int64))
        batches = range(0, count, size)
        return extractor.extract([(prepared(images[i : i + size]), labels[i : i + size]) for i in batches])

    train, held = read("train", FITTED, 256), read("test", HELD, 250)
    again = [read("test", AGAIN, size) for size in (1, 7)]
    print("| method | moved, by spread | resolution (median), by spread | largest share |\n|---|---|---|---|")
    for name in methods():
        try:
            detector = (HEAT(residual=None) if name == "heat" else create(name)).fit(train).calibrate(held)
        except InputError:  # it reads more than features
            continue
        known, scores = detector.require_calibrated(), detector.score(held)
        moved = torch.stack([(detector.score(part) - scores[:AGAIN]).abs() for part in again]).amax(0)
        own = known.resolution[torch.searchsorted(known.scores, scores[:AGAIN])]
        spread = float(scores.std())
        resolution = float(known.resolution.median()) / spread
        share = float((moved / own).max())
        print(f"| {name} | {float(moved.max()) / spread:.1e} | {resolution:.1e} | {share:.2f} |", flush=True)


if __name__ == "__main__":
    main()
