"""Real Ray nodes on this machine, on loopback, with a token; each can be killed as if its machine had lost power."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STORE = 80 * 2**20
LOOPBACK = "127.0.0.1"


class Nodes:
    """A head and further nodes, with one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.made = {"num_cpus": 1, "object_store_memory": STORE, "node_ip_address": LOOPBACK}
        self.cluster = Cluster(initialize_head=True, head_node_args={**self.made, "include_dashboard": False})
        self.others: list[Any] = []

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> Any:
        """One more node."""
        self.others.append(self.cluster.add_node(**self.made))
        return self.others[-1]

    def kill(self, node: Any | None = None) -> None:
        """End a node without a word, and with it its workers; the last one that was added, where none is named."""
        node = self.others[-1] if node is None else node
        self.others.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self.cluster.shutdown()


@contextmanager
def ray_nodes(others: int = 1) -> Iterator[Nodes]:
    """A head and ``others``, which end with the block. The environment has the token meanwhile, for drivers too."""
    wanted = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else 15: beside other work on the machine they would hardly run
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces the loopback address by another, on all networks
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    nodes = Nodes()
    try:
        for _ in range(others):
            nodes.add()
        yield nodes
    finally:
        nodes.close()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A limit of time, for what would hang if it failed."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"it took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
