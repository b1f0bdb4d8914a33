"""Lines of the log, written aside: a stream that nobody reads holds up no request."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from typing import TextIO

__all__ = ["Aside", "log_to_stderr"]

KEPT = 10_000
"""Lines that may wait to be written; those beyond are dropped, and counted."""
PATIENCE = 2.0
"""Seconds that the end waits for the last lines."""
QUIET = {
    "uvicorn.error": logging.ERROR,
    "uvicorn.access": logging.CRITICAL,
    "asyncio": logging.CRITICAL,
    "python_multipart": logging.CRITICAL,
}
"""Loggers of others, who say something of every broken request: clients could fill a disk."""


class Aside(logging.Handler):
    """Write records to a stream in a thread of its own.

    Args:
        stream: where to; one that blocks, as a full pipe does, blocks that thread alone.
        kept: lines that may wait.
    """

    def __init__(self, stream: TextIO, kept: int = KEPT) -> None:
        super().__init__()
        self.stream, self.dropped = stream, 0
        self.lines: queue.Queue[str | None] = queue.Queue(kept)
        self.thread = threading.Thread(target=self.write, name="log", daemon=True)
        self.thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.lines.put_nowait(self.format(record))
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.handleError(record)

    def write(self) -> None:
        while (line := self.lines.get()) is not None:
            dropped, self.dropped = self.dropped, 0
            try:
                self.stream.write(f"{line}\n" + (f"({dropped:,} lines were dropped)\n" if dropped else ""))
                self.stream.flush()
            except (OSError, ValueError):  # the stream was closed, and there is nowhere to say so
                return

    def close(self) -> None:
        """Write what waits, as long as somebody reads it."""
        try:
            self.lines.put(None, timeout=PATIENCE)
            self.thread.join(PATIENCE)
        except queue.Full:
            pass
        super().close()


def log_to_stderr() -> logging.Handler | None:
    """Dated lines for what the service says; of uvicorn, errors alone.

    Returns the handler, to be closed at the end; None where there is one already.
    """
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    own = logging.getLogger("heat_ood.serving")
    if own.handlers:
        return None
    handler = Aside(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False
    return handler
