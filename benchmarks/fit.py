"""Time of HEAT's fit from stored features: the paper's priors, each corrected by ``Residual()``, everything included.

python benchmarks/fit.py [samples]
"""

from __future__ import annotations

import sys
import tempfile
import time

from common import features, header, matmul_rate
from heat_ood import HEAT, Features, Residual
from heat_ood.heat import PAPER_PRIORS
from heat_ood.residual import Hybrid


def training_flops(detector: HEAT, n: int) -> float:
    """Floating-point operations of the networks' training alone: forward and backward, data and negatives."""
    total = 0.0
    for part in detector.composition.members.values():
        assert isinstance(part, Hybrid)
        assert part.network is not None
        weights = sum(layer.weight.numel() for layer in part.network.layers)
        total += 6 * weights * 2 * n * len(part.log)
    return total


def main(n: int = 45_000, d: int = 512, classes: int = 10) -> None:
    header(f"HEAT's fit from stored features: {n:,} samples, {d} features, {classes} classes, the paper's priors")
    with tempfile.TemporaryDirectory() as folder:
        features(n, d, classes).save(folder)
        rate = matmul_rate()
        start = time.perf_counter()
        detector = HEAT(PAPER_PRIORS, residual=Residual()).fit(Features.open(folder), progress=False)
        seconds = time.perf_counter() - start
        rate = (rate + matmul_rate()) / 2
        bare = training_flops(detector, round(0.9 * n)) / rate / 1e9
    print(f"fit {seconds:.0f} s (at most 180 s is asked for, where the bare product runs at about 150 GFLOP/s)")
    print(
        f"the networks' own products at the bare rate of this run ({rate:.0f} GFLOP/s): {bare:.1f} s; "
        f"ratio {seconds / bare:.1f}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
