"""Errors that only HTTP has, and how every error becomes an answer: always the one JSON envelope,
never more than the message its author wrote for the caller."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import ceil
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tocsin.actors.http.error_catalog import RETRY_AFTER_S
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.responses import Reply, answer
from tocsin.errors import ActorBrokenError, NotFoundError, OverloadedError, RequestError, ThrottledError, TocsinError

log = logging.getLogger("tocsin.http")


class InvalidJsonError(RequestError):
    """The body is not JSON."""

    code = "INVALID_JSON"


class MethodNotAllowedError(RequestError):
    """The route is known, but not with this method."""

    code = "METHOD_NOT_ALLOWED"
    status = 405


class BodyTooSlowError(RequestError):
    """The body took too long to arrive."""

    code = "REQUEST_TIMEOUT"
    status = 408


class BodyCutOffError(OverloadedError):
    """The body was not whole when its place was needed."""


UNREAD: Final = (BodyTooSlowError, BodyCutOffError)
"""Errors after which the rest of the body is not read: the connection is closed."""


class UnsupportedMediaTypeError(RequestError):
    """The body is not said to be plain JSON."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415


def refusal(error: Exception, request: Incoming, headers: Mapping[str, str] | None = None) -> Reply:
    """Make the answer to a failed request; unforeseen errors are logged and not shown to the caller."""
    shown = presentable(error, request)
    more = {**(headers or {}), **headers_of(shown, request)}
    if shown.status == 401:
        more["www-authenticate"] = 'Bearer realm="tocsin"'
    return answer(shown.to_dict(), shown.status, more)


def presentable(error: Exception, request: Incoming) -> TocsinError:
    """Return the error that a caller may see. What it hides is logged here."""
    if not isinstance(error, TocsinError) or error.code == TocsinError.code:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return TocsinError("the server failed; its log says why")
    if isinstance(error, ActorBrokenError):  # its words are of whatever broke the actor
        log.error("%s %s was cut short", request.method, request.path, exc_info=error)
        return ActorBrokenError(
            "the scheduler failed before its answer was safe to give, and the request may have been done: look, or "
            "send it again with the same id or Idempotency-Key"
        )
    return error


def headers_of(error: TocsinError, request: Incoming) -> dict[str, str]:
    """Return the headers that tell a caller, whatever it is, what to do about an error."""
    more = {}
    if error.status in RETRY_AFTER_S:
        told = error.details.get("retryAfterMs")
        seconds = ceil(told / 1000) if isinstance(told, int) else 0
        least = 1 if isinstance(error, ThrottledError) else RETRY_AFTER_S[error.status]
        more["retry-after"] = str(max(seconds, least))
    if isinstance(error, UNREAD) and request.scope.get("http_version", "1.1").startswith("1"):
        more["connection"] = "close"
    return more


async def refuse_unrouted(request: Request, error: Exception) -> Reply:
    """Answer a request that no route took, or whose error escaped its route."""
    asked = Incoming(request.scope, request.receive)
    if isinstance(error, HTTPException) and error.status_code == 404:
        route = f"{asked.method} {asked.path[:200]}"
        error = NotFoundError(f"there is no route {route}: see GET /openapi.json", route=route)
    return refusal(error, asked)
