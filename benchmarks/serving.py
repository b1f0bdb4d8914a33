"""The service under a real load tool: throughput, p99, overload, and memory over many requests.

    python benchmarks/serving.py [--seconds 10] [--clients 1,4,16,64] [--network cifar] [--memory 100000]

``heat-ood serve`` runs in a process of its own on 127.0.0.1, and wrk (Debian's package) posts PNG images to it over
connections that stay open. Capacity is the largest throughput found with 1 to 64 clients, one image a request. Then
about twice as much is offered: 503s are counted, and one more client says how long its answers took. The
load tool, the service and whatever else runs share the cores. Judging takes one thread of
torch (``OMP_NUM_THREADS=1``).
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import torch

from common import header

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from serving_data import encoded, make_guard, served  # noqa: E402

SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "image/png"
local file = io.open("%s", "rb")
wrk.body = file:read("*a")
file:close()
local threads = {}
function setup(thread)
    table.insert(threads, thread)
end
function delay()
    return %d
end
function init(args)
    good, busy, other, times = 0, 0, 0, ""
end
function response(status, headers, body)
    if status == 200 then good = good + 1 elseif status == 503 then busy = busy + 1 else other = other + 1 end
end
function done(summary, latency, requests)
    local counts = {0, 0, 0}
    for _, thread in ipairs(threads) do
        counts[1] = counts[1] + thread:get("good")
        counts[2] = counts[2] + thread:get("busy")
        counts[3] = counts[3] + thread:get("other")
    end
    local errors = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
    io.write(string.format("RESULT %%d %%d %%d %%d %%d %%f %%f\\n", summary.duration, counts[1], counts[2], counts[3],
        errors, latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


def started(address: str, script: Path, clients: int, seconds: int) -> Any:
    line = ["wrk", "-t", "1", "-c", str(clients), "-d", f"{seconds}s", "--timeout", "30s", "-s", str(script)]
    return subprocess.Popen([*line, f"{address}/v1/score"], stdout=subprocess.PIPE, text=True)


def read(load: Any) -> dict[str, float]:
    """What all clients got: 200s and 503s a second, others and failures in all, and the latency of all in ms."""
    said, _ = load.communicate()
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+) (\S+) (\S+)", said)
    assert found is not None, said
    took, good, busy, other, errors, median, p99 = map(float, found.groups())
    rates = {"good": 1e6 * good / took, "busy": 1e6 * busy / took}
    return {**rates, "other": other, "errors": errors, "median": median, "p99": p99}


def counts(address: str) -> dict[str, float]:
    """What the service counts of itself so far."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    names = {
        "samples": "heat_ood_samples_total",
        "batches": "heat_ood_batch_samples_count",
        "judging": "heat_ood_judging_seconds_total",
        "memory": "process_resident_memory_bytes",
    }
    return {key: float(lines[name]) for key, name in names.items()}


