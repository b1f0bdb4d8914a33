"""Two writers and one reader of one folder: whoever reads sees one of the two, whole, at any moment."""

from __future__ import annotations

import multiprocessing
import queue
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import torch

from heat_ood import Energy, Features, HeatError, create, load, protect

from . import networks
from .targets import method_data

__all__ = ["FOLDERS", "attack_all", "attack_folder"]

PATIENCE = 60.0
"""Seconds that a round may take: a limit for what hangs."""


class Detectors:
    """Two detectors of one method, fitted to other samples."""

    def __init__(self) -> None:
        self.made = [create("gmm").fit(method_data.samples(240, seed=seed)) for seed in (0, 1)]

    def write(self, folder: Path, which: int) -> None:
        self.made[which].save(folder)

    def read(self, folder: Path) -> list[float]:
        found: list[float] = Energy.load(folder).score(method_data.samples(8, seed=2)).tolist()
        return found


class Stores:
    """Two sets of features of one shape; a mixture of both is neither."""

    def __init__(self) -> None:
        self.made = [method_data.samples(64, seed=seed) for seed in (0, 1)]

    def write(self, folder: Path, which: int) -> None:
        self.made[which].save(folder)

    def read(self, folder: Path) -> list[float]:
        features = Features.open(folder)
        return [float(column.double().sum()) for column in features.columns.values()]


class Guards:
    """Two detectors before one model, as ``protect`` writes them."""

    def __init__(self) -> None:
        self.images = [torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1, 2)]

    def write(self, folder: Path, which: int) -> None:
        from heat_ood import Extractor

        extractor = Extractor(networks.small(), name="harness.networks:small")
        train, held = ([(images, torch.arange(40) % 3)] for images in self.images[:2])
        detector = create("gmm" if which else "energy")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            protect(extractor, train, held, folder, detector=detector, progress=False)

    def read(self, folder: Path) -> list[float]:
        answer = load(folder)(self.images[2][:4])
        return [*answer.score.tolist(), *answer.p_value.tolist()]


FOLDERS: dict[str, Callable[[], Any]] = {"detector": Detectors, "features": Stores, "guard": Guards}


def known(found: list[float], wanted: list[list[float]]) -> bool:
    return any(torch.allclose(torch.tensor(found), torch.tensor(one), rtol=1e-5, atol=1e-6) for one in wanted)


def writer(kind: str, folder: Path, which: int, rounds: int, barrier: Barrier, said: Any) -> None:
    """Write in each round, at the same time as the other one."""
    torch.set_num_threads(1)
    it = FOLDERS[kind]()
    for _ in range(rounds):
        barrier.wait(PATIENCE)
        try:
            it.write(folder, which)
        except HeatError:
            said.put(("refused", ""))
        except Exception as error:
            said.put(("raw", f"writer: {type(error).__name__}: {error}"))
        barrier.wait(PATIENCE)  # both are done; the reader of the end state goes on
        barrier.wait(PATIENCE)


def reader(kind: str, folder: Path, wanted: list[list[float]], stop: Event, said: Any) -> None:
    torch.set_num_threads(1)
    it = FOLDERS[kind]()
    while not stop.is_set():
        try:
            fine = known(it.read(folder), wanted)
            said.put(("reads", "") if fine else ("failed", "reader: neither of the two"))
        except Exception as error:
            said.put(("failed", f"reader: {type(error).__name__}: {error}"))


def attack_folder(kind: str, root: Path, rounds: int) -> dict[str, Any]:
    """Rounds of two writers, a reader beside them all the time, and a look at the end of each."""
    context, it = multiprocessing.get_context("spawn"), FOLDERS[kind]()
    wanted = []
    for which in (0, 1):
        it.write(root / f"{kind}-{which}", which)
        wanted.append(it.read(root / f"{kind}-{which}"))
    assert not known(wanted[0], wanted[1:]), "the two must be told apart"
    folder = root / kind
    it.write(folder, 0)
    barrier, stop, said = context.Barrier(3), context.Event(), context.Queue()
    processes = [
        context.Process(target=writer, args=(kind, folder, which, rounds, barrier, said), daemon=True)
        for which in (0, 1)
    ]
    processes.append(context.Process(target=reader, args=(kind, folder, wanted, stop, said), daemon=True))
    count = {"whole": 0, "unreadable": 0, "reads": 0, "failed": 0, "refused": 0, "raw": 0}
    notes: dict[str, int] = {}

    def tell(name: str, note: str = "") -> None:
        count[name] += 1
        if note:
            notes[note[:160]] = notes.get(note[:160], 0) + 1

    def drain() -> None:
        try:
            while True:
                tell(*said.get_nowait())
        except queue.Empty:
            return

    for process in processes:
        process.start()
    try:
        for _ in range(rounds):
            barrier.wait(PATIENCE)
            barrier.wait(PATIENCE)
            try:
                fine = known(it.read(folder), wanted)
                tell("whole" if fine else "unreadable", "" if fine else "end: neither of the two")
            except Exception as error:
                tell("unreadable", f"end: {type(error).__name__}: {error}")
                it.write(root / f"{kind}-{len(notes)}-again", 0)
            barrier.wait(PATIENCE)
            drain()
    finally:
        stop.set()
        deadline = time.monotonic() + 10
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            drain()  # a queue that is full holds its process
            time.sleep(0.05)
        for process in processes:
            process.kill()
            process.join()
        drain()
    seen = sorted(notes.items(), key=lambda item: -item[1])[:5]
    return {"folder": kind, "rounds": rounds, **count, "notes": [f"{n} × {note}" for note, n in seen]}


def attack_all(root: Path, rounds: int) -> Iterator[dict[str, Any]]:
    for kind in FOLDERS:
        yield attack_folder(kind, root, rounds)
