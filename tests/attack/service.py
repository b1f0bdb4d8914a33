"""Attack a running service, and print what came of it:

    python tests/attack/service.py                       # 100,000 requests, then schemathesis
    python tests/attack/service.py --requests 2000 --no-schemathesis
    python tests/attack/service.py --show 1234           # one request, as it is sent

Damaged images, features and requests go to ``heat-ood serve`` in a process of its own, from several clients at once;
then schemathesis, which reads the service's OpenAPI document. It exits with 1 where a promise was broken: an answer of
5xx but 503, a trace, an answer that is no JSON, a process that ended, memory that grew, or another verdict on the same
image afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "helpers"):
    sys.path.insert(0, str(folder))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from harness.requests import request_of  # noqa: E402
from serving_data import Pictures, encoded, make_guard, served  # noqa: E402

PATIENCE = 60
"""Seconds after which a request is taken to hang."""
GROWTH = 64
"""MiB that memory may grow by after the first fifth of the requests: allocators keep some, a leak keeps on growing."""
SCHEMA_CHECKS = "positive_data_acceptance"
"""What schemathesis cannot know: which bytes are an image, and how wide a detector's features are."""


class Attack:
    """Many clients, one list of numbers."""

    def __init__(self, address: str, count: int, seed: int) -> None:
        host, port = address.removeprefix("http://").split(":")
        self.place, self.count, self.seed = (host, int(port)), count, seed
        self.next, self.lock = 0, threading.Lock()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.broken: list[str] = []

    def take(self) -> int | None:
        with self.lock:
            number, self.next = self.next, self.next + 1
        return number if number < self.count else None

    def run(self, clients: int) -> None:
        threads = [threading.Thread(target=self.client, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def client(self) -> None:
        connection: socket.socket | None = None
        while (number := self.take()) is not None:
            kind, sent = request_of(number, self.seed)
            try:
                connection = connection or socket.create_connection(self.place, PATIENCE)
                connection.sendall(sent.content)
                if sent.leaves:
                    connection.close()
                    connection, outcome = None, "left"
                else:
                    outcome, stays = answer_to(connection)
                    if not stays:
                        connection.close()
                        connection = None
            except TimeoutError:
                outcome, connection = "hangs", None
            except OSError as error:
                outcome, connection = f"cut off ({type(error).__name__})", None
            with self.lock:
                self.outcomes[kind, outcome.partition(":")[0]] += 1
                if outcome.startswith(("5", "hangs", "odd")) and not outcome.startswith("503"):
                    self.broken.append(f"request {number} ({kind}): {outcome}")


def answer_to(connection: socket.socket) -> tuple[str, bool]:
    """The status of an answer, with what is wrong about it; and whether the connection goes on."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := connection.recv(1 << 16)):
            return "no answer", False
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    status = lines[0].split()[1]
    length = int(headers.get("content-length", -1))
    while len(body) < length or length < 0:
        if not (piece := connection.recv(1 << 16)):
            break
        body += piece
    stays = length >= 0 and headers.get("connection") != "close"
    if b"Traceback" in body:
        return f"odd: a trace in {status}", stays
    if headers.get("content-type") == "application/json":
        content = json.loads(body, parse_constant=lambda name: 1 / 0)
        if int(status) >= 400 and list(content) != ["error"]:
            return f"odd: {status} without its reason", stays
    elif int(status) >= 400 and b"Invalid HTTP request" not in body:
        return f"odd: {status} that is no JSON", stays
    return status, stays


def read(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"{address}{path}", timeout=PATIENCE) as answer:
        content: bytes = answer.read()
    return content


def judged(address: str) -> Any:
    """The verdict on one image, which is to stay as it is."""
    content = encoded(Pictures(1, 5).pixels[0])
    asked = urllib.request.Request(f"{address}/v1/score", content, {"content-type": "image/png"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return json.load(answer)["results"][0]["p_value"]


def memory_of(process: Any) -> float:
    """Resident memory in MiB."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def counted(address: str) -> dict[str, int]:
    """How many requests were answered, by code."""
    found: Counter[str] = Counter()
    for line in read(address, "/metrics").decode().splitlines():
        if line.startswith("heat_ood_requests_total{"):
            found[line.split('code="')[1][:3]] += int(float(line.rsplit(" ", 1)[1]))
    return dict(found)


def by_schema(address: str, examples: int, seed: int) -> tuple[bool, str]:
    """Whether schemathesis found nothing, and what it said."""
    program = Path(sys.executable).with_name("schemathesis")
    line = [str(program), "run", f"{address}/openapi.json", "--max-examples", str(examples), "--seed", str(seed)]
    line += ["--phases", "examples,coverage,fuzzing", "--checks", "all", "--exclude-checks", SCHEMA_CHECKS]
    line += ["--no-color", "--suppress-health-check", "all", "--continue-on-failure", "--warnings", "off"]
    with tempfile.TemporaryDirectory() as here:
        done = subprocess.run(line, capture_output=True, text=True, cwd=here, check=False)
    return done.returncode == 0, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--examples", type=int, help="of schemathesis, an operation; a tenth of the requests")
    parser.add_argument("--no-schemathesis", action="store_true")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print one request and send nothing")
    given = parser.parse_args()
    if given.show is not None:
        print(*request_of(given.show, given.seed))
        return 0
    from heat_ood import HEAT

    examples = given.examples or max(5, given.requests // 10)
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="heat-ood-service-") as folder:
        place = Path(folder) / "guard"
        make_guard(HEAT(residual=None), place)
        with served(place, "--seconds", "20") as (address, process):
            before = judged(address)
            started, memory = time.perf_counter(), [memory_of(process)]
            attack = Attack(address, given.requests, given.seed)
            watching = threading.Event()

            def watch() -> None:
                while not watching.wait(0.2):
                    if attack.next * 20 >= len(memory) * given.requests:
                        memory.append(memory_of(process))

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            attack.run(given.clients)
            seconds = time.perf_counter() - started
            broken += attack.broken
            lost = given.requests - attack.outcomes.total()
            broken += [f"{lost} requests were not sent: the attack itself failed"] if lost else []
            sent = counted(address)
            if not given.no_schemathesis:
                fine, said = by_schema(address, examples, given.seed)
                print(said[-1500 if fine else -6000 :])
                broken += [] if fine else ["schemathesis found something"]
            watching.set()
            watcher.join()
            memory.append(memory_of(process))
            after, answered = judged(address), counted(address)
            waits = [line for line in read(address, "/metrics").decode().splitlines() if "queue_samples " in line]
            process.terminate()
            ended, said = process.wait(PATIENCE), process.stderr.read()
    table(attack.outcomes)
    print(f"\n{given.requests:,} requests in {seconds:.0f} s, answered by code: {dict(sorted(sent.items()))}")
    print(f"with those of schemathesis: {dict(sorted(answered.items()))}, {sum(answered.values()):,} in all")
    print(f"memory, MiB: {', '.join(f'{m:.0f}' for m in memory)}")
    settled = memory[max(1, len(memory) // 5)]
    broken += [f"memory grew from {settled:.0f} to {memory[-1]:.0f} MiB"] if memory[-1] > settled + GROWTH else []
    broken += [f"the verdict was {before}, and is {after}"] if before != after else []
    broken += [f"it ended with {ended}"] if ended else []
    broken += [f"answered with {code}" for code in answered if code[0] == "5" and code != "503"]
    broken += ["samples are left in the queue"] if not waits[-1].endswith(" 0.0") else []
    broken += [f"it said: {said[-800:]}"] if "Traceback" in said else []
    print(f"broken promises: {broken[:20] or 'none'}")
    return 1 if broken else 0


def table(outcomes: Counter[tuple[str, str]]) -> None:
    columns = sorted({outcome for _, outcome in outcomes})
    print(f"| requests | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for kind in dict.fromkeys(kind for kind, _ in sorted(outcomes)):
        print(f"| {kind} | {' | '.join(f'{outcomes[kind, column]:,}' for column in columns)} |")


if __name__ == "__main__":
    sys.exit(main())
