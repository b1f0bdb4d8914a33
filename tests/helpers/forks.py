"""Processes that need not import the library: each is a fork of one that has, and ends by itself or by an alarm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import heat_ood

__all__ = ["Forks", "forks"]

SERVER = """
import importlib, json, os, signal, sys

for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for number, (path, flags) in enumerate(((os.devnull, os.O_RDONLY), (asked["out"], new), (asked["err"], new))):
            os.dup2(os.open(path, flags), number)
        os.chdir(asked["folder"])
        sys.argv = ["it", *asked["arguments"]]
        signal.alarm(asked["seconds"])
        exec(compile(asked["code"], "<forked>", "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """Runs code in processes of their own, each with its own output, working folder, limits and end."""

    def __init__(self, server: subprocess.Popen[str], place: Path) -> None:
        self.server, self.place = server, place

    def run(self, code: str, *arguments: Any, seconds: int = 120) -> subprocess.CompletedProcess[bytes]:
        """What the code printed and how it ended, here in this folder; -14 is that it took longer than it may."""
        out, err = (self.place / name for name in ("out", "err"))
        asked = {"code": code, "arguments": [*map(str, arguments)], "seconds": seconds, "folder": os.getcwd()}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(asked | {"out": str(out), "err": str(err)}) + "\n")
        self.server.stdin.flush()
        ended = int(self.server.stdout.readline())
        return subprocess.CompletedProcess(asked["arguments"], ended, out.read_bytes(), err.read_bytes())


@contextmanager
def forks(place: Path, *modules: str) -> Iterator[Forks]:
    """A process that has imported these modules, until the block ends."""
    path = os.pathsep.join([str(Path(heat_ood.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", SERVER, *modules]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        yield Forks(server, place)
        assert server.stdin is not None
        server.stdin.close()
