"""The log is written aside: a stream that nobody reads holds up nobody."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import httpx
import pytest

from heat_ood.serving._logs import Aside
from serving_data import served


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, text, None, None)


def test_lines_are_written_in_order_and_the_end_waits_for_them(capfd: pytest.CaptureFixture[str]) -> None:
    with os.fdopen(os.dup(2), "w") as stream:
        handler = Aside(stream)
        for i in range(200):
            handler.emit(record(f"line {i}"))
        handler.close()
    assert capfd.readouterr().err == "".join(f"line {i}\n" for i in range(200))


def test_a_full_pipe_drops_lines_and_says_how_many() -> None:
    reading, writing = os.pipe()
    size, text = 0, "x" * 999
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as reader:
        handler = Aside(stream, kept=10)
        for _ in range(300):  # a pipe holds some 65 of them; whoever writes the others would never return
            handler.emit(record(text))
        threading.Thread(target=handler.close).start()
        dropped = 0
        while size + dropped < 300:
            line = reader.readline()
            dropped += int(line.split()[0].strip("(").replace(",", "")) if "dropped" in line else 0
            size += line.startswith("x")
        handler.thread.join(10)
    assert dropped > 200
    assert not handler.thread.is_alive()


def test_broken_requests_say_nothing_in_the_log(folder: Path) -> None:
    broken = {"content": b"--x\r\nno header\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}}
    with served(folder, "--no-drift") as (address, process):
        assert httpx.post(f"{address}/v1/score", **broken, timeout=30).status_code == 400
        process.terminate()
        assert (process.wait(20), process.stderr.read()) == (0, "")


def test_a_service_whose_log_nobody_reads_goes_on(folder: Path) -> None:
    with served(folder, "--access-log", "--no-drift") as (address, process), httpx.Client(timeout=30) as client:
        for _ in range(2500):  # 40 bytes of log each, where a pipe holds 65,536
            assert client.get(f"{address}/healthz").status_code == 200
        process.terminate()
        assert process.wait(20) == 0
