"""What every request passes first: the token, headers that keep a browser safe, the count, and the last catch."""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._metrics import Metrics
from ._refusals import RefusedError
from ._settings import Settings
from ._tokens import borne

__all__ = ["OPEN", "PAGE", "Gate"]

PAGE = "/page/"
"""Below it are the page's files."""
OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""What may be asked without the token; so may the page's files."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
    (b"cache-control", b"no-store"),
]
LOG = logging.getLogger("heat_ood.serving")


class Gate:
    """An ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            refused = self.refused(scope)
            await (self.app if refused is None else refused.response())(scope, receive, counted)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:
            LOG.error("a request failed", exc_info=error)
            if not status:
                failed = RefusedError(500, "The service failed; its log says how. Ask whoever runs it.")
                await failed.response()(scope, receive, counted)
        finally:
            self.count(scope, status, time.perf_counter() - started)

    def refused(self, scope: Scope) -> RefusedError | None:
        """Why a request is not even looked at."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if scope["method"] not in ("GET", "HEAD") and (b"sec-fetch-site", b"cross-site") in headers:
            return RefusedError(403, "A page of another site asked for this. Use the service's own page.")
        path: str = scope["path"]
        if self.settings.token is None or path in OPEN or path.startswith(PAGE) or borne(headers, self.settings.token):
            return None
        return RefusedError(
            401, "The token is missing or wrong. Send it: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
        )

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        route: Any = scope.get("route")
        named = getattr(route, "path", "other")
        self.metrics.requests.labels(named, str(status)).inc()
        self.metrics.latency.labels(named).observe(seconds)
        if self.settings.access_log:
            LOG.info("%s %s %d %.1f ms", scope["method"][:10], named, status, 1000 * seconds)
