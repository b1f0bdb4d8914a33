"""One training step and the memory of a fit at the size of ImageNet: 1,000 classes, 2,048 features, batch 256.

python benchmarks/large.py
"""

from __future__ import annotations

import math
import tempfile
import time

from common import features, header, peak_memory, reset_peak
from heat_ood import HEAT, Features, Residual, create
from heat_ood.heat import PAPER_PRIORS
from heat_ood.residual import Hybrid


def main(n: int = 20_000, d: int = 2048, classes: int = 1000) -> None:
    header(f"A training step at {classes:,} classes × {d:,} features, default residual, batch 256")
    with tempfile.TemporaryDirectory() as folder:
        features(n, d, classes).save(folder)
        stored = Features.open(folder)
        size = sum(column.numel() * column.element_size() for column in stored.columns.values()) / 2**20
        for prior in ("gmm", "energy"):
            reset_peak()
            before = peak_memory("RssAnon")
            steps: list[float] = []
            last = time.perf_counter()

            def report(done: int, total: int, numbers: dict[str, float], steps: list[float] = steps) -> None:
                nonlocal last
                now = time.perf_counter()
                steps.append(now - last)
                last = now

            Hybrid(create(prior), Residual(epochs=1)).fit(stored, report=report)
            middle = sorted(steps)[len(steps) // 2]
            print(
                f"{prior:7} median step {middle:.3f} s (under 2 s is asked for); "
                f"peak resident memory {peak_memory():,.0f} MiB, of which before the fit {before:,.0f} anonymous; "
                f"the features take {size:,.0f} on disk (mapped)"
            )
        reset_peak()
        start = time.perf_counter()
        detector = HEAT(PAPER_PRIORS, residual=Residual(epochs=1)).fit(stored, progress=False)
        seconds = time.perf_counter() - start
        steps_taken = len(detector.hybrids_) * math.ceil(0.9 * n / Residual().batch)
        print(
            f"HEAT    {seconds / steps_taken:.3f} s a step, the whole fit of one epoch ({seconds:.0f} s) shared out; "
            f"peak resident memory {peak_memory():,.0f} MiB, mapped features included"
        )


if __name__ == "__main__":
    main()
