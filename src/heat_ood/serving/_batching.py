"""Concurrent requests are judged together: a bounded wait, a bounded batch, one thread."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..errors import InputError
from ..guarding import Judge, Judged
from ._room import Room
from ._samples import Part, joined, judged_by, rows_of
from ._settings import Settings

__all__ = ["Batcher"]

Told = Callable[[Judged, float], None]
"""Told, in the judging thread, what was said of a batch and how many seconds that took."""


@dataclass(eq=False)
class Work:
    """A part that waits for its verdict."""

    part: Part
    verdict: asyncio.Future[Judged] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """A queue before the judge.

    A batch is what waits when the judge is free. It waits for more only while there are samples in the house that are
    still being decoded, and no longer than ``settings.wait``: a lone client never waits for nobody. How much may wait
    is the room's to say.
    """

    def __init__(self, judge: Judge, settings: Settings, room: Room, told: Told) -> None:
        self.judge, self.settings, self.room, self.told = judge, settings, room, told
        self.waiting: deque[Work] = deque()
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="judging")
        self.task = asyncio.get_running_loop().create_task(self.run())

    async def judged(self, part: Part) -> Judged:
        """What is said of a part; cancelled before its batch is begun, it is not judged at all."""
        work = Work(part)
        self.waiting.append(work)
        self.arrived.set()
        return await work.verdict

    async def alone(self, part: Part) -> Judged:
        """Judge outside the queue, telling nobody: for the first sample."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, judged_by, self.judge, part)

    async def stop(self) -> None:
        """Judge nothing more; whoever still waits is told so by the cancellation."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for work in self.waiting:
            work.verdict.cancel()
        await asyncio.to_thread(self.thread.shutdown)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.gather()
            batch = self.take()
            if not batch:
                continue
            verdicts = await loop.run_in_executor(self.thread, self.judge_batch, [work.part for work in batch])
            for work, verdict in zip(batch, verdicts, strict=True):
                if work.verdict.done():
                    continue
                if isinstance(verdict, Judged):
                    work.verdict.set_result(verdict)
                else:
                    work.verdict.set_exception(verdict)

    async def gather(self) -> None:
        """Wait for a first part, then a moment for those that are about to come."""
        while not self.waiting:
            self.arrived.clear()
            await self.arrived.wait()
        end = time.perf_counter() + self.settings.wait
        while (left := end - time.perf_counter()) > 0:
            count = sum(len(work.part) for work in self.waiting)
            if count >= min(self.settings.batch, self.room.samples):
                return
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), left)
            except TimeoutError:
                return

    def take(self) -> list[Work]:
        """The oldest part, and those of its kind that fit beside it; the order of the others stays."""
        while self.waiting and self.waiting[0].verdict.done():
            self.waiting.popleft()
        taken: list[Work] = []
        left: list[Work] = []
        count = 0
        for work in self.waiting:
            if work.verdict.done():
                continue
            fits = count + len(work.part) <= self.settings.batch
            if not taken or (fits and work.part.kind == taken[0].part.kind):
                taken.append(work)
                count += len(work.part)
            else:
                left.append(work)
        self.waiting = deque(left)
        return taken

    def judge_batch(self, parts: Sequence[Part]) -> list[Judged | Exception]:
        """In the judging thread: the verdict on each part, or its error; one that fails fails alone."""
        started = time.perf_counter()
        try:
            judged = finite(judged_by(self.judge, joined(parts)))
        except Exception as error:
            if len(parts) == 1:
                return [error]
            return [verdict for part in parts for verdict in self.judge_batch([part])]
        self.told(judged, time.perf_counter() - started)
        ends = [0]
        for part in parts:
            ends.append(ends[-1] + len(part))
        return [rows_of(judged, start, end) for start, end in pairwise(ends)]


def finite(judged: Judged) -> Judged:
    """What was said, if it is a number: other scores have no place in an answer or in the stream."""
    if not np.isfinite(judged.score).all():
        bad = int((~np.isfinite(judged.score)).sum())
        raise InputError(f"{bad} samples have no finite score: they are too large to compute with. Leave them out.")
    return judged
