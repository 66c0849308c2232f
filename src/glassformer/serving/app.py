"""The application: every route, behind the guard."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from glassformer.core.errors import GlassformerError
from glassformer.serving.address import Names
from glassformer.serving.answers import answer_routes
from glassformer.serving.chat import chat_routes
from glassformer.serving.completions import completion_routes
from glassformer.serving.counts import Counts
from glassformer.serving.embeddings import embedding_routes
from glassformer.serving.errors import ApiError, as_api_error
from glassformer.serving.guard import Guard
from glassformer.serving.health import health_routes
from glassformer.serving.limits import Limits
from glassformer.serving.looking import look_routes
from glassformer.serving.models import Models
from glassformer.serving.records import record_routes
from glassformer.serving.replies import Json
from glassformer.serving.tokens import token_routes

REFUSALS = (400, 401, 403, 404, 408, 413, 429, 500, 503)


def make_app(
    models: Models,
    names: Names,
    limits: Limits,
    counts: Counts,
    token: str | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> Guard:
    """What uvicorn is given. The FastAPI application inside is its `app`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        models.stop("the server has stopped")
        models.join()

    app = FastAPI(
        title="glassformer",
        version=version("glassformer"),
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses={status: _refusal(status) for status in REFUSALS},
    )
    for routes in (
        health_routes(models, counts),
        completion_routes(models, limits),
        chat_routes(models, limits),
        embedding_routes(models, limits),
        token_routes(models, limits),
        answer_routes(models, limits),
        look_routes(models, limits),
        record_routes(models, limits),
    ):
        app.include_router(routes)
    app.add_exception_handler(RequestValidationError, _wrong_body)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(ApiError, _told)
    app.add_exception_handler(GlassformerError, _told)
    app.add_exception_handler(Exception, _told)
    app.openapi = _without_422(app)  # type: ignore[method-assign]
    return Guard(app, names, limits, counts, token, log)


async def _told(_: Request, error: Exception) -> Response:
    told = as_api_error(error)
    return Json(told.body, told.status, told.headers)


async def _wrong_body(_: Request, error: Exception) -> Response:
    """The first thing that is wrong, by its place and without its words."""
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    place = [str(step) for step in problem["loc"] if step not in ("body", "query", "path")]
    where = ".".join(place[:6]) or "the body"
    if problem["type"] == "json_invalid":
        told = ApiError(400, "the body is no JSON: expected an object", code="invalid_json")
    elif problem["type"] == "extra_forbidden":
        message = f"{where}: there is no such field here, and what would be ignored is refused"
        told = ApiError(400, message, param=where, code="unknown_parameter")
    elif (
        problem["type"] in ("none_required", "too_long") and problem.get("ctx", {}).get("max_length", 0) == 0
    ):
        message = f"{where}: this is not done here, and what would be ignored is refused: leave it out"
        told = ApiError(400, message, param=where, code="unsupported_parameter")
    else:
        told = ApiError(400, f"{where}: {problem['msg']}", param=where, code="invalid_value")
    return Json(told.body, told.status)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        told = ApiError(404, "there is no such route; /openapi.json lists all", code="unknown_route")
    elif error.status_code == 405:
        told = ApiError(405, f"{request.method} is not for this route", code="wrong_method")
    else:
        told = ApiError(error.status_code, HTTPStatus(error.status_code).phrase)
    return Json(told.body, told.status, {**told.headers, **(error.headers or {})})


def _refusal(status: int) -> dict[str, Any]:
    described = {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": described}},
    }


def _without_422(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """The description of the routes; what FastAPI would answer to a wrong body is 400 here."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        described = describe()
        for methods in described["paths"].values():
            for route in methods.values():
                route["responses"].pop("422", None)
        return described

    return openapi
