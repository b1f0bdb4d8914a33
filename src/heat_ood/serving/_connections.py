"""Connections with a time limit: who sends slowly, or never reads, or says nothing, is cut off and holds up nobody."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ._refusals import RETRY_AFTER
from ._settings import Settings

__all__ = ["GRACE", "protocol"]

GRACE = 5.0
"""Seconds beyond those of a request, in which its answer must have been read."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"retry-after: %b\r\ncontent-length: %d\r\n\r\n%b"
)
REASON = b'{"error":"There are too many connections. Ask again in a moment."}'


def protocol(settings: Settings) -> type[asyncio.Protocol]:
    """uvicorn's HTTP by h11, which bounds the size of headers, with a clock on each connection.

    A request must begin within ``idle_seconds`` of the connection, or of the answer before; what follows must be over
    after ``seconds`` and a grace. Whatever the state then is, the connection is aborted, unread answers with it.
    """

    class Timed(H11Protocol):  # type: ignore[misc, unused-ignore]
        clock: asyncio.TimerHandle | None = None
        refused = False
        served: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > settings.connections:
                self.refused = True
                transport.write(FULL % (RETRY_AFTER.encode(), len(REASON), REASON))
                transport.close()
            self.wind(GRACE if self.refused else settings.idle_seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self.wind(None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self.refused:
                super().data_received(data)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not self.served and not self.cycle.response_complete:
                self.served = self.cycle
                self.wind(settings.seconds + GRACE)

        def on_response_complete(self) -> None:
            self.wind(settings.idle_seconds)
            super().on_response_complete()

        def wind(self, seconds: float | None) -> None:
            """Let the clock run for so long from now, or stop it."""
            if self.clock is not None:
                self.clock.cancel()
            self.clock = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    return Timed
