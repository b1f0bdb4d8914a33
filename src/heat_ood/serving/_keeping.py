"""The watch on the stream, kept: written at least once a second while there is news, by one service at a time."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import Argument, InputError
from ._drift import Drift
from ._samples import Floats

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Keeper"]

EVERY = 0.5
"""Seconds between two writes: what a kill loses is less than a second, the write itself included."""
LOG = logging.getLogger("heat_ood.serving")


class Keeper:
    """Takes scores in, and keeps what became of them in a file.

    Args:
        calibration_scores: that the stream is compared with.
        path: of the file; it is gone on from where there is one. None keeps nothing.
    """

    def __init__(self, calibration_scores: Floats, path: Path | None) -> None:
        self.path = path
        self.lock_file = None if path is None else locked(path)
        try:
            there = path is not None and path.exists()
            self.drift = Drift.load(path, calibration_scores) if there and path else Drift(calibration_scores)
            if path is not None:
                self.drift.save(path)  # what cannot be written is known before the first request
        except BaseException:
            self.unlock()
            raise
        self.alarmed = bool(self.drift.report()["alarm"])
        if self.alarmed:
            self.say()
        self.news = threading.Event()
        self.stopping = threading.Event()
        self.failing = False
        self.thread = threading.Thread(target=self.write, name="drift", daemon=True)
        self.thread.start()

    def update(self, scores: Floats) -> None:
        """Scores in the order in which they were judged."""
        self.drift.update(scores)
        self.news.set()
        if not self.alarmed and self.drift.report()["alarm"]:
            self.alarmed = True
            self.say()

    def report(self) -> dict[str, Any]:
        return self.drift.report()

    def reset(self) -> None:
        """Start the watch anew: the stream so far and the alarm are forgotten, and the log says so."""
        found = self.drift.report()
        self.drift.reset()
        self.alarmed = False
        self.news.set()
        LOG.warning(
            "drift: the watch starts anew, as it was asked to (after %s samples, evidence 10^%.1f at most)",
            f"{found['samples']:,}",
            found["largest_log10_evidence"],
        )

    def say(self) -> None:
        found = self.drift.report()
        LOG.warning(
            "drift: the stream stopped looking like the calibration data (evidence 10^%.1f after %s samples, alarm "
            "since %s, likely from sample %s on)",
            found["largest_log10_evidence"],
            f"{found['alarm_after_samples']:,}",
            datetime.fromtimestamp(found["alarm_since"], UTC).isoformat(timespec="seconds"),
            found["likely_start"],
        )

    def write(self) -> None:
        """In a thread of its own: news are written, then none for a while."""
        while not self.stopping.is_set():
            self.news.wait()
            self.save()
            self.stopping.wait(EVERY)

    def save(self) -> None:
        """Write what is new; a disk that fails is tried again, and said once."""
        self.news.clear()
        if self.path is None:
            return
        try:
            self.drift.save(self.path)
            self.failing = False
        except OSError as error:
            self.news.set()
            if not self.failing:
                LOG.error("drift: %s cannot be written (%s); it is tried again", self.path, error.strerror)
            self.failing = True

    def close(self) -> None:
        """Write the last of it, and let go of the file; once is enough."""
        if not self.stopping.is_set():
            self.stopping.set()
            self.news.set()
            self.thread.join()
            self.save()
            self.unlock()

    def unlock(self) -> None:
        if self.lock_file is not None:
            os.close(self.lock_file)
            self.lock_file = None


def locked(path: Path) -> int | None:
    """Be the only service that writes a file; the lock goes with its process, however that ends."""
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file to keep drift in.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        return None
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"Another service keeps its drift in {path}. Name another file for this one: ",
            Argument("drift_state"),
            ".",
        ) from None
    except OSError:  # a file system without locks
        with suppress(OSError):
            os.close(descriptor)
        return None
    return descriptor
