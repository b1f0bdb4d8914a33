"""The body of a request, as it streams in: counted by what comes, whatever its header promises."""

from __future__ import annotations

from starlette.requests import Request

from ._refusals import RefusedError
from ._room import Hold

__all__ = ["received"]


async def received(request: Request, hold: Hold, most: int) -> bytes:
    """All of a body of at most so many bytes; what it takes is held."""
    promised = request.headers.get("content-length", "0")
    if promised.isdecimal() and int(promised[:20]) > most:
        raise too_large(most)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_large(most)
        hold.take(size=len(piece))
        pieces.append(piece)
    return b"".join(pieces)


def too_large(most: int) -> RefusedError:
    return RefusedError(413, f"The body has more than {most:,} bytes. Send fewer or smaller samples.")
