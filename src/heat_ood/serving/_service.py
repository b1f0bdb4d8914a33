"""What happens to a request for a verdict: it is received, decoded, judged with others, and answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from starlette.requests import ClientDisconnect, Request

from ..errors import HeatError, InputError
from ..guarding import Judge, Judged
from ._answers import results
from ._batching import Batcher
from ._keeping import Keeper
from ._metrics import Metrics
from ._receiving import received
from ._refusals import OverloadedError, RefusedError
from ._room import Hold, Room
from ._samples import PIXELS, Part, Samples
from ._settings import Settings
from ._uploads import reader

__all__ = ["Service"]

T = TypeVar("T")
SHOWN = 200
"""Samples that ``/v1/recent`` shows."""
UNKNOWN = 64
"""Pixels a side of the first image, where the judge takes images of any size."""
LOG = logging.getLogger("heat_ood.serving")


class Service:
    """A judge and all that stands around it."""

    def __init__(self, judge: Judge, settings: Settings) -> None:
        if judge.preprocessing is None and not judge.columns:
            raise InputError("This judge takes neither images nor features: it does not know how images are prepared.")
        if judge.calibration is not None:
            judge.calibration.check(settings.fpr)
        self.judge, self.settings, self.room, self.metrics = judge, settings, Room(settings), Metrics()
        self.read = reader(judge, settings)
        self.recent: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        self.ready: str | None = "The model is being loaded"
        self.keeper: Keeper | None = None
        if settings.drift and judge.calibration is not None:
            self.keeper = Keeper(judge.calibration.scores.double().cpu().numpy(), settings.drift_state)
        self.metrics.watch("heat_ood_queue_samples", "Samples that wait or are judged.", lambda: self.room.samples)
        self.metrics.watch("heat_ood_held_bytes", "Bytes that requests hold.", lambda: self.room.bytes)
        if (keeper := self.keeper) is not None:
            watch = self.metrics.watch
            watch("heat_ood_drift_log10_evidence", "Of drift.", lambda: float(keeper.report()["log10_evidence"]))
            watch("heat_ood_drift_alarm", "1 since drift was found.", lambda: float(keeper.report()["alarm"]))

    # Its life

    async def start(self) -> None:
        self.decoding = ThreadPoolExecutor(self.settings.decoders, thread_name_prefix="decoding")
        self.batcher = Batcher(self.judge, self.settings, self.room, self.told)
        self.warming = asyncio.get_running_loop().create_task(self.warm())

    async def stop(self) -> None:
        self.ready = "The service is stopping"
        self.warming.cancel()
        await asyncio.gather(self.warming, return_exceptions=True)
        await self.batcher.stop()
        await asyncio.to_thread(self.decoding.shutdown, cancel_futures=True)
        self.close()

    def close(self) -> None:
        if self.keeper is not None:
            self.keeper.close()

    async def warm(self) -> None:
        """Judge a first image, which nobody is told of: the model is ready when it has answered once."""
        preprocessing = self.judge.preprocessing
        try:
            if preprocessing is not None:
                height, width = preprocessing.size or (UNKNOWN, UNKNOWN)
                await self.batcher.alone(
                    Part({PIXELS: np.zeros((1, height, width, len(preprocessing.mean)), np.uint8)})
                )
            self.ready = None
        except Exception as error:
            if preprocessing is not None and preprocessing.size is None and isinstance(error, HeatError):
                self.ready = None  # it takes images of some size that is not known here
                return
            self.ready = "The model could not judge a first image; see the log"
            LOG.error("the model could not judge a first image", exc_info=error)

    def told(self, judged: Judged, seconds: float) -> None:
        """In the judging thread, of every batch."""
        now, count, fpr = time.time(), len(judged.score), self.settings.fpr
        p_values = [None] * count if judged.p_value is None else judged.p_value.tolist()
        oods = [None if p is None else p <= fpr for p in p_values]
        for score, p_value, ood in zip(judged.score.tolist(), p_values, oods, strict=True):
            self.recent.append({"time": now, "score": score, "p_value": p_value, "ood": ood})
        self.metrics.batch.observe(count)
        self.metrics.samples.inc(count)
        self.metrics.flagged.inc(sum(map(bool, oods)))
        self.metrics.judging.inc(seconds)
        if self.keeper is not None:
            self.keeper.update(judged.score)

    # A request

    def rate(self, asked: float | None) -> float:
        """The false-alarm rate of a request."""
        if asked is None:
            return self.settings.fpr
        if self.judge.calibration is None:
            raise RefusedError(
                422, "The detector is not calibrated, so that it decides at no false-alarm rate. Leave out fpr."
            )
        try:
            self.judge.calibration.check(asked)
        except HeatError as error:
            raise RefusedError(422, str(error)) from None
        return asked

    async def score(self, request: Request, fpr: float | None) -> dict[str, Any]:
        """The answer to a request, within its time."""
        rate, hold = self.rate(fpr), Hold(self.room)
        deadline = asyncio.get_running_loop().time() + self.settings.seconds
        decoding: Future[Samples] | None = None
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    body = await received(request, hold, self.settings.body_bytes)
            except TimeoutError:
                cause = f"The body was not there after {self.settings.seconds:g} s"
                raise RefusedError(408, f"{cause}. Send it faster, or less.", {"Connection": "close"}) from None
            hold.take(samples=1)
            content_type = request.headers.get("content-type", "")
            decoding = self.decoding.submit(self.decode, content_type, body, hold)
            del body
            try:
                async with asyncio.timeout_at(deadline):
                    found = await self.unless_gone(request, self.answer(decoding, rate))
            except TimeoutError:
                raise OverloadedError(f"It was not judged within {self.settings.seconds:g} s") from None
            return found
        finally:
            if decoding is None or decoding.cancel() or decoding.done():
                hold.release()
            else:  # its thread still works on it
                decoding.add_done_callback(lambda _: hold.release())

    def decode(self, content_type: str, body: bytes, hold: Hold) -> Samples:
        """In a decoding thread."""
        samples = self.read(content_type, body, lambda count: hold.take(samples=count - 1))
        hold.take(samples=len(samples.names) - hold.samples, size=samples.bytes)
        return samples

    async def answer(self, decoding: Future[Samples], rate: float) -> dict[str, Any]:
        samples = await asyncio.wrap_future(decoding)
        rows: list[dict[str, Any]] = [{}] * len(samples.names)
        try:
            verdicts = await asyncio.gather(*(self.batcher.judged(part) for part, _ in samples.parts))
        except HeatError as error:
            raise RefusedError(422, str(error)) from None
        for judged, (_, places) in zip(verdicts, samples.parts, strict=True):
            names = [samples.names[i] for i in places]
            for i, row in zip(places, results(self.judge, judged, names, rate), strict=True):
                rows[i] = row
        return {"fpr": rate, "results": rows}

    async def unless_gone(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """What comes of some work, which is dropped when its client goes away."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(gone(request))
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise ClientDisconnect
        finally:
            for task in (working, leaving):
                task.cancel()
            with suppress(BaseException):
                await asyncio.gather(working, leaving, return_exceptions=True)


async def gone(request: Request) -> None:
    """Return when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
