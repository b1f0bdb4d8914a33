"""The ways in; what the extra installs is imported behind them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import HeatError
from ..guarding import Judge
from ._settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["HOST", "PORT", "create_app", "is_loopback", "serve"]

HOST, PORT = "127.0.0.1", 8000
MISSING = "The service needs FastAPI, uvicorn and two more. Install them: pip install 'heat-ood[serve]'."


def create_app(judge: Judge, settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application, for a server of one's own.

    Args:
        judge: what is asked: ``LiveJudge(heat_ood.load("guard"))`` of :mod:`heat_ood.guarding`.
        settings: limits and what else there is to say; None is the defaults.

    One process is one service: batches, the queue's limit, the metrics and the watch on the stream are its own.
    :func:`serve` adds what a server must do about slow clients, and about the end.
    """
    try:
        from ._app import build
    except ImportError as error:
        raise HeatError(MISSING) from error
    return build(judge, settings or Settings())


def serve(
    judge: Judge,
    settings: Settings | None = None,
    host: str = HOST,
    port: int = PORT,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until SIGTERM, which answers what was accepted before it returns; SIGINT then interrupts.

    Args:
        judge: as for :func:`create_app`.
        settings: as for :func:`create_app`.
        host: the address to listen on; by default only this machine can reach it.
        port: 0 takes a free one.
        announce: told the address, once requests are taken.
    """
    try:
        from ._running import run
    except ImportError as error:
        raise HeatError(MISSING) from error
    run(judge, settings or Settings(), host, port, announce)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
