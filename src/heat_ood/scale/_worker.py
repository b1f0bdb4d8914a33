"""A worker: an actor of Ray that prepares once and then does one shard after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ..errors import HeatError, LockedError

__all__ = ["Busy", "Failure", "Version", "Work", "worker_class"]

Work: TypeAlias = Callable[[int], Any]
"""Does the shard of a number; what it returns is small."""


class Version(NamedTuple):
    """What a worker says when it is ready."""

    library: str
    node: str


class Busy(NamedTuple):
    """Another process is writing to the shard."""

    why: str


class Failure(NamedTuple):
    """A shard came to nothing; ``final`` where it would again."""

    why: str
    final: bool


class Worker:
    """What runs in the actor's process. Errors are answers: Ray's own would carry whole tracebacks.

    Args:
        prepare: gives the function that does a shard.
        threads: of torch; at least one.
    """

    def __init__(self, prepare: Callable[[], Work], threads: float) -> None:
        self.prepare, self.threads = prepare, max(1, int(threads))
        self.work: Work | None = None

    def hello(self) -> Version | Failure:
        """Prepare, and say who is there."""
        import ray
        import torch

        from .. import __version__
        from ..allocation import keep_memory

        keep_memory()
        torch.set_num_threads(self.threads)
        node = ray.get_runtime_context().get_node_id()
        try:
            self.work = self.prepare()
        except Exception as error:
            return Failure(told(error), final=True)
        return Version(__version__, node)

    def do(self, shard: int) -> Any:
        """Do a shard."""
        assert self.work is not None
        try:
            return self.work(shard)
        except LockedError as error:
            return Busy(told(error))
        except Exception as error:
            return Failure(told(error), final=isinstance(error, HeatError))


def told(error: Exception) -> str:
    """An error of ours or of the file system in its own words; of any other, what it is and where it arose."""
    if isinstance(error, HeatError | OSError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"


def worker_class(ray: Any) -> Any:
    """The worker as an actor of Ray."""
    return ray.remote(Worker)
