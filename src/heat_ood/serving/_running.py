"""The process: a socket, uvicorn on it, and an end at SIGTERM that answers what was accepted."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

import uvicorn

from ..errors import Argument, InputError
from ..guarding import Judge
from ._app import build
from ._connections import GRACE, protocol
from ._logs import log_to_stderr
from ._settings import Settings

__all__ = ["run"]

BACKLOG = 1024


def run(judge: Judge, settings: Settings, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until a signal; see :func:`heat_ood.serving.serve`."""
    with closing(listening(host, port)) as bound:
        app, log = build(judge, settings), None
        try:
            log = log_to_stderr()
            warnings.simplefilter("ignore")  # what a client's image makes Pillow say is kept for each text, for ever
            config = uvicorn.Config(
                app,
                http=protocol(settings),
                loop="asyncio",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=math.ceil(settings.idle_seconds),
                timeout_graceful_shutdown=math.ceil(settings.seconds + GRACE),
                backlog=BACKLOG,
            )
            server = Server(config)
            announce(address_of(bound, host))
            asyncio.run(server.serve(sockets=[bound]))
            if server.interrupted:
                raise KeyboardInterrupt
        finally:
            app.state.service.close()
            if log is not None:
                logging.getLogger("heat_ood.serving").removeHandler(log)
                log.close()


class Server(uvicorn.Server):
    """uvicorn, for which a signal is the ordinary end: it does not die of it once more afterwards."""

    interrupted = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.interrupted = self.interrupted or sig == signal.SIGINT
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that its address is known before the model answers.

    It names its protocol: asyncio sends small answers at once (``TCP_NODELAY``) on sockets alone that do, and a lone
    client would wait 40 ms for the rest of each.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        bound = socket.socket(family, kind, proto)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InputError(
            f"Cannot listen on {host} port {port}: {cause}. Pass another ", Argument("port"), ", or 0 for a free one."
        ) from None
    return bound


def address_of(bound: socket.socket, host: str) -> str:
    port = bound.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
