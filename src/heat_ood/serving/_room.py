"""How much may be in the house at once: samples and bytes, counted from any thread."""

from __future__ import annotations

import threading

from ._refusals import OverloadedError
from ._settings import Settings

__all__ = ["Hold", "Room"]


class Room:
    """What all requests together hold."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.samples = self.bytes = 0
        self.lock = threading.Lock()

    def change(self, samples: int, size: int) -> None:
        """Take so much, or give it back; more than there is room for is refused."""
        with self.lock:
            if samples > 0 and self.samples + samples > self.settings.queue:
                raise OverloadedError(f"{self.samples:,} samples wait, and {self.settings.queue:,} may")
            if size > 0 and self.bytes + size > self.settings.held_bytes:
                raise OverloadedError(f"Requests hold {self.bytes:,} bytes, and {self.settings.held_bytes:,} may")
            self.samples += samples
            self.bytes += size


class Hold:
    """What one request holds; all of it is given back once."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.samples = self.bytes = 0

    def take(self, samples: int = 0, size: int = 0) -> None:
        self.room.change(samples, size)
        self.samples += samples
        self.bytes += size

    def release(self) -> None:
        samples, size, self.samples, self.bytes = self.samples, self.bytes, 0, 0
        self.room.change(-samples, -size)
