"""`GET /openapi.json`: every route, made of the table of operations, the structs of requests and answers, and the
codes of errors. It needs no token, and tells nothing of what this host holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote

import msgspec

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.endpoint import Endpoint
from tocsin.actors.http.error_catalog import CODES
from tocsin.actors.http.examples import EXAMPLES
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.openapi_schemas import REF, components, envelope_of
from tocsin.actors.http.operations import ADMIN, OPERATIONS, READ, About, Operation
from tocsin.actors.http.parameters import BY_PATH, FRESH, IMPORTED, INSTANCE, KEY, PAGED, UNSEALED, Parameter
from tocsin.actors.http.response_models import Alive, Ready, Stays, WsToken
from tocsin.actors.http.responses import Reply, answer
from tocsin.actors.http.shapes import Schema
from tocsin.actors.http.wire import SealRequest
from tocsin.actors.scheduler.model.moving import Exported, Imported, TransferState
from tocsin.actors.scheduler.model.records import InstancePage
from tocsin.actors.scheduler.transfer.manifest import MEDIA

ROOT: Final = ""
BY_NAME: Final = "/i/{instance}"
PLACES: Final = (ROOT, BY_NAME)
BEARER: Final = "bearer"
PROBES: Final = "probes"

INSTANCES: Final = About(
    name="instances", group="operating", said="The instances that the caller may see, by name", query=PAGED,
    answer=InstancePage,
)  # fmt: skip
WS_TOKEN: Final = About(
    name="ws_token", group="operating", said="A token that opens one WebSocket, for browsers", answer=WsToken
)
METRICS: Final = About(
    name="metrics",
    group=PROBES,
    said="What this process did, and how the host stands, for Prometheus",
    answer=None,
    streams="answer",
)
HEALTH: Final = About(name="health", group=PROBES, said="Whether the process answers", answer=Alive)
READY: Final = About(
    name="ready", group=PROBES, said="Whether the host is open and its store answers", answer=Ready,
    errors=("UNAVAILABLE", "STORE_UNAVAILABLE"),
)  # fmt: skip

TRANSFERS: Final = (
    ("GET", "/export", About(
        name="export", group="operating", said="Everything of the instance, as of one instant, as lines of JSON",
        answer=Exported, streams="answer", errors=("NOT_FOUND", "CONFLICT"),
    )),
    ("GET", "/import", About(
        name="transfer_state", group="operating", said="How the instance stands in an import or a move",
        answer=TransferState,
    )),
    ("POST", "/import", About(
        name="import", group="operating",
        said="Make the instance, which must be new, of an export; nothing of it runs before all was found sound",
        query=IMPORTED, answer=Imported, streams="request",
        errors=("CONFLICT", "UNSUPPORTED_MEDIA_TYPE", "REQUEST_TIMEOUT"),
    )),
    ("PUT", "/seal", About(
        name="seal", group="operating", said="Take no new work and start nothing: the instance moves",
        request=SealRequest, answer=TransferState, errors=("CONFLICT",),
    )),
    ("DELETE", "/seal", About(
        name="unseal", group="operating", said="Let an instance go on that was to move",
        query=UNSEALED, answer=Stays,
    )),
)  # fmt: skip
"""Routes by which whole instances come and go, for admins."""

_ABOUT: Final = """\
Jobs are called back with signed HTTP requests when they are due. The scheduler `default` is at the root; every
other is under `/i/{instance}`. Instants are integer milliseconds since the epoch. In a body, `null` is the same as
left out. Answers may get more members; requests with unknown ones are refused.

Every error is `{"error": {"code", "message", ...}}`; the message names the field, the value and the limit. Routes
take HEAD like GET, and OPTIONS; another method is 405 with `Allow`, an unknown route 404. No answer may be cached.

