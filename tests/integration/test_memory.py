"""The memory that scoring holds, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch
from pathlib import Path
from heat_ood import Features, create

def status(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) / 1024

train, test = (torch.rand(n, 512, generator=torch.Generator().manual_seed(n)) for n in (50_000, 10_000))
knn = create("knn").fit(Features(avg=train))
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
assert torch.isfinite(knn.score(Features(avg=test))).all()
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from /proc")
def test_knn_holds_less_than_a_gibibyte() -> None:
    """10,000 samples of 512 features against 50,000 stored ones; the n × N matrix alone would take two."""
    out = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert float(out.stdout) < 1024
