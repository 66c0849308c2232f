"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}, on every route and in streams."""

import traceback
from pathlib import Path
from typing import Any

from glassformer.core.errors import DiskError, GlassformerError, RunError

LONGEST = 2000  # characters of a message: it may name what was given
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """What a client is told. `param` is the field that was wrong, `retry` the seconds to wait."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: int | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message[:LONGEST], param, code
        self.headers = dict(headers or {})
        if retry is not None:
            self.headers["retry-after"] = str(retry)

    @property
    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {
            "error": {"message": self.message, "type": kind, "param": self.param, "code": self.code},
        }


def as_api_error(error: BaseException, name: str = "", path: Path | None = None) -> ApiError:
    """Any error as a client may see it: of a run by its name, never by its place; a fault without details."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, GlassformerError):
        message = str(error)
        if path is not None:
            message = message.replace(str(path), name)
        if isinstance(error, RunError | DiskError):
            return ApiError(503, message, code="model_unavailable")
        return ApiError(400, message)
    return ApiError(
        500, "something went wrong in the server; its own log says what kind of fault it was", code="internal"
    )


def fault(error: BaseException) -> str:
    """What kind of fault it was and where, without its words: they may be the user's."""
    where = "".join(traceback.format_tb(error.__traceback__))
    return f"Fault in a request: {type(error).__name__}\n{where}".rstrip()
