"""`POST /v1/embeddings`: a text as one vector.

The mean over its positions of what the model's last layer gives (after the last norm), scaled to length 1. Of
a translator it is the side that reads. Which run's vectors mean something is for the user to know: those of a
language model hold what comes next, those of a masked model or a classifier what the text is about.
"""

import base64

import torch
from fastapi import APIRouter, Request
from starlette.responses import Response
from torch import Tensor
from torch.nn import functional as F

from glassformer.inspection.trace import body_of, parts_of
from glassformer.models.model import evaluating
from glassformer.runs.run import Run
from glassformer.serving.asked import check_given, read_given, refuse
from glassformer.serving.bodies import EmbeddingBody
from glassformer.serving.guard import held_by
from glassformer.serving.limits import Limits
from glassformer.serving.models import Models
from glassformer.serving.readers import check_reads_text
from glassformer.serving.replies import Json
from glassformer.tasks.task import as_ids


def embedding_routes(models: Models, limits: Limits) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/embeddings")
    async def embeddings(body: EmbeddingBody, request: Request) -> Response:
        given = check_given("input", body.input, limits)
        loaded = await models.use(body.model, held_by(request))
        run = loaded.run
        check_reads_text(loaded)
        if body.dimensions not in (None, run.config.model.width):
            raise refuse("dimensions", f"the vectors of this model have {run.config.model.width} numbers")
        found = await loaded.jobs.do(lambda each: _embed(run, each), given)
        as_base64 = body.encoding_format == "base64"
        data = [
            {"object": "embedding", "index": i, "embedding": _base64(x) if as_base64 else x.tolist()}
            for i, (x, _) in enumerate(found)
        ]
        tokens = sum(count for _, count in found)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return Json({"object": "list", "data": data, "model": loaded.name, "usage": usage})

    return router


@torch.no_grad()
def _embed(run: Run, given: str | list[int]) -> tuple[Tensor, int]:
    """The vector (C) of a text, and how many tokens it has."""
    ids = _ids(run, given)
    limit = run.config.model.context
    if run.config.model.family == "transformer" and ids.shape[1] > limit:
        raise refuse(
            "input",
            f"{ids.shape[1]} tokens are more than the context of {limit}: shorten it",
            "context_length_exceeded",
        )
    body = body_of(run.model, parts_of(run.model)[0])
    with evaluating(run.model):
        x = body(ids.to(run.device))[0].float()  # (T, C)
    return F.normalize(x.mean(dim=0), dim=0).cpu(), ids.shape[1]


def _ids(run: Run, given: str | list[int]) -> Tensor:
    """A text as the run's task reads it, or ids as they are, (1, T)."""
    if not isinstance(given, str):
        return as_ids(read_given("input", given, run).ids)
    target = "" if run.config.task == "translate" else None
    ids = run.bare_task.inputs(run.model, run.config, run.as_read(given), target)[0]
    if not ids.shape[1]:
        raise refuse("input", "an empty text has no vector: expected some words")
    return ids


def _base64(x: Tensor) -> str:
    return base64.b64encode(x.numpy().astype("<f4").tobytes()).decode()
