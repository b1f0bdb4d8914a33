"""False alarms and delays of the watch on a stream of scores, and what an update costs.

False alarms are the share of exchangeable streams in which the evidence ever reaches 100: at most 1 % by Ville's
inequality. A delay is the number of samples from the start of a shift to the alarm. All streams are simulated at once,
by the same bets, and by ranks that tests/serving/test_drift.py compares with the class.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from common import header
from heat_ood.serving._betting import Bets, log_bets
from heat_ood.serving._drift import ALARM_AT, Drift
from heat_ood.serving._ranks import CALIBRATION, KEPT, STREAM, generator, rounded, uniforms

Floats = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

SIZES = (50, 200, 2000)
KINDS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "Student's t, 2 degrees": lambda rng, shape: rng.standard_t(2, size=shape),
    "normal in steps of 1/2": lambda rng, shape: np.round(2 * rng.normal(size=shape)) / 2,
}
SHIFTS = (0.25, 0.5, 1.0, 2.0)
PART = 128
EARLIER = np.tri(PART, k=-1, dtype=bool)


def ranks(calibration: Floats, stream: Floats, seed: int) -> Floats:
    """The p-values of one stream, as ``Ranks`` gives them one by one."""
    m, n = len(calibration), len(stream)
    tags = uniforms(generator(seed, CALIBRATION), m)[:, 0], uniforms(generator(seed, STREAM), n)
    scores = np.concatenate([np.sort(rounded(calibration)), rounded(stream)])
    place = np.empty(m + n, dtype=np.int64)
    place[np.lexsort((np.concatenate([tags[0], tags[1][:, 0]]), scores))] = np.arange(m + n)
    known = np.sort(place[:m])

    if m <= KEPT:
        grow = min(KEPT - m, n)
        borders, inside = np.sort(place[: m + grow]), np.zeros(m + grow + 1, dtype=np.int64)
    else:
        grow = 0
        chosen = ((np.arange(KEPT) + 1) * (m + 1) // (KEPT + 1)) - 1
        borders, inside = known[chosen], np.diff(chosen, prepend=-1, append=m) - 1
    early = place[m : m + grow]
    above = m - np.searchsorted(known, early) + ((early[None] > early[:, None]) & np.tri(grow, k=-1, dtype=bool)).sum(1)
    p = [(above + tags[1][:grow, 1]) / (m + 1 + np.arange(grow))]
    cells, u = np.searchsorted(borders, place[m + grow :]), tags[1][grow:, 1]
    for first in range(0, len(cells), PART):
        part = cells[first : first + PART]
        earlier = EARLIER[: len(part), : len(part)]
        higher, equal = part[None] > part[:, None], part[None] == part[:, None]
        upwards = inside[::-1].cumsum()[::-1] - inside
        over = len(borders) - part + upwards[part] + (higher & earlier).sum(1)
        within = 1 + inside[part] + (equal & earlier).sum(1)
        p.append((over + u[first : first + PART] * within) / (m + grow + 1 + first + np.arange(len(part))))
        inside += np.bincount(part, minlength=len(inside))
    return np.minimum(np.concatenate(p), 1 - 2**-53)


def against_calibration_alone(calibration: Floats, stream: Floats, seed: int) -> Floats:
    """What one must not do: p-values that share one fixed set."""
    above = len(calibration) - np.searchsorted(np.sort(calibration), stream)
    return (above + uniforms(generator(seed, STREAM), len(stream))[:, 1]) / (len(calibration) + 1)


def alarms(calibration: Floats, stream: Floats, rank: Callable[[Floats, Floats, int], Floats] = ranks) -> Floats:
    """After how many samples each stream, (streams, n), raised the alarm; infinity where none did."""
    p = np.stack([rank(c, s, seed) for seed, (c, s) in enumerate(zip(calibration, stream, strict=True))], axis=1)
    bets, found = Bets((len(stream),)), np.full(len(stream), np.inf)
    for first in range(0, len(p), PART):
        evidence = bets.add(log_bets(p[first : first + PART]), calibration.shape[1] + 1 + first)
        over = evidence >= math.log(ALARM_AT)
        found = np.minimum(found, np.where(over.any(0), first + over.argmax(0) + 1, np.inf))
    return found


def show_false_alarms(streams: int, length: int, seed: int) -> None:
    print(f"Alarms among {streams:,} streams of {length:,} exchangeable scores, by the size of the calibration set")
    print(f"{'':>34}" + "".join(f"{size:>12,}" for size in SIZES), flush=True)
    rows = [(name, draw, ranks) for name, draw in KINDS.items()]
    for name, draw, rank in [*rows, ("normal, in calibration alone", KINDS["normal"], against_calibration_alone)]:
        shares = []
        for size in SIZES:
            rng = np.random.default_rng([seed, size])
            found = alarms(draw(rng, (streams, size)), draw(rng, (streams, length)), rank)
            shares.append(np.isfinite(found).mean())
        print(f"{name:>34}" + "".join(f"{share:>12.2%}" for share in shares), flush=True)


def show_delays(streams: int, stable: int, after: int, seed: int) -> None:
    print(
        f"\nDelay of the alarm: normal scores move after {stable:,} stable ones; {streams:,} streams, of those without"
    )
    print(f"an alarm before it, the median, 95 %, and the share found within 300 and within {after:,} samples")
    print(f"{'shift in spreads':>18}{'calibration':>13}{'median':>9}{'95 %':>9}{'in 300':>9}{'found':>9}", flush=True)
    for shift in SHIFTS:
        for size in SIZES:
            rng = np.random.default_rng([seed, size, stable])
            stream = rng.normal(size=(streams, stable + after))
            stream[:, stable:] += shift
            found = alarms(rng.normal(size=(streams, size)), stream)
            delay = np.sort(found[found > stable] - stable)
            middle, most = delay[len(delay) // 2], delay[math.ceil(0.95 * len(delay)) - 1]
            told = [f"{value:.0f}" if np.isfinite(value) else "never" for value in (middle, most)]
            shares = (delay <= 300).mean(), np.isfinite(delay).mean()
            print(f"{shift:>18}{size:>13,}{told[0]:>9}{told[1]:>9}{shares[0]:>9.1%}{shares[1]:>9.1%}", flush=True)


def show_cost(samples: int = 100_000) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=samples)
    print(f"\nTime of {samples:,} updates, one core")
    for size in SIZES:
        for batch in (1, 8, 64):
            drift = Drift(rng.normal(size=size))
            start = time.process_time()
            for first in range(0, samples, batch):
                drift.update(scores[first : first + batch])
            seconds = time.process_time() - start
            print(
                f"calibration {size:>5,}, {batch:>2} at once: {seconds:5.1f} s, {1e6 * seconds / samples:4.0f} µs each"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--length", type=int, default=10_000)
    parser.add_argument("--stable", type=int, nargs="*", default=[0, 1000])
    parser.add_argument("--after", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    header("The watch on a stream of scores")
    show_false_alarms(options.streams, options.length, options.seed)
    for stable in options.stable:
        show_delays(options.streams // 2, stable, options.after, options.seed)
    show_cost()
