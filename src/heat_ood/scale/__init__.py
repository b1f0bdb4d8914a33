"""Shards on many machines: the library's own work, dealt out by Ray."""

from ._engine import Engine
from ._outcome import Outcome, Retried, ShardsError

__all__ = ["Engine", "Outcome", "Retried", "ShardsError"]
