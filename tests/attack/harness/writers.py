"""Two writers and one reader of one folder: whoever reads sees one of the two, whole, at any moment."""

from __future__ import annotations

import multiprocessing
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import torch

from heat_ood import Energy, Features, HeatError, create, load, protect

from . import networks
from .targets import method_data

__all__ = ["FOLDERS", "attack_folder"]

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
    it, count = FOLDERS[kind](), Counter[tuple[str, str]]()
    for _ in range(rounds):
        barrier.wait(PATIENCE)
        try:
            it.write(folder, which)
        except HeatError:
            count["refused", ""] += 1
        except Exception as error:
            count["raw", f"writer: {type(error).__name__}: {error}"] += 1
        barrier.wait(PATIENCE)  # both are done, and the end of the round is looked at
        barrier.wait(PATIENCE)
    said.put(count)


def reader(kind: str, folder: Path, wanted: list[list[float]], stop: Event, said: Any) -> None:
    """Read as often as there is time."""
    it, count = FOLDERS[kind](), Counter[tuple[str, str]]()
    while not stop.is_set():
        count[look(it, folder, wanted, "reads", "failed", "reader")] += 1
    said.put(count)


def look(it: Any, folder: Path, wanted: list[list[float]], good: str, bad: str, who: str) -> tuple[str, str]:
    """What a read came to, and why."""
    try:
        return (good, "") if known(it.read(folder), wanted) else (bad, f"{who}: neither of the two")
    except Exception as error:
        return bad, f"{who}: {type(error).__name__}: {error}"[:160]


def attack_folder(kind: str, root: Path, rounds: int) -> dict[str, Any]:
    """Rounds of two writers, a reader beside them all the time, and a look at the end of each."""
    context, it, folder = multiprocessing.get_context("fork"), FOLDERS[kind](), root / kind
    wanted = []
    for which in (0, 1):
        it.write(root / f"{kind}-{which}", which)
        wanted.append(it.read(root / f"{kind}-{which}"))
    assert not known(wanted[0], wanted[1:]), "the two must be told apart"
    it.write(folder, 0)
    barrier, stop, said = context.Barrier(3), context.Event(), context.Queue()
    jobs = [(writer, (kind, folder, which, rounds, barrier, said)) for which in (0, 1)]
    jobs.append((reader, (kind, folder, wanted, stop, said)))  # type: ignore[arg-type]
    processes = [context.Process(target=target, args=given, daemon=True) for target, given in jobs]
    total = Counter[tuple[str, str]]()
    for process in processes:
        process.start()
    try:
        for _ in range(rounds):
            barrier.wait(PATIENCE)
            barrier.wait(PATIENCE)
            total[look(it, folder, wanted, "whole", "unreadable", "end")] += 1
            barrier.wait(PATIENCE)
        stop.set()
        for _ in processes:
            total += said.get(timeout=PATIENCE)
    finally:
        for process in processes:
            process.kill()
            process.join()
    count = dict.fromkeys(("whole", "unreadable", "reads", "failed", "refused", "raw"), 0)
    for (name, _), times in total.items():
        count[name] += times
    notes = [f"{times} × {note}" for (_, note), times in total.most_common() if note]
    return {"folder": kind, "rounds": rounds, **count, "notes": notes[:5]}
