"""Drift: whether a stream of scores still looks like the calibration scores, by a test that may be read at any time."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, InputError
from ..files import Format, plain, restored, short, write
from ._betting import BETTORS, Bets, Onset, log_bets
from ._ranks import KEPT, Ranks

__all__ = ["Drift"]

Floats = np.ndarray[Any, Any]

ALARM_AT = 100.0
"""The evidence at which the alarm goes off: without a change it ever does so with a probability of at most 1/100."""
DATED_AT = 10.0
"""Below this evidence there is nothing to date."""
SHOWN = 50
"""So many of the last p-values are kept to be shown."""
LARGEST = 1e300
"""Evidence is shown up to this, and its logarithm beyond."""
MOST = 2**53
"""Samples that can be counted; at a million a second, in 285 years."""

_FORMAT = Format("heat-ood drift", 1)
_REMEDY = "Delete the file: the watch then starts anew from the calibration scores."


class Drift:
    r"""A watch on a stream of scores: evidence that it stopped looking like the calibration scores.

    Each score is ranked among the calibration scores and the stream before it, with random ties
    (:class:`~heat_ood.serving._ranks.Ranks`): as long as all of them are exchangeable, these p-values are independent
    and uniform. Bets are placed against that (:class:`~heat_ood.serving._betting.Bets`), and the evidence :math:`E_n`
    is what one unit of money has become. It is a martingale that begins at 1, so

    .. math:: P(\sup_n E_n \ge 100) \le 1 / 100

    however long the stream is and however often one looks (Ville's inequality). A conformal test martingale, after
    Vovk, Nouretdinov and Gammerman (2003).

    What it finds is any departure from exchangeability: other images, another camera, and also a burst of equal ones.
    Once a change is part of the stream, the ranks become uniform again, so that evidence stops growing; the alarm
    stays on until :meth:`reset`. A change from the first sample on can only be told from as many scores as there are
    calibration scores.

    Memory and time for a sample are constant, and the state is a small JSON file. ``crepes`` and ``online-cp`` have
    such martingales, but not this: those of ``crepes`` take all p-values as one array, and its ranks the whole stream;
    those of ``online-cp`` are updated one by one, but keep a list of all their values and have no way to be saved. Both
    wake their bettors at a constant rate, so that none is left for a change that comes late.

    Args:
        calibration_scores: of the detector, at least one.
        seed: of random ties; the same scores and seed give the same evidence.

    Example:
        >>> drift = Drift(np.random.default_rng(0).normal(size=200))
        >>> drift.update(np.random.default_rng(1).normal(size=500))
        >>> drift.report()["alarm"]
        False
        >>> drift.update(np.random.default_rng(2).normal(size=100) + 1.5)
        >>> drift.report()["alarm"], drift.report()["likely_start"]
        (True, 501)
    """

    def __init__(self, calibration_scores: Sequence[float] | Floats, *, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise InputError(f"The seed is {short(seed)}. Pass a whole number from 0 to 2**64 - 1.")
        self.seed = seed
        self._calibration = np.sort(_checked(calibration_scores, "calibration scores"))
        if not len(self._calibration):
            raise InputError("Drift needs at least one calibration score. Calibrate the detector first.")
        self._lock = threading.Lock()
        self._begin(time.time())

    def _begin(self, now: float) -> None:
        self._ranks = Ranks(self._calibration, self.seed)
        self._bets = Bets()
        self._onset = Onset()
        self._p_values: list[float] = []
        self._evidence = self._largest = 0.0
        self._likely_start: int | None = None
        self._alarm_since: float | None = None
        self._alarm_after: int | None = None
        self._started = now

    def update(self, scores: Sequence[float] | Floats) -> None:
        """Take scores in, in the order in which they came; if one is not finite, all are refused."""
        checked = _checked(scores, "scores")
        if not len(checked):
            return
        with self._lock:
            before, ranked = self._ranks.seen, self._ranks.total
            if before + len(checked) > MOST:
                raise InputError(f"Drift counts up to {MOST:,} samples. Reset it.")
            p = self._ranks.add(checked)
            bets = log_bets(p)
            evidence = self._bets.add(bets, ranked)
            starts = self._onset.add(bets)

            self._p_values = [*self._p_values, *p.tolist()][-SHOWN:]
            self._evidence = float(evidence[-1])
            top = int(evidence.argmax())
            if evidence[top] > self._largest:
                self._largest = float(evidence[top])
                self._likely_start = int(starts[top]) if self._largest >= math.log(DATED_AT) else None
            over = evidence >= math.log(ALARM_AT)
            if self._alarm_after is None and over.any():
                self._alarm_after = before + int(over.argmax()) + 1
                self._alarm_since = time.time()

    def report(self) -> dict[str, Any]:
        """What there is to say, as JSON can hold it: the answer to ``GET /v1/drift``.

        ``likely_start`` is the number of the sample, from 1, with which the change began: the start with the largest
        likelihood ratio among all bets, at the moment of the largest evidence; None while that is below 10.
        """
        with self._lock:
            log10 = self._evidence / math.log(10)
            return {
                "samples": self._ranks.seen,
                "evidence": 10**log10 if log10 < math.log10(LARGEST) else LARGEST,
                "log10_evidence": log10,
                "largest_log10_evidence": self._largest / math.log(10),
                "alarm": self._alarm_after is not None,
                "alarm_at": ALARM_AT,
                "alarm_since": self._alarm_since,
                "alarm_after_samples": self._alarm_after,
                "likely_start": self._likely_start,
                "started": self._started,
                "calibration_samples": len(self._calibration),
                "p_values": list(self._p_values),
            }

    def reset(self) -> None:
        """Forget the stream, and the alarm, and start anew from the calibration scores."""
        with self._lock:
            self._begin(time.time())

    def save(self, path: str | Path) -> None:
        """Write all that it knows to a JSON file, or replace it, in one step; what :meth:`load` goes on from."""
        with self._lock:
            state = _State(
                calibration=_identity(self._calibration),
                seed=self.seed,
                samples=self._ranks.seen,
                kept=tuple(self._ranks.kept),
                places=tuple(self._ranks.places.tolist()),
                shares=tuple(self._bets.shares.tolist()),
                log_total=float(self._bets.log_total),
                rise=tuple(self._onset.rise.tolist()),
                start=tuple(self._onset.start.tolist()),
                p_values=tuple(self._p_values),
                evidence=self._evidence,
                largest=self._largest,
                likely_start=self._likely_start,
                alarm_since=self._alarm_since,
                alarm_after=self._alarm_after,
                started=self._started,
            )
        write(Path(path), json.dumps(_FORMAT.stamp(plain(asdict(state)))))

    @classmethod
    def load(cls, path: str | Path, calibration_scores: Sequence[float] | Floats) -> Drift:
        """Go on from a saved state, as if there had been no break.

        A damaged file, or one that was begun from other calibration scores, is a :class:`FormatError`; one that is not
        there, a ``FileNotFoundError``.
        """
        content = _FORMAT.read(Path(path), _REMEDY, _REMEDY)
        try:
            state = restored(_State, _FORMAT.unstamp(content), "the state")
            return cls._from(state, calibration_scores)
        except FormatError as error:
            raise FormatError(f"{path} cannot be used: {error}. {_REMEDY}") from error

    @classmethod
    def _from(cls, state: _State, calibration_scores: Sequence[float] | Floats) -> Drift:
        if not 0 <= state.seed < 2**64:
            raise FormatError(f"its seed is {short(state.seed)}")
        found = cls(calibration_scores, seed=state.seed)
        if state.calibration != _identity(found._calibration):
            raise FormatError(
                f"it watched a stream against other calibration scores than these {len(found._calibration):,}"
            )
        state.check(len(found._calibration), found._ranks.places)
        found._ranks.restore(state.samples, list(state.kept), np.array(state.places, dtype=np.int64))
        found._bets.shares, found._bets.log_total = np.array(state.shares), np.array(state.log_total)
        found._bets.samples = state.samples
        found._onset.rise, found._onset.start = np.array(state.rise), np.array(state.start, dtype=np.int64)
        found._onset.samples = state.samples
        found._p_values = list(state.p_values)
        found._evidence, found._largest = state.evidence, state.largest
        found._likely_start, found._started = state.likely_start, state.started
        found._alarm_since, found._alarm_after = state.alarm_since, state.alarm_after
        return found


@dataclass(frozen=True)
class _State:
    """What a watch remembers."""

    calibration: str
    seed: int
    samples: int
    kept: tuple[float, ...]
    places: tuple[int, ...]
    shares: tuple[float, ...]
    log_total: float
    rise: tuple[float, ...]
    start: tuple[int, ...]
    p_values: tuple[float, ...]
    evidence: float
    largest: float
    likely_start: int | None
    alarm_since: float | None
    alarm_after: int | None
    started: float

    def check(self, calibration: int, places: Floats) -> None:
        """Refuse what no watch can have written."""
        n = self.samples
        wrong = {
            "samples": not 0 <= n <= MOST,
            "kept": len(self.kept) != min(max(KEPT - calibration, 0), n) or not _finite(self.kept),
            "shares": len(self.shares) != BETTORS
            or not all(x >= 0 for x in self.shares)
            or not math.isclose(sum(self.shares), n > 0, rel_tol=1e-6),
            "log_total": not _finite([self.log_total]) or abs(self.log_total) > 1e15,
            "rise": len(self.rise) != BETTORS or not _finite(self.rise),
            "start": len(self.start) != BETTORS or not all(1 <= x <= max(n, 1) for x in self.start),
            "p_values": len(self.p_values) != min(n, SHOWN) or not all(0 < p < 1 for p in self.p_values),
            "evidence": not _finite([self.evidence]) or self.evidence > self.largest,
            "largest": not _finite([self.largest]) or self.largest < 0,
            "likely_start": self.likely_start is not None and not 1 <= self.likely_start <= n,
            "alarm_since": not _finite([self.alarm_since or 0.0]),
            "alarm_after": (self.alarm_after is None) != (self.alarm_since is None)
            or (self.alarm_after is not None and not 1 <= self.alarm_after <= n),
            "started": not _finite([self.started]),
        }
        fresh = np.ones(len(self.kept) + calibration + 1, dtype=np.int64) if self.kept else places
        wrong["places"] = len(self.places) != len(fresh) or any(
            not least <= x <= MOST for x, least in zip(self.places, fresh.tolist(), strict=True)
        )
        wrong["places"] = wrong["places"] or sum(self.places) != calibration + n + 1
        if found := [name for name, bad in wrong.items() if bad]:
            raise FormatError(f"its {found[0]!r} is {short(getattr(self, found[0]))}, which no watch has written")


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)


def _identity(calibration: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(calibration, dtype="<f8").tobytes()).hexdigest()


def _checked(scores: Sequence[float] | Floats, what: str) -> Floats:
    found = np.asarray(scores)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "fiu"):
        raise InputError(f"The {what} are of shape {found.shape}, {found.dtype}. Pass a list of numbers.")
    found = found.astype(np.float64)
    if bad := int((~np.isfinite(found)).sum()):
        raise InputError(f"{bad:,} of {len(found):,} {what} are not finite. Leave them out.")
    return found
