"""What the service allows: every limit, its default, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Argument, InputError

__all__ = ["Settings"]

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """How a judge is served; the defaults suit one machine.

    Args:
        fpr: the false-alarm rate of a verdict where a request names none.
        body_bytes: of a request.
        held_bytes: of all requests together, bodies and decoded samples, while they are received and judged.
        pixels: of an image, by its header.
        batch: samples of a request; as many, of any requests, are judged together.
        queue: samples that wait or are judged; a request beyond it is answered with 503 at once.
        wait: seconds that a batch waits for requests which are being decoded.
        seconds: a request may take, from its first byte to its answer.
        idle_seconds: a connection may take for the headers of its next request.
        connections: at once; further ones are answered with 503.
        decoders: threads that decode images and parse features.
        token: that every request must bear, but for those of the page, of health and of the interface's description.
        drift: whether the stream of scores is watched.
        drift_state: the file that keeps what was watched; None keeps it in memory.
        samples: a folder of images that the page offers.
        access_log: whether each request is logged, without its query.

    Example:
        >>> Settings(batch=8, queue=32).queue
        32
    """

    fpr: float = 0.05
    body_bytes: int = 16 * MIB
    held_bytes: int = 512 * MIB
    pixels: int = 50_000_000
    batch: int = 64
    queue: int = 512
    wait: float = 0.004
    seconds: float = 30.0
    idle_seconds: float = 15.0
    connections: int = 512
    decoders: int = 2
    token: str | None = field(default=None, repr=False)
    drift: bool = True
    drift_state: Path | None = None
    samples: Path | None = None
    access_log: bool = False

    def __post_init__(self) -> None:
        for name in ("body_bytes", "held_bytes", "pixels", "batch", "queue", "seconds", "idle_seconds", "connections"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(Argument(name, getattr(self, name)), " is no limit. Pass a number above zero.")
        if not 0 <= self.wait <= 1 or self.decoders < 1:
            name = "decoders" if 0 <= self.wait <= 1 else "wait"
            raise InputError(Argument(name, getattr(self, name)), " is out of range: wait is 0 to 1 s, decoders 1 up.")
        self.at_least("queue", "batch", "a whole request would never find room")
        self.at_least("held_bytes", "body_bytes", "a whole request would never find room")
        if not 0 < self.fpr < 1:
            raise InputError(Argument("fpr", self.fpr), " is no false-alarm rate. Pass one between 0 and 1.")
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable() or not self.token):
            raise InputError("The token must be of visible ASCII characters. Make one: openssl rand -hex 32.")

    def at_least(self, name: str, other: str, why: str) -> None:
        """Refuse a limit below the one that it must hold."""
        if getattr(self, name) < getattr(self, other):
            raise InputError(
                *(Argument(name, getattr(self, name)), " is less than ", Argument(other, getattr(self, other))),
                f": {why}. Raise the one or lower the other.",
            )

    def shown(self) -> dict[str, Any]:
        """The limits that a client must keep."""
        return {name: getattr(self, name) for name in ("body_bytes", "pixels", "batch", "seconds", "queue")}
