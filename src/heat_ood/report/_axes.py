"""Axes of charts: where a value stands between 0 and 1, and which ticks are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Axis", "corner", "linear_axis", "log_axis", "part_axis", "share_axis", "signed_axis"]

END = 0.1
"""What an infinite end takes of the axis."""
CLOSEST = 0.075
"""How near two ticks may stand."""


@dataclass(frozen=True)
class Axis:
    """A label, ticks as pairs (value, text), and the place of a value between 0 and 1."""

    label: str
    ticks: tuple[tuple[float, str], ...]
    place: Callable[[float], float]


def linear_axis(label: str, low: float, high: float, count: int = 5, percent: bool = False) -> Axis:
    """Round ticks between two ends that are moved outwards to the nearest ones.

    Example:
        >>> [text for _, text in linear_axis("y", 0.2, 9.1).ticks]
        ['0', '2', '4', '6', '8', '10']
    """
    size = high - low if high > low else max(abs(low), 1e-9)
    step = next(s for s in steps(size / count) if s >= size / count * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = [i * step for i in range(first, last + 1)]
    scale = 100 if percent else 1
    start, end = ticks[0], ticks[-1]
    return Axis(label, tuple((t, f"{scale * t:.6g}") for t in ticks), lambda v: (v - start) / (end - start))


def steps(size: float) -> Iterable[float]:
    base = 10 ** math.floor(math.log10(size))
    return (m * base for m in (1, 2, 2.5, 5, 10, 20))


def share_axis(label: str) -> Axis:
    """From 0 to 100 percent."""
    return Axis(label, tuple((i / 4, str(25 * i)) for i in range(5)), lambda v: v)


def part_axis(label: str, low: float, high: float) -> Axis:
    """A part of the axis from 0 to 100 percent."""
    count = 4 if low > 0.5 else 5
    ticks = [low + (high - low) * i / count for i in range(count + 1)]
    return Axis(label, tuple((t, f"{100 * t:.6g}") for t in ticks), lambda v: (v - low) / (high - low))


def log_axis(label: str, values: Sequence[float], infinite: str = "∞", percent: bool = False) -> Axis:
    """Powers of ten apart; infinity stands beyond a gap at the right end, under a text of its own."""
    finite = sorted({v for v in values if 0 < v < math.inf})
    logs = [math.log10(v) for v in finite] or [0.0]
    low, size = logs[0], (logs[-1] - logs[0]) or 1.0
    room = 1 - END - 0.05 if math.inf in values else 1.0

    def place(value: float) -> float:
        if value <= 0:
            return 0.0  # there is no such place; it stands at the end
        return 1.0 if math.isinf(value) else room * (math.log10(value) - low) / size

    named = [(v, f"{100 * v if percent else v:g}") for v in finite] + (
        [(math.inf, infinite)] if math.inf in values else []
    )
    first = [v for v in finite if abs(math.log10(v) % 1) < 1e-9]
    return Axis(label, thinned(named, place, [math.inf, *first]), place)


def signed_axis(label: str, values: Sequence[float]) -> Axis:
    """Stretched around zero; the two infinities stand beyond gaps at the ends."""
    finite = [v for v in values if math.isfinite(v)] or [0.0]
    low, high = math.asinh(min(finite)), math.asinh(max(finite))
    left, right = (END if -math.inf in values else 0.0), (END if math.inf in values else 0.0)

    def place(value: float) -> float:
        if math.isinf(value):
            return 1.0 if value > 0 else 0.0
        return left + (1 - left - right) * (math.asinh(value) - low) / ((high - low) or 1.0)

    named = [(v, {math.inf: "∞", -math.inf: "−∞"}.get(v, f"{v:g}".replace("-", "−"))) for v in sorted(set(values))]
    return Axis(label, thinned(named, place, [-math.inf, math.inf, 0.0, -1.0, 1.0]), place)


def thinned(
    ticks: Sequence[tuple[float, str]], place: Callable[[float], float], first: Sequence[float]
) -> tuple[tuple[float, str], ...]:
    """Leave out ticks that would stand too near to others; those named first stay first."""
    order = sorted(range(len(ticks)), key=lambda i: first.index(ticks[i][0]) if ticks[i][0] in first else len(first))
    kept: list[int] = []
    for i in order:
        if all(abs(place(ticks[i][0]) - place(ticks[k][0])) >= CLOSEST for k in kept):
            kept.append(i)
    return tuple(ticks[i] for i in sorted(kept))


def corner(rates: Sequence[float]) -> tuple[float, float]:
    """How far a picture of ROC curves reaches to the right and down: all of it, or the corner where all curves lie.

    Args:
        rates: what each curve accepts of OOD where 95 % of ID is accepted.

    Example:
        >>> corner([0.01, 0.04]), corner([0.01, 0.4])
        ((0.1, 0.8), (1.0, 0.0))
    """
    worst = max(rates, default=1.0)
    if worst > 0.2:
        return 1.0, 0.0
    right = next(end for end in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if end >= 2 * worst)
    return right, 0.8 if right <= 0.1 else 0.5
