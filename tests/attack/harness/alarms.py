"""False alarms by simulation: every method, small calibration sets, ties, samples scored alone and in batches.

Samples are drawn from one law: a single prototype, ten of them, or thousands, which is as good as continuous. A
detector is calibrated on n of them and judges others of the same law. The rate of p ≤ α over many calibrations is at
most α, whatever the law, the method and the batch.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .targets import method_data

__all__ = ["BATCHES", "LAWS", "RATES", "SIZES", "margin", "pooled", "simulate"]

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
        repetitions = max(2, repetitions // 4)
    for law in laws:
        for n in sizes:
            generator = torch.Generator().manual_seed(zlib.crc32(repr((name, law, n, seed)).encode()))
            flagged = {(batch, rate): 0.0 for batch in batches for rate in RATES if rate * (n + 1) >= 1}
            for _ in range(repetitions):
                one_calibration(detector, pool, min(LAWS[law], len(pool)), n, flagged, generator)
            for (batch, rate), total in flagged.items():
                about = {"method": name, "law": law, "n": n, "batch": batch, "fpr": rate}
                yield judged(about, total / repetitions, repetitions)


def judged(about: dict[str, Any], rate: float, repetitions: int) -> dict[str, Any]:
    above = rate > margin(about["fpr"], repetitions)
    return {**about, "rate": rate, "above": above, "repetitions": repetitions}


def pooled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same over all methods, whose simulations are independent: with a margin that is so much narrower."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["law"], row["n"], row["batch"], row["fpr"]), []).append(row)
    found = []
    for (law, n, batch, fpr), some in groups.items():
        count = sum(row["repetitions"] for row in some)
        rate = sum(row["rate"] * row["repetitions"] for row in some) / count
        about = {"method": "all", "law": law, "n": n, "batch": batch, "fpr": fpr}
        found.append(judged(about, rate, count))
    return found


def one_calibration(
    detector: Any, pool: Any, kinds: int, n: int, flagged: dict[tuple[str, float], float], generator: torch.Generator
) -> None:
    """Calibrate on n draws of some of the pool's samples, and add the share of further draws that is flagged."""
    some = torch.randperm(len(pool), generator=generator)[:kinds]

    def draw(count: int) -> Any:
        return pool[some[torch.randint(kinds, (count,), generator=generator)]]

    detector.calibrate(draw(n))
    for batch in dict.fromkeys(batch for batch, _ in flagged):
        size, times = BATCHES[batch]
        p = torch.cat([torch.as_tensor(detector.p_value(draw(size))) for _ in range(times)])
        for (other, rate), total in flagged.items():
            if other == batch:
                flagged[other, rate] = total + float((p <= rate).double().mean())
