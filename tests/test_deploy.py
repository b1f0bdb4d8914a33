"""The page on deployment: its commands run in order, in a shell, on data that the test makes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reader_data import furnish

TEXT = (Path(__file__).parents[1] / "docs" / "deploy.md").read_text(encoding="utf-8")
PORT = "8000"


def commands(heading: str) -> list[str]:
    """The indented lines of the section under a heading, joined where they go on."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"(?:^    [^\n]+\n)+", section, flags=re.MULTILINE)
    return [line.strip() for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def documents(text: str) -> Iterator[Any]:
    """The JSON objects in what was printed, one after the other."""
    while (start := text.find('{"')) >= 0:
        found, end = json.JSONDecoder().raw_decode(text[start:])
        yield found
        text = text[start + end :]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_from_a_model_to_a_running_service(tmp_path: Path) -> None:
    furnish(tmp_path)
    lines = commands("From a model to a service")
    assert [line.split()[1] for line in lines if line.startswith("heat-ood")] == ["protect", "export", "serve"]
    script = "\n".join(["set -euo pipefail", *lines]).replace(f":{PORT}", f":{(port := free_port())}")
    script = script.replace("heat-ood serve", f"heat-ood serve --port {port}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": f"{tmp_path}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = list(documents(done.stdout))
    verdict = next(a for a in answers if "results" in a)["results"][0]
    assert verdict["name"] == "photo.png"
    assert verdict["class"]["name"] in ("dark", "bright")
    assert verdict["verdict"] in ("like the training data", "unlike the training data")
    assert next(a for a in answers if "evidence" in a)["samples"] == 1
    assert (tmp_path / "guard.onnx.drift.json").is_file(), "what was watched is kept"
