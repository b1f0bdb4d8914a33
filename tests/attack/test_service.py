"""The service under attack, in little: ``python tests/attack/service.py`` sends 100,000 requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.requests import KINDS, request_of

SCRIPT = Path(__file__).parent / "service.py"


def test_hostile_requests_and_the_document_break_no_promise() -> None:
    line = [sys.executable, "-W", "ignore", str(SCRIPT), "--requests", "600", "--examples", "5"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "broken promises: none"
    assert "Operations:       10 selected / 10 total" in done.stdout
    assert "No issues found" in done.stdout


def test_every_kind_of_request_is_among_them() -> None:
    assert {request_of(number, 0)[0] for number in range(200)} == set(KINDS)
    assert request_of(7, 0) == request_of(7, 0)
