"""A longer run: workers, nodes and drivers killed at random moments; every run must end with the same bytes.

python tests/scale/kills.py [--kills 30] [--seed 0]

Each run extracts the shards of 1,024 images on two Ray nodes and sums their moments. Somewhere in it one thing is
killed without a word; a driver is then started again. At the end all files are compared with those of one process.
Afterwards a driver with a wrong token must be refused.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import numpy as np

from ray_nodes import Nodes, ray_nodes

SHARDS = 8


def started(folder: Path, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "heat_ood", *map(str, words)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str], limit: float = 300) -> str:
    said, _ = process.communicate(timeout=limit)
    if process.returncode:
        raise SystemExit(f"a driver ended with {process.returncode}:\n{said}")
    return said


def extraction(out: str) -> tuple[object, ...]:
    model = ("--model", "slow_network:network", "--batch-size", 16)
    return ("extract", *model, "--images", "train.npz", "--out", out)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def workers_of(nodes: Nodes) -> list[int]:
    """The processes of the workers of this cluster alone: children of its raylets."""
    raylets = {p.process.pid for n in (nodes.cluster.head_node, *nodes.others) for p in n.all_processes["raylet"]}
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and b"Worker" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except (OSError, ValueError):
            continue
    return found


def one_run(nodes: Nodes, folder: Path, kind: str, wait: float) -> str:
    """Extract and fit with one kill after so many seconds; what was said at the end."""
    ray: tuple[Any, ...] = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
    driver = started(folder, *extraction("many"), "--shards", SHARDS, *ray)
    time.sleep(wait)
    hit = driver.poll() is None
    if kind == "driver":
        driver.kill()
        driver.wait()
        driver = started(folder, *extraction("many"), "--shards", SHARDS, *ray)
    elif kind == "node":
        nodes.kill()
        nodes.add()
    elif kind == "worker":
        for pid in workers_of(nodes)[:1]:
            os.kill(pid, signal.SIGKILL)
    said = ended(driver)
    shutil.rmtree(folder / "detector", ignore_errors=True)
    ended(started(folder, "fit", "many", "--out", "detector", "--no-residual", *ray))
    lines = [line for line in said.splitlines() if "done" in line or "again" in line]
    return f"{'' if hit else '(it was done already) '}{' | '.join(lines)[:160]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, folder = random.Random(given.seed), Path(tempfile.mkdtemp(prefix="heat-ood-kills-"))
    try:
        labels = np.arange(1024) % 10
        pixels = np.random.default_rng(0).integers(0, 200, (1024, 16, 16, 3)) + 5 * labels[:, None, None, None]
        np.savez(folder / "train.npz", images=pixels.astype(np.uint8), labels=labels)
        with ray_nodes() as nodes:
            for number in range(SHARDS):
                ended(started(folder, *extraction("one"), "--shard", f"{number}/{SHARDS}"))
            ended(started(folder, "merge", "one"))
            ended(started(folder, "fit", "one", "--out", "alone", "--no-residual"))
            expected = contents(folder / "one")
            (folder / "pause").touch()
            ray = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
            began = time.monotonic()
            ended(started(folder, *extraction("many"), "--shards", SHARDS, *ray))
            whole = time.monotonic() - began
            one_run(nodes, folder, "none", 0)
            bad = int(contents(folder / "many") != expected)
            for number in range(given.kills):
                shutil.rmtree(folder / "many")
                kind = ("worker", "node", "driver")[number % 3]
                wait = rng.uniform(0, whole)
                said = one_run(nodes, folder, kind, wait)
                same = contents(folder / "many") == expected
                bad += not same
                print(
                    f"{number + 1:3} {kind:6} after {wait:5.1f} s: {'same' if same else 'OTHER'} bytes; {said}",
                    flush=True,
                )
            os.environ["RAY_AUTH_TOKEN"] = "f" * 64
            refused = started(folder, *extraction("none"), "--engine", "ray", "--address", nodes.address)
            said, _ = refused.communicate(timeout=120)
            print(f"a wrong token: {'refused' if refused.returncode and 'cannot be reached' in said else said}")
            bad += not refused.returncode
        print(f"{given.kills} kills, {bad} with other bytes or left open")
        raise SystemExit(int(bad > 0))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
