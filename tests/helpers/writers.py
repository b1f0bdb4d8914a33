"""Two processes that write one folder, and one that reads it: the reader always finds one of what was written.

    python tests/helpers/writers.py 1000

runs so many rounds of each kind, with detectors and with guards, and says what the reader found.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import heat_ood

__all__ = ["KINDS", "beside_writers"]

KINDS = ("detector", "guard")
HANG = 600
"""Seconds after which a process counts as hanging."""

SCRIPT = """
import sys, time, warnings
from pathlib import Path
import torch
from torch import nn
import heat_ood
from heat_ood import Extractor, Features
from heat_ood.energies import Energy, GaussianMixture
from heat_ood.guarding import _folder

task, kind, folder, number, rounds = *sys.argv[1:4], *map(int, sys.argv[4:])
torch.set_num_threads(1)
warnings.simplefilter("ignore")
where, go = Path(folder) / "it", Path(folder) / "go"
x = torch.linspace(0, 1, 12).reshape(3, 4)


def model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()


def made(seed):
    "One of the four that are written: each writer has two, so that it replaces its own too."
    g = torch.Generator().manual_seed(seed)
    if kind == "detector":
        return GaussianMixture().fit(Features(avg=torch.rand(40, 4, generator=g), labels=torch.arange(40) % 2))
    extractor = Extractor(model(seed), name=f"nets_of_writers:net{seed}")
    train, held = ([(torch.rand(40, 4, generator=g), torch.arange(40) % 2)] for _ in range(2))
    found = extractor.extract(train, progress=False)
    detector = GaussianMixture().fit(found).calibrate(extractor.extract(held, progress=False))
    return extractor.guard(detector)


def answer(found):
    return tuple((found.score(x) if kind == "detector" else found(x).score).tolist())


known = {answer(made(seed)): seed for seed in range(4)}
assert len(known) == 4
if task == "write":
    own = [made(seed) for seed in (number, number + 2)]
print("ready", flush=True)
while not go.exists():
    time.sleep(0.01)
for i in range(rounds):
    if task == "write":
        own[i % 2].save(where) if kind == "detector" else _folder.save(own[i % 2], where, weights=True)
    else:
        print(known[answer(heat_ood.load(where))], flush=True)
"""

NETS = """
import torch
from torch import nn


def _net():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()


net0 = net1 = net2 = net3 = _net
"""


def beside_writers(kind: str, rounds: int, folder: Path) -> Counter[str]:
    """What a reader found, by what it was, while two processes wrote; an error of any of the three is one here.

    Args:
        kind: ``detector`` or ``guard``.
        rounds: so often each of the writers writes, and the reader reads.
        folder: an empty one.
    """
    (folder / "nets_of_writers.py").write_text(NETS)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(heat_ood.__file__).parents[1]), str(folder)]),
        "OMP_NUM_THREADS": "1",
    }

    def start(task: str, number: int, count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SCRIPT, task, kind, str(folder), str(number), str(count)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder
        )

    first = start("write", 0, 1)  # there is something to read from the beginning
    (folder / "go").touch()
    out, error = first.communicate(timeout=HANG)
    assert first.returncode == 0, error
    (folder / "go").unlink()

    processes = [start("write", 0, rounds), start("write", 1, rounds), start("read", 0, rounds)]
    try:
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", process.communicate(timeout=HANG)[1]
        (folder / "go").touch()
        found = [process.communicate(timeout=HANG) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, error) in zip(processes, found, strict=True):
        assert process.returncode == 0, error
    out = found[2][0]
    return Counter(out.split())


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name in KINDS:
        with tempfile.TemporaryDirectory() as place:
            started = time.perf_counter()
            counts = dict(sorted(beside_writers(name, asked, Path(place)).items()))
            print(f"{name}: {asked} rounds, {time.perf_counter() - started:.0f} s, found {counts}")
