"""A longer run: workers, nodes and drivers killed at random moments; every run must end with the same bytes.

python tests/scale/kills.py [--kills 30] [--seed 0]

Each run extracts the shards of 1,024 images on two Ray nodes and fits a detector to them. Somewhere in it, seven times
of ten while it extracts, one thing is killed without a word; a driver is then started again. At the end all files, of
features, moments and detector, are compared with those of one process. Afterwards a driver with a wrong token must be
refused.
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


def workers_of(nodes: Nodes) -> dict[int, str]:
    """The processes of the workers of this cluster alone, children of its raylets, and what each is doing."""
    raylets = {p.process.pid for n in (nodes.cluster.head_node, *nodes.others) for p in n.all_processes["raylet"]}
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            title = (place / "cmdline").read_bytes().strip(b"\0").decode(errors="replace")
            if parent in raylets and title.startswith("ray::Worker"):
                found[int(place.name)] = title
        except (OSError, ValueError):
            continue
    return found


def wait_for_workers(nodes: Nodes, driver: subprocess.Popen[str], doing: str = "") -> None:
    """Wait until there is one, that does a shard (``.do``) if that is asked for, or until the end."""
    while driver.poll() is None and not any(title.endswith(doing) for title in workers_of(nodes).values()):
        time.sleep(0.02)


def struck(nodes: Nodes, kind: str, driver: subprocess.Popen[str]) -> str:
    """Kill one thing without a word; what it was."""
    if kind == "worker":
        wait_for_workers(nodes, driver)
    if driver.poll() is not None:
        return "nothing, it was done already"
    if kind == "worker":
        pid, title = next(iter(workers_of(nodes).items()), (0, "nothing, the workers had gone"))
        if pid:
            os.kill(pid, signal.SIGKILL)
        return title
    busy = f"{sum(title.endswith('.do') for title in workers_of(nodes).values())} workers at work"
    if kind == "driver":
        driver.kill()
        driver.wait()
        return f"the driver, {busy}"
    nodes.kill()
    nodes.add()
    return f"a node, {busy}"


def one_run(nodes: Nodes, folder: Path, kind: str, phase: str, wait: float, early: bool = False) -> str:
    """Extract and fit, with one kill in one of the two; what was said at the end.

    The kill comes so many seconds after the first worker is at work or, if ``early``, after the driver was started.
    """
    ray: tuple[Any, ...] = ("--engine", "ray", "--address", nodes.address, "--workers", 2)
    told = []
    commands = {
        "extract": (*extraction("many"), "--shards", SHARDS, *ray),
        "fit": ("fit", "many", "--out", "detector", "--no-residual", "--overwrite", *ray),
    }
    for name, command in commands.items():
        driver = started(folder, *command)
        if name == phase:
            if not early:
                wait_for_workers(nodes, driver, ".do" if name == "extract" else "")
            time.sleep(wait)
            told.append(struck(nodes, kind, driver))
            if kind == "driver":
                driver = started(folder, *command) if driver.returncode else driver
        said = ended(driver)
        told += [line[:110] for line in said.splitlines() if "again" in line or ("done" in line and name == phase)]
    return "; ".join(told)


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
            one_run(nodes, folder, "none", "", 0)
            detector = contents(folder / "alone")
            bad = int((contents(folder / "many"), contents(folder / "detector")) != (expected, detector))
            for number in range(given.kills):
                for made in ("many", "detector"):
                    shutil.rmtree(folder / made)
                kind, phase = ("worker", "node", "driver")[number % 3], "fit" if number % 10 >= 7 else "extract"
                early = number % 10 == 5
                wait = rng.uniform(0, 6 if phase == "extract" else 3)
                said = one_run(nodes, folder, kind, phase, wait, early)
                same = (contents(folder / "many"), contents(folder / "detector")) == (expected, detector)
                bad += not same
                what = f"{kind:6} in {phase:7} after {wait:4.1f} s: {'same' if same else 'OTHER'} bytes"
                print(f"{number + 1:3} {what}; {said}", flush=True)
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
