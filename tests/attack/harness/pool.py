"""Many tries in processes that may die: forked from one that has everything loaded, watched, and replaced."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from .tries import SECONDS, Attack, Outcome, limit

__all__ = ["run_here", "run_tries"]

BATCH = 500
"""Tries of one process: a leak does not grow for ever."""
SCRIPT = Path(__file__).parents[1] / "run.py"


def run_here(attack: Attack, numbers: Sequence[int], seconds: float = SECONDS) -> Iterator[Outcome]:
    """Do tries in forked children; one that hangs, crashes or takes too much is recorded, and the next one goes on."""
    left = list(numbers)
    while left:
        for outcome in batch(attack, left[:BATCH], seconds):
            yield outcome
            left = left[left.index(outcome.number) + 1 :]
            if outcome.outcome == "memory":
                break  # what is left of it would be counted for the next ones


def batch(attack: Attack, numbers: Sequence[int], seconds: float) -> Iterator[Outcome]:
    """The tries of one child, as they end; the last one is lost where it did not come back."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        child(attack, numbers, writer)
    os.close(writer)
    waiting, text, hung, ended = list(numbers), b"", False, False
    try:
        while not (hung or ended):
            hung = not select.select([reader], [], [], seconds)[0]
            more = b"" if hung else os.read(reader, 65536)
            ended = not more
            *whole, text = (text + more).split(b"\n")
            for line in whole:
                waiting.pop(0)
                yield Outcome(**json.loads(line))
    finally:
        os.close(reader)
        if hung or not ended:
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    failure = Path(f"{attack.scratch}-failure.txt")
    if failure.exists():
        raise RuntimeError(f"the attack itself failed in try {waiting[0]}: {failure.read_text()}")
    if waiting:
        yield attack.lost(waiting[0], *cause(hung, status))


def cause(hung: bool, status: int) -> tuple[str, str]:
    """Why a child did not come back."""
    if hung:
        return "hang", f"no answer within {SECONDS} s"
    if not os.WIFSIGNALED(status):
        return "crash", f"it exits with {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    return "memory" if number == signal.SIGKILL else "crash", signal.Signals(number).name


def child(attack: Attack, numbers: Sequence[int], writer: int) -> None:
    """Never returns."""
    try:
        faulthandler.disable()  # pytest's; a crash is recorded
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        limit()
        for number in numbers:
            os.write(writer, attack.run(number).to_json().encode() + b"\n")
    except BaseException:
        Path(f"{attack.scratch}-failure.txt").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def run_tries(tries: int, seed: int, root: Path, jobs: int = 1, start: int = 0) -> Iterator[Outcome]:
    """Tries ``start`` to ``start + tries``, in so many processes, as they end."""
    subprocess.run([sys.executable, str(SCRIPT), "--build", str(root)], check=True)
    line = [sys.executable, str(SCRIPT), "--tries", str(tries), "--seed", str(seed), "--start", str(start)]
    processes = [
        subprocess.Popen(
            [*line, "--part-of-files", f"{job}/{jobs}", "--root", str(root)],
            stdout=subprocess.PIPE,
        )
        for job in range(jobs)
    ]
    streams = {process.stdout: b"" for process in processes if process.stdout is not None}
    while streams:
        for stream in select.select(list(streams), [], [])[0]:
            more = os.read(stream.fileno(), 65536)
            if not more:
                del streams[stream]
                continue
            *whole, streams[stream] = (streams[stream] + more).split(b"\n")
            for line in whole:
                yield Outcome(**json.loads(line))
    for process in processes:
        if process.wait():
            raise RuntimeError(f"a process of the attack itself ended with {process.returncode}")


def work(root: Path, seed: int, tries: int, job: int, jobs: int, start: int = 0) -> None:
    """What one of the processes does: its share of the tries, a JSON line each."""
    attack = Attack(root, seed, root / f"scratch-{job}")
    try:
        for outcome in run_here(attack, range(start + job, start + tries, jobs)):
            print(outcome.to_json(), flush=True)
    finally:
        shutil.rmtree(attack.scratch, ignore_errors=True)
