"""The command as a process: it serves, keeps slow clients from holding up others, and ends as it should."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from heat_ood.cli import app
from heat_ood.guarding import LiveJudge
from heat_ood.serving import Drift
from serving_data import Pictures, encoded, served

PNG = {"content-type": "image/png"}
IMAGE = encoded(Pictures(1, 7).pixels[0])
LONG = 30
"""Seconds after which something hangs."""


@pytest.fixture(scope="module")
def service(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """One with short limits."""
    state = tmp_path_factory.mktemp("state") / "drift.json"
    limits = ("--seconds", "2", "--idle-seconds", "2", "--connections", "40", "--body-bytes", "100000")
    with served(folder, "--drift-state", str(state), *limits) as (address, process):
        wait_ready(address)
        yield address, process


def wait_ready(address: str) -> None:
    end = time.monotonic() + LONG
    while httpx.get(f"{address}/readyz").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def post(address: str, content: bytes = IMAGE, **options: Any) -> httpx.Response:
    return httpx.post(f"{address}/v1/score", content=content, headers=PNG, timeout=LONG, **options)


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LONG)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def head(length: int | str, extra: str = "") -> bytes:
    start = "POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
    return f"{start}Content-Length: {length}\r\n{extra}\r\n".encode()


def test_it_answers(service: tuple[str, Any]) -> None:
    address, _ = service
    found = post(address)
    assert found.status_code == 200
    assert "server" not in found.headers
    assert found.json()["results"][0]["p_value"] > 0


def test_slow_and_broken_clients_hold_up_nobody(service: tuple[str, Any]) -> None:
    """They say nothing, send a header or a body byte by byte, go away in the middle, or never read."""
    address, process = service
    slow = [connected(address) for _ in range(25)]
    for i, connection in enumerate(slow):
        start = (b"", b"POST /v1/sc", head(len(IMAGE)), head(len(IMAGE)) + IMAGE[:50], head(len(IMAGE)) + IMAGE)[i % 5]
        connection.sendall(start)
    for _ in range(5):
        broken = connected(address)
        broken.sendall(head(len(IMAGE)) + IMAGE[:50])
        broken.close()
    assert [post(address).status_code for _ in range(5)] == [200] * 5
    said = [all_of(connection) for connection in slow]  # each is ended by the service
    for connection in slow:
        connection.close()
    assert [text[:12] for text in said[2::5]] == [b"HTTP/1.1 408"] * 5
    assert [text[:12] for text in said[3::5]] == [b"HTTP/1.1 408"] * 5
    assert [text[:12] for text in said[4::5]] == [b"HTTP/1.1 200"] * 5
    assert (said[0], said[1]) == (b"", b"")
    assert process.poll() is None
    metrics = httpx.get(f"{address}/metrics").text
    assert "heat_ood_queue_samples 0.0" in metrics
    assert "heat_ood_held_bytes 0.0" in metrics


def send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")


def test_a_client_that_sends_for_ever_is_cut_off(service: tuple[str, Any]) -> None:
    address, _ = service
    with connected(address) as connection:
        connection.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):  # noqa: PT011
            send_for_ever(connection)
    assert post(address).status_code == 200


def test_too_large_a_body_is_told_so_before_it_is_sent(service: tuple[str, Any]) -> None:
    address, _ = service
    with connected(address) as connection:
        connection.sendall(head(10**15))
        assert connection.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 200_000,
        head("-5"),
        head("many"),
        head(3, "Content-Length: 5\r\n"),
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(service: tuple[str, Any], request_: bytes) -> None:
    address, process = service
    with connected(address) as connection:
        connection.sendall(request_)
        said = all_of(connection)
    assert said[:10] in (b"HTTP/1.1 4", b"")
    assert process.poll() is None
    assert post(address).status_code == 200


def test_connections_are_bounded(service: tuple[str, Any]) -> None:
    address, _ = service
    many = [connected(address) for _ in range(45)]
    said = all_of(many[-1])
    assert said.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in said
    for connection in many:
        connection.close()
    end = time.monotonic() + LONG
    while (found := post(address)).status_code != 200:
        assert (found.status_code, time.monotonic() < end) == (503, True)


def load(address: str, stop: threading.Event, answered: list[int], failed: list[str]) -> None:
    """Ask until told to stop, or until the service has ended."""
    with httpx.Client(timeout=LONG) as client:
        while not stop.is_set():
            try:
                answered.append(client.post(f"{address}/v1/score", content=IMAGE, headers=PNG).status_code)
            except httpx.ConnectError:
                return
            except httpx.TransportError as error:
                failed.append(type(error).__name__)
                return


def test_sigterm_under_load_answers_what_was_accepted_and_keeps_all_drift(
    folder: Path, tmp_path: Path, judge: LiveJudge
) -> None:
    state = tmp_path / "new" / "drift.json"
    with served(folder, "--drift-state", str(state)) as (address, process):
        wait_ready(address)
        answered, failed, stop = list[int](), list[str](), threading.Event()
        clients = [threading.Thread(target=load, args=(address, stop, answered, failed)) for _ in range(4)]
        with connected(address) as half:
            half.sendall(head(len(IMAGE)) + IMAGE[:100])
            for client in clients:
                client.start()
            while len(answered) < 40:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            half.sendall(IMAGE[100:])  # accepted before, and finished after
            assert all_of(half).startswith(b"HTTP/1.1 200")
        assert process.wait(LONG) == 0
        for client in clients:
            client.join(LONG)
        assert set(answered) == {200}
        assert judge.calibration is not None
        assert Drift.load(state, judge.calibration.scores.numpy()).report()["samples"] == len(answered) + 1
        said = process.stderr.read()  # one image over and over is a drift, and nothing else is to be said
        assert ["drift: the stream stopped looking" in line for line in said.splitlines()] == [True]


def test_sigkill_under_load_needs_no_repair_and_loses_less_than_a_second(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "drift.json"
    answered, failed, stop = list[int](), list[str](), threading.Event()
    with served(folder, "--drift-state", str(state)) as (address, process):
        wait_ready(address)
        clients = [threading.Thread(target=load, args=(address, stop, answered, failed)) for _ in range(4)]
        for client in clients:
            client.start()
        counts: list[tuple[float, int]] = []
        while len(answered) < 30 or len(counts) < 200:
            counts.append((time.monotonic(), len(answered)))
            time.sleep(0.01)
        killed = time.monotonic()
        process.kill()
        process.wait(LONG)
        stop.set()
        for client in clients:
            client.join(LONG)
    a_second_ago = max(count for when, count in counts if when <= killed - 1)
    with served(folder, "--drift-state", str(state)) as (address, process):
        wait_ready(address)
        kept = httpx.get(f"{address}/v1/drift").json()["samples"]
        assert a_second_ago <= kept <= len(answered) + len(clients)
        assert post(address).status_code == 200
        process.send_signal(signal.SIGTERM)  # killed once more, it could leave a part of its own
        assert process.wait(LONG) == 0
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".part")] == []


def test_a_token_of_the_environment_and_an_interruption(folder: Path) -> None:
    token = "a-token-of-some-length"
    with served(folder, "--no-drift", env={"HEAT_OOD_TOKEN": token}) as (address, process):
        assert httpx.get(f"{address}/v1/info").status_code == 401
        assert httpx.get(f"{address}/v1/info", headers={"authorization": f"Bearer {token}"}).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130
        assert process.stderr.read() == "interrupted; what was accepted is answered, and drift is saved\n"


def test_what_cannot_be_served_is_said_before_anything_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "short").write_text("abc")
    (tmp_path / "other.json").write_text(json.dumps({"format": "something"}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options, code, said in (
            ((str(tmp_path / "none"), "--host", "0.0.0.0"), 1, "warning: 0.0.0.0 lets other machines in, and no token"),
            ((str(folder), "--port", port, "--no-drift"), 1, "Address already in use. Pass another --port"),
            ((str(folder), "--token-file", str(tmp_path / "short")), 1, "holds no token: 16 to 4,096 visible"),
            ((str(folder), "--token-file", str(tmp_path / "none")), 1, "No such file"),
            ((str(folder), "--queue", "3"), 1, "--queue 3 is less than --batch 64"),
            ((str(folder), "--fpr", "0.0001", "--port", "0"), 1, "there are 300 in all"),
            ((str(folder), "--samples", str(tmp_path / "short"), "--port", "0", "--no-drift"), 1, "is no folder"),
            ((str(folder), "--drift-state", str(tmp_path / "other.json"), "--port", "0"), 1, "other.json"),
            ((str(folder), "--drift-state", str(tmp_path), "--port", "0"), 1, "is a folder"),
            ((str(folder), "--drift-state", str(tmp_path / "new"), "--no-drift"), 2, "leave out one of the two"),
        ):
            done = CliRunner().invoke(app, ["serve", *options])
            assert (done.exit_code, done.stdout) == (code, ""), done.stderr
            assert said in done.stderr
            assert "Traceback" not in done.stderr


def test_drift_is_kept_beside_the_guard() -> None:
    from heat_ood.cli._commands.serve import beside

    assert beside(Path("/data/guard")) == Path("/data/guard.drift.json")
    assert beside(Path(".")).parent == Path.cwd().parent


def test_answers_are_sent_at_once() -> None:
    """A socket without its protocol would be given no TCP_NODELAY by asyncio: each answer would wait 40 ms."""
    from heat_ood.serving._running import listening

    with listening("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
