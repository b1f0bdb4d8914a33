"""Work for the workers of an engine, which they import by its name; how it fails is told by files in a folder."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heat_ood.errors import InputError, LockedError

KILLED, STRAGGLER, CORRUPT, LOCKED, FLAKY, POISON = range(1, 7)
"""Shards that fail once, but for the corrupt one and the last, which fail always."""


def prepare(folder: Path, kind: str = "") -> Callable[[int], Any]:
    """What each worker calls when it starts."""
    if kind == "no model":
        raise InputError("There is no model at that place. Name another.")
    if kind == "dies at once":
        os.kill(os.getpid(), signal.SIGKILL)
    return functools.partial(work, folder, kind)


def work(folder: Path, kind: str, shard: int) -> dict[str, Any]:
    """Do a shard, which is to write a file; in what way some of them go wrong is told by ``kind``."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    with open(folder / f"tries-{shard}", "a", encoding="utf-8") as tries:
        tries.write(f"{node}\n")
    first = len((folder / f"tries-{shard}").read_text().splitlines()) == 1
    if kind == "trouble":
        trouble(shard, first)
    if kind == "full disk" and node == (folder / "full").read_text():
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("x")
    if kind == "wait for all":
        while not any(
            len(file.read_text().split()) and file.read_text().split()[0] != node for file in folder.glob("tries-*")
        ):
            time.sleep(0.05)
    (folder / f"done-{shard}").write_text("done")
    return {"samples": 10}


def trouble(shard: int, first: bool) -> None:
    """A way to fail for each of some shards."""
    if (shard == KILLED and first) or shard == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    if shard == STRAGGLER and first:
        time.sleep(600)
    if shard == CORRUPT:
        raise InputError("two.jpg is no image. Leave it out with --skip-unreadable.")
    if shard == LOCKED and first:
        raise LockedError("Another process is writing to it.")
    if shard == FLAKY and first:
        raise RuntimeError("CUDA error")
