"""Doubling the samples: time of a fit at a fixed number of epochs, and the peak of its anonymous memory.

python benchmarks/scaling.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time

from common import features, header, peak_memory
from heat_ood import HEAT, Features, Residual
from heat_ood.heat import PAPER_PRIORS


def child(folder: str) -> None:
    """Fit in a process of its own, and print the seconds and the peak of anonymous memory in MiB."""
    stored, peak, done = Features.open(folder), [peak_memory("RssAnon")], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak.append(peak_memory("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    HEAT(PAPER_PRIORS, residual=Residual(epochs=2)).fit(stored, progress=False)
    seconds = time.perf_counter() - start
    done.set()
    thread.join()
    print(seconds, max(peak))


def main(sizes: tuple[int, ...] = (20_000, 40_000, 80_000), d: int = 512, classes: int = 10) -> None:
    header("Doubling the samples at two epochs, stored features")
    last: tuple[float, float] | None = None
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            features(n, d, classes).save(folder)
            out = subprocess.run([sys.executable, __file__, folder], check=True, capture_output=True, text=True).stdout
        seconds, peak = map(float, out.split())
        ratio = "" if last is None else f"   × {seconds / last[0]:.2f} in time, {peak - last[1]:+.0f} MiB"
        print(f"{n:7,} samples: {seconds:6.1f} s, peak of anonymous memory {peak:5.0f} MiB{ratio}", flush=True)
        last = seconds, peak


if __name__ == "__main__":
    child(sys.argv[1]) if len(sys.argv) > 1 else main()