Tokens have scopes: any one of those that a route names lets in, and `admin` everywhere. Whoever holds the lease of an
attempt may settle and extend it without a token."""


class OpenApi(Endpoint):
    """Answers the document, with the place where the app is mounted as its server."""

    def __init__(self, gate: Gate, *, tokens: bool) -> None:
        super().__init__(["GET"], gate)
        self._tokens = tokens

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        head, rest = _written(self._tokens)
        return answer({**head, "servers": [{"url": quote(request.scope.get("root_path", "")) or "/"}], **rest})


@cache
def _written(tokens: bool) -> tuple[dict[str, Any], dict[str, msgspec.Raw]]:
    """Encode the document once, in two parts: the few members before `servers`, and the long ones behind."""
    whole = document(tokens=tokens)
    rest = {name: msgspec.Raw(msgspec.json.encode(whole.pop(name))) for name in ("tags", "paths", "components")}
    return whole, rest


def document(*, tokens: bool) -> dict[str, Any]:
    """Make the whole document but `servers`. `tokens`: whether requests need one."""
    kinds: dict[str, type[msgspec.Struct]] = {}
    answers: dict[str, Schema] = {}
    paths: dict[str, dict[str, Any]] = {}
    for place, path, method, scopes, about in routes():
        for kind in (about.request, None if about.streams == "answer" else about.answer, *about.also):
            if kind is not None:
                kinds[kind.__name__] = kind
        one = _operation(place, path, method, scopes if tokens else frozenset(), about, answers)
        paths.setdefault(place + path, {})[method.lower()] = one
    shared: dict[str, Any] = {"schemas": components(kinds.values()), "responses": dict(sorted(answers.items()))}
    if tokens:
        shared["securitySchemes"] = {
            BEARER: {"type": "http", "scheme": "bearer", "description": "The secret of a token of this server."}
        }
    groups = dict.fromkeys(about.group for *_, about in routes())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tocsin",
            "version": version("tocsin"),
            "summary": "Durable scheduling with signed HTTP callbacks",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": group} for group in groups],
        "paths": paths,
        "components": shared,
    }


def routes() -> Iterator[tuple[str, str, str, frozenset[str], About]]:
    """Return place, path, method and scopes of each route."""
    for place in PLACES:
        for one in OPERATIONS:
            if place + one.path:
                yield place, one.path, one.method, one.scopes, one
        yield place, "/ws-token", "POST", READ, WS_TOKEN
        for method, path, about in TRANSFERS:
            yield place, path, method, ADMIN, about
        yield place, "/healthz", "GET", frozenset(), HEALTH
        yield place, "/readyz", "GET", frozenset(), READY
    yield ROOT, "/instances", "GET", ADMIN, INSTANCES
    yield ROOT, "/metrics", "GET", READ, METRICS


# ---- One operation -------------------------------------------------------------------------------


def _operation(
    place: str, path: str, method: str, scopes: frozenset[str], about: About, answers: dict[str, Schema]
) -> dict[str, Any]:
    example = EXAMPLES[about.name]
    is_read = method == "GET" and isinstance(about, Operation)
    parameters = [
        *((INSTANCE,) if place == BY_NAME else ()),
        *(parameter for part, parameter in BY_PATH.items() if part in path),
        *about.query,
        *((KEY,) if about.keyed else ()),
        *((FRESH,) if is_read else ()),
    ]
    one: dict[str, Any] = {
        "operationId": about.name if place == ROOT else f"{about.name}_in_instance",
        "tags": [about.group],
        "summary": about.said,
    }
    if scopes:
        one["description"] = f"Needs a token with the scope {' or '.join(f'`{scope}`' for scope in sorted(scopes))}."
        one["security"] = [{BEARER: [scope]} for scope in sorted(scopes)]
    if parameters:
        one["parameters"] = [_parameter(parameter) for parameter in parameters]
    if about.request is not None:
        media = {"schema": _ref(about.request), "examples": {about.name: {"value": example.request}}}
        one["requestBody"] = {"required": not about.body_optional, "content": {"application/json": media}}
    if about.streams == "request":
        one["requestBody"] = {"required": True, "content": _LINES}
    said = "What there is." if method == "GET" else "Done, and on disk."
    refusals = errors_of(method, scopes, about, by_path=any(parameter.place == "path" for parameter in parameters))
    content = _LINES if about.answer is not None else _TEXT
    if about.streams != "answer" and about.answer is not None:
        content = _json({"schema": _ref(about.answer), "examples": {about.name: {"value": example.answer}}})
    one["responses"] = {"200": {"description": said, "content": content}, **_refusals(refusals, answers)}
    if is_read:
        one["responses"]["200"]["headers"] = _SOURCE
    elif isinstance(about, Operation) and about.name not in AT_ONCE:
        one["responses"]["202"] = _ACCEPTED
    return one


AT_ONCE: Final = frozenset({"claim", "announce"})
"""Requests that nobody could do later."""
_ACCEPTED: Final[Schema] = {
    "description": (
        "Kept in the store, and done once as soon as a host has the scheduler: only where several hosts share a store. "
        "`id` is that of the job, or of the call; `refused` are jobs of a batch that are not made. "
        "Sent again with its Idempotency-Key, it gets the final answer."
    ),
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["accepted"],
                "properties": {
                    "accepted": {"const": True},
                    "id": {"type": "string"},
                    "ids": {"type": "array", "items": {"type": "string"}},
                    "refused": {"type": "array", "items": {"type": "object"}},
                },
            },
            "examples": {"accepted": {"value": {"id": "invoice-42", "accepted": True}}},
        }
    },
}


_LINES: Final[Schema] = {MEDIA: {"schema": {"type": "string", "description": "A manifest, the rows, a checksum."}}}
_TEXT: Final[Schema] = {"text/plain": {"schema": {"type": "string", "description": "The text format of Prometheus."}}}


def errors_of(method: str, scopes: frozenset[str], about: About, *, by_path: bool) -> list[str]:
    """Return the codes that an operation may answer."""
    found = {"FORBIDDEN", "INTERNAL", *about.errors}
    if about.group != PROBES:
        found |= {"INVALID_INPUT", "RESIDENCY", "STORE_UNAVAILABLE"}
    if scopes:
        found |= {"UNAUTHENTICATED"}
    if by_path:
        found |= {"NOT_FOUND", "INVALID_INPUT"}
    if about.request is not None:
        found |= {"INVALID_JSON", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE", "REQUEST_TIMEOUT"}
    if method != "GET":
        found |= {"OVERLOADED", "UNAVAILABLE", "STORE_FULL", "INSTANCE_MOVING", "INSTANCE_MOVED"}
    return [code for code in CODES if code in found]


def _parameter(one: Parameter) -> Schema:
    return {
        "name": one.name,
        "in": one.place,
        "description": one.said,
        **({"required": True} if one.needed else {}),
        "schema": one.schema,
        **({} if one.example is None else {"example": one.example}),
    }


def _refusals(codes: Iterable[str], answers: dict[str, Schema]) -> dict[str, Schema]:
    """Describe one answer for each status; each set of codes is written once."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(CODES[code].status, []).append(code)
    refusals: dict[str, Schema] = {}
    for status, some in by_status.items():
        name = "-".join((str(status), *some))
        answers.setdefault(name, _refusal(status, some))
        refusals[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return refusals


def _refusal(status: int, codes: list[str]) -> Schema:
    said = "\n".join(f"- `{code}`: {CODES[code].when} Again? {CODES[code].again}. {CODES[code].do}" for code in codes)
    examples = {code: {"value": {"error": dict(CODES[code].example)}} for code in codes}
    return {
        "description": said,
        **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        "content": _json({"schema": envelope_of(codes), "examples": examples}),
    }


def _header(said: str, schema: Schema) -> Schema:
    return {"description": said, "required": True, "schema": schema}


_SOURCE: Final = {
    "tocsin-source": {
        "description": "`store` if a host answered from the store that has not got the scheduler itself.",
        "schema": {"const": "store"},
    }
}
_RETRY_AFTER: Final = {"Retry-After": _header("Seconds to wait.", {"type": "integer", "minimum": 1})}
_HEADERS: Final[dict[int, Schema]] = {
    401: {"WWW-Authenticate": _header("How to authenticate.", {"type": "string"})},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}


def _json(media: Schema) -> Schema:
    return {"application/json": media}


def _ref(kind: type[msgspec.Struct]) -> Schema:
    return {"$ref": REF.format(name=kind.__name__)}
