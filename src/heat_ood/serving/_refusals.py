"""What is said to a client whose request is not answered: a status, and one sentence with its remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

__all__ = ["OverloadedError", "RefusedError", "reply"]

RETRY_AFTER = "1"
"""Seconds after which a refused request finds room again, most likely: a full queue is judged within about so many."""


class RefusedError(Exception):
    """A request that is not answered, and what its client is told."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})

    def response(self) -> Response:
        return reply({"error": self.message}, self.status, self.headers)


class OverloadedError(RefusedError):
    """More is asked than can be judged or held in time."""

    def __init__(self, cause: str) -> None:
        super().__init__(503, f"{cause}. Ask again in a moment.", {"Retry-After": RETRY_AFTER})


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON as every client can read it: without NaN, in ASCII."""
    body = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(body, status, headers, "application/json")
