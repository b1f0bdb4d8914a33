"""To Ray and away from it: a cluster that is there, or one of this machine for as long as the work takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import HeatError

__all__ = ["connected", "ray_module"]

LOOPBACK = "127.0.0.1"
STORE = 100 * 2**20
"""Bytes of Ray's own store of objects. Results lie in the shared folder, so that next to nothing is put into it."""


def ray_module() -> Any:
    """Ray, or an error that says how to get it."""
    try:
        import ray
    except ImportError as error:
        raise HeatError("Shards on several machines need Ray. Install it: pip install 'heat-ood[ray]'.") from error
    return ray


@contextmanager
def connected(address: str | None, cpus: float, gpus: float) -> Iterator[Any]:
    """Ray, connected while the block runs; where it was connected before, it stays so.

    Args:
        address: of the head of a cluster, ``host:port`` or ``auto``; None starts Ray on this machine, on loopback.
        cpus: of such a Ray of our own.
        gpus: of such a Ray of our own.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is to be told to anyone
    ray = ray_module()
    if ray.is_initialized():
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            own = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": STORE, "include_dashboard": False}
            ray.init(address="local", _node_ip_address=LOOPBACK, **own, **quiet)
        else:
            local = {"_node_ip_address": LOOPBACK} if address.startswith(f"{LOOPBACK}:") else {}
            ray.init(address=address, **local, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise HeatError(
            f"Ray cannot be reached {where} ({str(error).splitlines()[0]}). See that it runs there (ray status), that "
            "its version is the same, and that RAY_AUTH_MODE and the token are those of the cluster."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
