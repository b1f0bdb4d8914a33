"""Requests at once are judged together, wait in a bounded queue, and are dropped where nobody waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from heat_ood.guarding import Judged, LiveJudge
from heat_ood.serving import Settings, create_app
from serving_data import Pictures, encoded

IMAGES = [encoded(p) for p in Pictures(40, 9).pixels]
PNG = {"content-type": "image/png"}


class Held(LiveJudge):
    """A guard that judges when it is let, and remembers how many samples it was given at a time."""

    def __init__(self, judge: LiveJudge) -> None:
        assert judge.guard is not None
        super().__init__(judge.guard)
        self.let, self.begun, self.sizes = threading.Event(), threading.Event(), list[int]()

    def judge(self, pixels: Any) -> Judged:
        self.begun.set()
        assert self.let.wait(30)
        self.sizes.append(len(pixels))
        return super().judge(pixels)

    def judge_features(self, columns: Mapping[str, Any]) -> Judged:
        assert self.let.wait(30)
        if any((column > 1e6).any() for column in columns.values()):
            raise RuntimeError("torn")
        return super().judge_features(columns)


@asynccontextmanager
async def asked(judge: Held, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    """A client in the service's own loop, after the first image."""
    app = create_app(judge, Settings(**settings))
    async with app.router.lifespan_context(app):
        judge.let.set()
        await app.state.service.warming
        judge.let.clear()
        judge.begun.clear()
        judge.sizes.clear()
        transport = httpx.ASGITransport(app=app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                yield client, app.state.service
        finally:
            judge.let.set()


async def until(happened: Any) -> None:
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.005)


def run(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def test_what_waits_is_judged_together(judge: LiveJudge) -> None:
    held = Held(judge)

    async def together() -> None:
        async with asked(held, batch=16) as (client, service):
            posts = [asyncio.create_task(client.post("/v1/score", content=i, headers=PNG)) for i in IMAGES]
            await until(lambda: service.room.samples == 40 and held.begun.is_set())
            await until(lambda: len(service.batcher.waiting) + 16 >= 40 or service.decoding._work_queue.empty())
            held.let.set()
            found = [post.json()["results"][0] for post in await asyncio.gather(*posts)]
        assert sum(held.sizes) == 40
        assert max(held.sizes) <= 16
        assert len(held.sizes) < 10
        alone = [float(held.judge(prepared(held, i)).p_value[0]) for i in range(40)]  # type: ignore[index]
        assert [row["p_value"] for row in found] == alone

    run(together())


def prepared(judge: LiveJudge, i: int) -> Any:
    from PIL import Image

    assert judge.preprocessing is not None
    return judge.preprocessing.pixels(Image.fromarray(Pictures(40, 9).pixels[i]))[None]


def test_beyond_the_queue_is_refused_at_once_and_the_rest_is_answered(judge: LiveJudge) -> None:
    held = Held(judge)

    async def overloaded() -> None:
        async with asked(held, batch=4, queue=8) as (client, service):
            posts = [asyncio.create_task(client.post("/v1/score", content=i, headers=PNG)) for i in IMAGES[:8]]
            await until(lambda: service.room.samples == 8)
            refused = await client.post("/v1/score", content=IMAGES[8], headers=PNG)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "8 samples wait, and 8 may" in refused.json()["error"]
            files = [("a", ("a.png", image)) for image in IMAGES[:3]]
            assert (await client.post("/v1/score", files=files)).status_code == 503
            assert (await client.get("/healthz")).status_code == 200
            held.let.set()
            assert [post.status_code for post in await asyncio.gather(*posts)] == [200] * 8
            assert service.room.samples == service.room.bytes == 0
            assert (await client.post("/v1/score", content=IMAGES[8], headers=PNG)).status_code == 200

    run(overloaded())


def test_bytes_are_bounded_too(judge: LiveJudge) -> None:
    held = Held(judge)

    async def full() -> None:
        async with asked(held, body_bytes=10_000, held_bytes=10_000) as (client, service):
            posts = [asyncio.create_task(client.post("/v1/score", content=i, headers=PNG)) for i in IMAGES[:20]]
            await until(lambda: sum(post.done() for post in posts) > 0)
            held.let.set()
            codes = [post.status_code for post in await asyncio.gather(*posts)]
            assert set(codes) == {200, 503}
            assert service.room.bytes == 0

    run(full())


def test_who_goes_away_is_not_judged(judge: LiveJudge) -> None:
    held = Held(judge)

    async def left() -> None:
        async with asked(held, batch=2) as (client, service):
            posts = [asyncio.create_task(client.post("/v1/score", content=i, headers=PNG)) for i in IMAGES[:6]]
            await until(lambda: len(service.batcher.waiting) >= 4)
            for post in posts:
                post.cancel()
            await asyncio.gather(*posts, return_exceptions=True)
            held.let.set()
            await until(lambda: service.room.samples == 0)
            answer = await client.post("/v1/score", content=IMAGES[9], headers=PNG)
            assert answer.status_code == 200
        assert sum(held.sizes) <= 2 + 1

    run(left())


def test_a_request_that_takes_too_long_is_told_so(judge: LiveJudge) -> None:
    held = Held(judge)

    async def late() -> None:
        async with asked(held, seconds=0.3) as (client, service):
            found = await client.post("/v1/score", content=IMAGES[0], headers=PNG)
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert "not judged within 0.3 s" in found.json()["error"]
            held.let.set()
            await until(lambda: service.room.samples == 0)

    run(late())


def test_one_that_fails_fails_alone(judge: LiveJudge) -> None:
    held = Held(judge)
    widths = {"logits": 3, "avg": 8, "std": 8}

    def body(value: float, **other: int) -> Any:
        return {"features": {name: np.full((1, other.get(name, w)), value).tolist() for name, w in widths.items()}}

    async def torn() -> None:
        async with asked(held) as (client, service):
            bodies = [body(0.5), body(1e7), body(0.5, avg=5), body(0.25)]
            posts = [asyncio.create_task(client.post("/v1/score", json=b)) for b in bodies]
            await until(lambda: service.room.samples == 4)
            held.let.set()
            found = await asyncio.gather(*posts)
        assert [answer.status_code for answer in found] == [200, 500, 422, 200]
        assert "was fitted to" in found[2].json()["error"]
        assert found[1].json() == {"error": "The service failed; its log says how. Ask whoever runs it."}

    run(torn())


def test_it_is_ready_once_the_model_has_answered(judge: LiveJudge) -> None:
    held = Held(judge)

    async def warm() -> None:
        app = create_app(held, Settings())
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                early = await client.get("/readyz")
                assert (early.status_code, early.json()["error"][:28]) == (503, "The model is being loaded. A")
                held.let.set()
                await app.state.service.warming
                assert (await client.get("/readyz")).json() == {"status": "ok"}
                assert (await client.get("/v1/drift")).json()["samples"] == 0

    run(warm())


def test_a_model_that_fails_is_never_ready(judge: LiveJudge, caplog: pytest.LogCaptureFixture) -> None:
    class Torn(Held):
        def judge(self, pixels: Any) -> Judged:
            raise RuntimeError("torn")

    async def warm() -> None:
        app = create_app(Torn(judge), Settings())
        async with app.router.lifespan_context(app):
            await app.state.service.warming
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                found = await client.get("/readyz")
                assert (found.status_code, "see the log" in found.json()["error"]) == (503, True)

    run(warm())
    assert "could not judge a first image" in caplog.text
