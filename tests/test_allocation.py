"""Memory that is freed stays with the process: the same again costs no new pages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from heat_ood.allocation import keep_memory

FAULTS = """
import resource
import torch
from heat_ood.allocation import keep_memory
if {keep}:
    print(keep_memory())
def rounds(n):
    for _ in range(n):
        maps = [torch.ones(16_000_000) for _ in range(2)]  # 64 MB each, more than glibc keeps of itself
        del maps  # or the next would be made beside them
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
rounds(5)
before = faults()
rounds(20)
print(faults() - before)
"""
glibc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is for Linux with glibc")


def run(keep: bool, **environment: str) -> list[str]:
    command = [sys.executable, "-c", FAULTS.format(keep=keep)]
    # huge pages would come two megabytes at a fault
    own = {**os.environ, "THP_MEM_ALLOC_ENABLE": "0", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=own, timeout=120).stdout.split()


@glibc
def test_what_is_freed_comes_again_without_new_pages() -> None:
    (without,) = map(int, run(False))
    said, kept = run(True)
    assert said == "True"
    assert int(kept) < without / 3


@glibc
def test_who_has_settled_it_is_left_alone() -> None:
    assert run(True, MALLOC_MMAP_THRESHOLD_="131072")[0] == "False"


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heat_ood.allocation.ctypes.CDLL", lambda name: object())
    assert keep_memory() is False