def beside(load: Any, address: str, image: bytes) -> list[float]:
    """One more client while a load lasts: how long its answers with 200 took, in ms, sorted."""
    took: list[float] = []
    while load.poll() is None:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
        start = time.perf_counter()
        connection.request("POST", "/v1/score", image, {"Content-Type": "image/png"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status == 200:
            took.append(1000 * (time.perf_counter() - start))
        else:
            time.sleep(0.02)
    return sorted(took)


MODULE = """
from pathlib import Path
import shared_networks
def cifar10():
    return shared_networks.cifar10(Path(%r)).eval()
"""
"""The network by a name, which the service makes it again by."""


def guard_of(network: str, folder: Path) -> tuple[Path, Any]:
    """A guard to serve, and an image of the size that it takes."""
    import numpy as np

    pixels = np.random.default_rng(0)
    if network == "small":
        from heat_ood import HEAT

        make_guard(HEAT(residual=None), folder / "guard")
        return folder / "guard", encoded(pixels.integers(0, 256, (20, 16, 3), dtype=np.uint8))
    return cifar_guard(folder), encoded(pixels.integers(0, 256, (32, 32, 3), dtype=np.uint8))


def cifar_guard(folder: Path) -> Path:
    """The shared CIFAR-10 network with all stages, guarded by HEAT corrected against contrast, as protect makes it."""
    from dataclasses import replace

    import numpy as np
    from torch.utils.data import DataLoader, TensorDataset

    from heat_ood import HEAT, Extractor, protect
    from heat_ood.heat import AGAINST_CONTRAST
    from heat_ood.images import Preprocessing

    sys.path.insert(0, str(ROOT / "suites"))
    from shared_networks import cifar10

    data = Path(os.environ.get("HEAT_OOD_DATA", ROOT.parent / "shared" / "data")).resolve()
    (folder / "served_network.py").write_text(MODULE % str(data))
    prepared = Preprocessing(size=(32, 32), mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616))

    class Noise(TensorDataset):
        """Pictures that say nothing: what a verdict says does not matter here, what it costs does."""

        preprocessing, classes = prepared, tuple(f"class {i}" for i in range(10))

    def loader(n: int, seed: int) -> Any:
        pixels = np.random.default_rng(seed).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        return DataLoader(Noise(prepared.normalised(pixels), torch.arange(n) % 10), batch_size=64)

    extractor = Extractor(cifar10(data).eval(), "stages", name="served_network:cifar10")
    detector = HEAT(residual=replace(AGAINST_CONTRAST, epochs=1))
    protect(extractor, loader(400, 0), loader(400, 1), folder / "guard", detector=detector, progress=False)
    return folder / "guard"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of each load")
    parser.add_argument("--clients", default="1,2,4,8,16,32,64")
    parser.add_argument("--network", choices=("cifar", "small"), default="cifar")
    parser.add_argument("--queue", type=int, default=64, help="samples that may wait")
    parser.add_argument("--memory", type=int, default=100_000, help="requests over which memory is watched; 0: none")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    header(f"heat-ood serve under wrk: {given.network}, one PNG image a request, {given.seconds} s each")
    with tempfile.TemporaryDirectory(prefix="heat-ood-serving-") as name:
        folder = Path(name)
        guard, image = guard_of(given.network, folder)
        (folder / "image.png").write_bytes(image)
        paths = [ROOT / "src", ROOT / "suites", ROOT / "tests" / "helpers", folder]
        env = {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        limits = ("--queue", str(given.queue), "--connections", str(8 * given.queue))
        with served(guard, *limits, env=env) as (address, _):
            script = folder / "load.lua"
            script.write_text(SCRIPT % (folder / "image.png", 0))
            read(started(address, script, 4, 2))
            capacity = throughput(address, script, [int(n) for n in given.clients.split(",")], given.seconds)
            overload(address, script, image, capacity, given)
            if given.memory:
                memory_over(address, script, given.memory)


def throughput(address: str, script: Path, clients: list[int], seconds: int) -> float:
    """The table of clients, and the most answers a second."""
    print("| clients | answers/s | p50, ms | p99, ms | samples a batch | share of time judging | not 200 |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    best = 0.0
    for n in clients:
        before = counts(address)
        found = read(started(address, script, n, seconds))
        now = {name: value - before[name] for name, value in counts(address).items()}
        wrong = found["busy"] * seconds + found["other"] + found["errors"]
        numbers = f"{found['good']:.0f} | {found['median']:.1f} | {found['p99']:.1f}"
        shares = f"{now['samples'] / now['batches']:.1f} | {now['judging'] / seconds:.2f}"
        print(f"| {n} | {numbers} | {shares} | {wrong:.0f} |", flush=True)
        best = max(best, found["good"])
    return best


def overload(address: str, script: Path, image: bytes, capacity: float, given: argparse.Namespace) -> None:
    """Twice what can be answered, by clients who pause, so that so much is offered whether they are refused or not."""
    clients = 4 * given.queue
    pause = max(0.0, clients / (2 * capacity) - 0.5 * given.queue / capacity)
    paused = script.with_name("paused.lua")
    paused.write_text(SCRIPT % (script.with_name("image.png"), round(1000 * pause)))
    seconds = max(2 * given.seconds, round(6 * given.queue / capacity))  # the queue must have time to fill
    load = started(address, paused, clients, seconds)
    took = beside(load, address, image)
    found = read(load)
    offered = found["good"] + found["busy"]
    print(f"\n{clients} clients, queue of {given.queue}: {offered:.0f} requests/s, {offered / capacity:.1f} times the")
    print(f"capacity; {found['good']:.0f}/s answered, {found['busy']:.0f}/s refused with 503,", end=" ")
    print(f"others {found['other']:.0f}, failures {found['errors']:.0f}; p99 of all {found['p99']:.0f} ms.")
    if took:
        p50, p99 = (took[min(len(took) - 1, int(len(took) * q))] for q in (0.5, 0.99))
        print(f"Answers with 200 to one more client: {len(took)}, p50 {p50:.0f} ms, p99 {p99:.0f} ms.", flush=True)


def memory_over(address: str, script: Path, requests: int) -> None:
    """Resident memory while so many requests are answered."""
    first = counts(address)
    seen, done = [first["memory"] / 2**20], 0.0
    while done < requests:
        read(started(address, script, 16, 10))
        now = counts(address)
        done = now["samples"] - first["samples"]
        seen.append(now["memory"] / 2**20)
    print(f"\nresident memory over {done:,.0f} requests, MiB: {', '.join(f'{m:.0f}' for m in seen)}")


if __name__ == "__main__":
    main()
