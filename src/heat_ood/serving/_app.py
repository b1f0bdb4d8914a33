"""The routes: what may be asked of the service, and who answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from .. import __version__
from ..guarding import Judge
from ._answers import info as info_of
from ._documents import Drifted, Info, Offered, Recent, Scored, Status, body_of, errors
from ._gate import OPEN, PAGE, Gate
from ._keeping import Keeper
from ._metrics import CONTENT_TYPE
from ._offers import INDEX, offers_in, page_files
from ._refusals import RefusedError, reply
from ._service import Service
from ._settings import Settings

__all__ = ["build"]

ABOUT = "Is a sample like the data that the model was trained on? Scores, p-values, verdicts, a watch on drift."


def build(judge: Judge, settings: Settings) -> FastAPI:
    """The app of a judge; see :func:`heat_ood.serving.create_app`."""
    service = Service(judge, settings)
    info, page, offers = info_of(judge, settings), page_files(), offers_in(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="heat-ood",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send a browser to whatever host the request names
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(Gate, settings=settings, metrics=service.metrics)
    add_handlers(app)
    denied = errors(401) if settings.token is not None else {}
    plain: dict[str, Any] = {"response_model": None}

    @app.post(
        "/v1/score",
        summary="Judge samples",
        responses={200: {"model": Scored}, **errors(400, 403, 408, 413, 415, 422, 503), **denied},
        openapi_extra={"requestBody": body_of(judge.columns, judge.preprocessing is not None)},
        **plain,
    )
    async def score(
        request: Request,
        fpr: Annotated[float | None, Query(gt=0, lt=1, description="the false-alarm rate of the verdicts")] = None,
    ) -> Response:
        """Judge an image, several, or features: score, p-value, verdict, class and energies of each."""
        return reply(await service.score(request, fpr))

    @app.get("/v1/info", summary="What is served", responses={200: {"model": Info}, **denied}, **plain)
    async def about() -> Response:
        return reply(info)

    def watch() -> Keeper:
        if service.keeper is None:
            why = "switched off" if judge.calibration is not None else "not possible before the detector is calibrated"
            raise RefusedError(404, f"Watching for drift is {why}. Start the service with it.")
        return service.keeper

    watched: Any = {"responses": {200: {"model": Drifted}, **errors(404), **denied}, **plain}

    @app.get("/v1/drift", summary="Drift", **watched)
    async def drift() -> Response:
        return reply(watch().report())

    @app.delete("/v1/drift", summary="Watch for drift anew", **watched)
    async def forget_drift() -> Response:
        """Forget the stream so far and the alarm, once somebody has looked into it."""
        watch().reset()
        return reply(watch().report())

    @app.get("/v1/recent", summary="The last samples", responses={200: {"model": Recent}, **denied}, **plain)
    async def recent() -> Response:
        keeper = service.keeper
        return reply({"results": list(service.recent), "drift": None if keeper is None else keeper.report()})

    @app.get("/healthz", summary="Whether the process lives", responses={200: {"model": Status}}, **plain)
    async def healthz() -> Response:
        return reply({"status": "ok"})

    @app.get("/readyz", summary="Whether the model answers", responses={200: {"model": Status}, **errors(503)}, **plain)
    async def readyz() -> Response:
        if service.ready is not None:
            raise RefusedError(503, f"{service.ready}. Ask again in a moment.", {"Retry-After": "1"})
        return reply({"status": "ok"})

    @app.get(
        "/metrics",
        summary="For Prometheus",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **denied},
        response_class=Response,
        **plain,
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    @app.get("/samples", summary="Images to try", responses={200: {"model": Offered}, **denied}, **plain)
    async def samples() -> Response:
        return reply({"samples": [{"name": one.name, "url": f"/samples/{i}"} for i, one in enumerate(offers)]})

    @app.get(
        "/samples/{number}",
        summary="An image to try",
        responses={200: {"content": {"image/*": {}}}, **errors(404, 422), **denied},
        response_class=Response,
        **plain,
    )
    async def sample(number: int) -> Response:
        if not 0 <= number < len(offers):
            raise RefusedError(404, f"There are {len(offers)} samples, from 0 on. See /samples.")
        return Response(offers[number].content, media_type=offers[number].type)

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return Response(page[INDEX].content, media_type=page[INDEX].type)

    @app.get(PAGE + "{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        if name not in page:
            raise RefusedError(404, "There is no such file.")
        return Response(page[name].content, media_type=page[name].type)

    add_document(app, settings)
    return app


def add_handlers(app: FastAPI) -> None:
    """Every failure is JSON with one sentence."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)
        return error.response()

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = error.errors()[0]
        return RefusedError(422, f"{found['loc'][-1]}: {found['msg']}. See /openapi.json.").response()

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:  # starlette names the methods of the first route of a path alone
            routes = [route for route in app.routes if isinstance(route, Route)]
            here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
            headers["Allow"] = ", ".join(sorted({method for route in here for method in route.methods or ()}))
        return RefusedError(error.status_code, f"{error.detail}. See /openapi.json.", headers).response()

    app.add_exception_handler(RefusedError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def add_document(app: FastAPI, settings: Settings) -> None:
    """OpenAPI, with the token where one is asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
            if settings.token is not None:
                found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                for path, operations in found["paths"].items():
                    if path not in OPEN:
                        for operation in operations.values():
                            operation["security"] = [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
