"""Processes that write one store at the same time, or are killed while they write it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import heat_ood
from heat_ood.errors import FormatError
from heat_ood.features import Features
from store_data import same, some

PREPARE = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from heat_ood.errors import InputError
from heat_ood.features import Extractor, Features, _writer
from store_data import some
_writer.PATIENCE = 0.0
os.fsync = lambda _: None  # of a kill all reaches the disk; only a loss of power is another matter
"""

RIVAL = (
    PREPARE
    + """
path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
features, won = some(6 + seed, seed=seed), 0
for _ in range(rounds):
    try:
        features.save(path)
        won += 1
    except InputError as error:
        assert "Another process is writing" in str(error), error
print(won)
"""
)

KILLED = (
    PREPARE
    + """
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
x = torch.rand(12, 4, generator=torch.Generator().manual_seed(1))
loader = [(part, torch.arange(len(part)) % 2) for part in x.split([3, 2, 3, 2, 2])]
JOBS = {
    "save": lambda path: some(9, seed=1).save(path),
    "extract": lambda path: Extractor(model).extract(loader, path, overwrite=True),
    "go on": lambda path: Extractor(model).extract(loader, path),
}
Extractor(model).extract(loader)  # what torch imports at its first pass is there in every fork
EVENTS = ("open", "os.rename", "os.remove", "os.truncate", "fcntl.flock")

for line in sys.stdin:  # import once, then a fork for each run
    path, job, left = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        left = int(left)

        def watch(event, arguments):
            global left
            if event in EVENTS and (event == "fcntl.flock" or path in str(arguments[0])):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        JOBS[job](path)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
)


def environment() -> dict[str, str]:
    paths = [str(Path(heat_ood.__file__).parents[1]), str(Path(__file__).parent)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}


class Killer:
    """Runs a job that is killed before its n-th step on the disk: an open, a rename, a removal, a lock."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self.server = server

    def __call__(self, path: Path, job: str, step: int) -> bool:
        """Whether it was killed, and did not come to its end before."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(f"{path}\t{job}\t{step}\n")
        self.server.stdin.flush()
        status = int(self.server.stdout.readline())
        assert status in (0, signal.SIGKILL), status
        return status != 0


@contextmanager
def killer() -> Iterator[Killer]:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as server:
        yield Killer(server)
        assert server.stdin is not None
        server.stdin.close()


def contend(path: Path, rounds: int) -> tuple[list[int], int]:
    """Two processes save other features to one path, again and again, and this one reads them meanwhile.

    Returns:
        How often each of the writers came through, and how often the store was read; it always was one of the two.
    """
    choices = [some(6 + seed, seed=seed) for seed in (1, 2)]
    choices[0].save(path)
    commands = [[sys.executable, "-c", RIVAL, str(path), str(seed), str(rounds)] for seed in (1, 2)]
    writers = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True, env=environment()) for c in commands]
    reads = 0
    while any(writer.poll() is None for writer in writers):
        try:
            found = Features.open(path, verify=reads % 2 == 0)
        except FormatError as error:
            for writer in writers:
                writer.kill()
            raise AssertionError(f"after {reads} reads: {error}") from error
        assert any(same(found, choice) for choice in choices)
        reads += 1
    outputs = [writer.communicate()[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert any(same(Features.open(path, verify=True), choice) for choice in choices)
    return [int(text) for text in outputs], reads
