"""False alarms by simulation: every method, small calibration sets, ties, samples scored alone and in batches.

Samples are drawn from one law: a single prototype, ten of them, or thousands, which is as good as continuous. A detector
is calibrated on n of them and judges others of the same law. The rate of p ≤ α over many calibrations is at most α,
whatever the law, the method and the batch.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .targets import method_data

__all__ = ["BATCHES", "LAWS", "RATES", "SIZES", "margin", "simulate", "simulate_in"]

LAWS = {"one sample": 1, "ten samples": 10, "all different": 4000}
SIZES, RATES = (19, 99, 199, 999), (0.01, 0.05, 0.1)
BATCHES = {"one": (1, 3), "7": (7, 1), "64": (64, 1), "1,024": (1024, 1)}
"""How test samples are scored: the size of a batch, and how many batches a calibration."""
SIGMAS = 4.5
"""Of the margin: a few thousand rates are compared."""


def margin(rate: float, repetitions: int) -> float:
    """How high a measured rate may be by chance: binomial, one draw a calibration, since what one calibration flags
    hangs together; where all samples are one, that is all there is."""
    return rate + SIGMAS * math.sqrt(rate * (1 - rate) / repetitions)


def pool_of(case: Any) -> Any:
    """The samples that laws draw from; the detector has seen none of them."""
    if case.beyond:
        return method_data.images(400, seed=11)
    features = method_data.samples(4000, seed=11)
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(0))
    return features[order]


def simulate(
    name: str,
    repetitions: int,
    seed: int = 0,
    sizes: Sequence[int] = SIZES,
    laws: Sequence[str] = tuple(LAWS),
    batches: Sequence[str] = tuple(BATCHES),
) -> Iterator[dict[str, Any]]:
    """The rates of one method, by law, size of the calibration set, batch and the rate that is asked for."""
    case = method_data.Case(name)
    detector, pool = case.fitted(), pool_of(case)
    if case.beyond:  # a pass through a network for every score
        repetitions = max(4, repetitions // 8)
    for law in laws:
        for n in sizes:
            generator = torch.Generator().manual_seed(hash_of(name, law, n, seed))
            flagged = {(batch, rate): 0.0 for batch in batches for rate in RATES if rate * (n + 1) >= 1}
            for _ in range(repetitions):
                one_calibration(detector, pool, min(LAWS[law], len(pool)), n, flagged, generator)
            for (batch, rate), total in flagged.items():
                measured = total / repetitions
                above = measured > margin(rate, repetitions)
                about = {"method": name, "law": law, "n": n, "batch": batch, "fpr": rate}
                yield {**about, "rate": measured, "above": above, "repetitions": repetitions}


def hash_of(*parts: object) -> int:
    """The same number on every run, unlike ``hash``."""
    import zlib

    return zlib.crc32(repr(parts).encode())


def one_calibration(
    detector: Any, pool: Any, kinds: int, n: int, flagged: dict[tuple[str, float], float], generator: torch.Generator
) -> None:
    """Calibrate on n draws, and add the share of further draws that is flagged."""
    detector.calibrate(pool[torch.randint(kinds, (n,), generator=generator)])
    for batch in dict.fromkeys(batch for batch, _ in flagged):
        size, times = BATCHES[batch]
        draws = [pool[torch.randint(kinds, (size,), generator=generator)] for _ in range(times)]
        p = torch.cat([torch.as_tensor(detector.p_value(draw)) for draw in draws])
        for (other, rate), total in flagged.items():
            if other == batch:
                flagged[other, rate] = total + float((p <= rate).double().mean())


def simulate_in(jobs: int, repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """All methods, in so many processes."""
    names = sorted(method_data.CASES, key=lambda name: name not in method_data.BEYOND)
    script = Path(__file__).parents[1] / "run.py"
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), "--alarms-of", ",".join(names[job::jobs]), "--seed", str(seed)]
            + ["--tries", str(repetitions)],
            stdout=subprocess.PIPE,
        )
        for job in range(jobs)
    ]
    for process in processes:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
        if process.wait():
            raise RuntimeError(f"a process of the simulation ended with {process.returncode}")
