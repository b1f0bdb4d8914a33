"""Shards on many machines: the library's own work, dealt out by Ray."""

from ._engine import Engine
from ._extracting import extract
from ._extracting import unfinished as unfinished
from ._fitting import fit
from ._outcome import Outcome, ShardsError
from ._outcome import Retried as Retried

__all__ = ["Engine", "Outcome", "ShardsError", "extract", "fit"]
