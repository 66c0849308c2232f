"""`GET /health`, `/metrics`, and `/v1/models`: what is there, and how it fares."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from glassformer.serving.counts import Counts
from glassformer.serving.models import Models
from glassformer.serving.replies import Json


def health_routes(models: Models, counts: Counts) -> APIRouter:
    router = APIRouter()

    @router.get("/health")
    async def health() -> Response:
        """Nothing but that the server is there: this is what anybody may ask."""
        return Json({"status": "ok"})

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(counts.text(), media_type=counts.content_type)

    @router.get("/v1/models")
    async def all_models() -> Response:
        return Json({"object": "list", "data": [_model(models, name) for name in models.entries]})

    @router.get("/v1/models/{model}")
    async def one_model(model: str) -> Response:
        return Json(_model(models, models.entry(model).name))

    @router.post("/v1/models/{model}/reload")
    async def reload(model: str) -> Response:
        """New requests get the weights that are on disk now; those under way end with theirs."""
        loaded = await models.reload(model)
        return Json({**_model(models, loaded.name), "weights": loaded.weights})

    return router


def _model(models: Models, name: str) -> dict[str, Any]:
    loaded = models.loaded.get(name)
    return {
        "id": name,
        "object": "model",
        "created": models.created[name],
        "owned_by": "glassformer",
        "task": models.tasks[name],
        "loaded": loaded is not None,
        "context": None if loaded is None else loaded.run.config.model.context,
    }
