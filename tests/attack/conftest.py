"""How the tests run a part of the attack: in a process of its own, as ``make attack`` does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "run.py"
HANGS = 600
"""Seconds after which the attack itself is taken to hang."""


@pytest.fixture(scope="session")
def rows() -> Callable[..., list[dict[str, Any]]]:
    """The rows of a part: alarms, threads or writers."""

    def run(part: str, amount: int) -> list[dict[str, Any]]:
        line = [sys.executable, str(SCRIPT), "--rows-of", part, "--tries", str(amount)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=HANGS, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return [json.loads(text) for text in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid files of every format, and what each route answers to them."""
    root = tmp_path_factory.mktemp("attack")
    subprocess.run([sys.executable, str(SCRIPT), "--build", str(root)], check=True, timeout=HANGS)
    return root
