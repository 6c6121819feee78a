"""Every code that an error may carry: its status, when it comes, whether the same request may be sent again as it
is, and what to do. docs/errors.md and the OpenAPI document say what stands here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tocsin.actors.http.shapes import FLAG, TEXT, Schema

NEVER: Final = "no"
NOTHING_DONE: Final = "yes, nothing was done"
PERHAPS_DONE: Final = "with the same id or Idempotency-Key"
"""Otherwise it may be done twice."""

LIMIT: Final[Schema] = {"type": "integer", "description": "The limit, in the unit of the message."}
JOB: Final[Schema] = {**TEXT, "description": "The job."}
STATE: Final[Schema] = {**TEXT, "description": "The state of the job that holds the id."}
EXPRESSION: Final[Schema] = {**TEXT, "description": "The expression, as it was read."}
REDRIVE: Final[Schema] = {**TEXT, "description": "The bulk retry that goes on."}
REVISION: Final[Schema] = {"type": "integer", "description": "The latest revision of the schedule; 0: there is none."}
CANCELLED: Final[Schema] = {**FLAG, "description": "The job was cancelled: stop working on it."}


@dataclass(frozen=True, slots=True)
class Code:
    """`details` are further members of the error, which it may have; `example` is one such error."""

    code: str
    status: int
    when: str
    again: str
    do: str
    example: Mapping[str, Any]
    details: Mapping[str, Schema] = field(default_factory=lambda: MappingProxyType({}))


def _code(
    code: str, status: int, when: str, again: str, do: str, example: str, details: Mapping[str, Schema] | None = None,
    **members: Any,
) -> Code:  # fmt: skip
    return Code(code, status, when, again, do, {"code": code, "message": example, **members}, details or {})


_ALL: Final = (
    _code(
        "INVALID_INPUT", 400,
        "A field, a query parameter, the instance's name or a cursor is missing, unknown or out of its limits; or the "
        "host has a catalog, and what is scheduled does not fit it.",
        NEVER, "Correct what the message names.",
        "functionPath must be a text that is not empty, not ''",
    ),
    _code(
        "INVALID_SCHEDULE_ID", 400, "A job id has another shape, or starts with `__`.",
        NEVER, "Use 1 to 64 characters of `[A-Za-z0-9_-]` that do not start with `-` or `__`.",
        "id must match [A-Za-z0-9_][A-Za-z0-9_-]{0,63} (1 to 64 characters), not 'invoice 42'",
    ),
    _code(
        "INVALID_JSON", 400, "The body is empty, no JSON, or not UTF-8.",
        NEVER, "Send one JSON object; the message says at which byte it breaks.",
        "the body is not JSON: JSON is malformed: expected ',' or '}' (byte 17)",
    ),
    _code(
        "INVALID_CRON", 400, "A cron expression says what cannot be, or what crons do not agree on.",
        NEVER, "Write what the message says instead; `GET /cron/preview` shows what an expression comes to.",
        "cron '0 22-2 * * *': hour field '22-2': from 22 to 2 descends, write its two pieces: 22-23,0-2",
        {"expression": EXPRESSION}, expression="0 22-2 * * *",
    ),
    _code(
        "UNKNOWN_TIMEZONE", 400, "There is no time zone of this name.",
        NEVER, "Give an IANA name like `Europe/Berlin`; none at all is UTC.",
        "timezone 'europe/berlin' is not known: it is written 'Europe/Berlin'",
    ),
    _code(
        "UNAUTHENTICATED", 401, "No token was given, or one that is not known.",
        NEVER, "Send `Authorization: Bearer <secret>` with the secret of a token of this server.",
        "a token is needed: Authorization: Bearer <secret>",
    ),
    _code(
        "FORBIDDEN", 403,
        "The token lacks the scope or the instance, the app's own rule refuses, or a server without tokens is "
        "addressed other than as localhost.",
        NEVER, "Use a token with the scope that the message names, or ask whoever runs the server.",
        "token 'web' may not retry dead jobs: that needs the scope operate",
    ),
    _code(
        "NOT_FOUND", 404, "There is no such route, no such schedule, or no such redrive.",
        NEVER, "Look at the path: `GET /openapi.json` has all of them.",
        "there is no redrive '01m4cw2n8j6t0q7v9xk3d5r1zb': its id came from POST /dead/retry-all",
    ),
    _code(
        "METHOD_NOT_ALLOWED", 405, "The route is there, but not with this method.",
        NEVER, "Use a method that the `Allow` header names.",
        "/status takes GET, HEAD, OPTIONS, not POST",
    ),
    _code(
        "REQUEST_TIMEOUT", 408, "The body did not arrive in time.",
        NOTHING_DONE, "Send the whole request at once.",
        "the body did not arrive within 60 s: send it again, faster",
    ),
    _code(
        "DUPLICATE_SCHEDULE_ID", 409, "A live or dead job holds the id; `state` says how that one stands.",
        NEVER,
        "Choose another id, cancel that job, or say `onConflict`: `keep` or `replace`. A dead one: retry or cancel it.",
        "id 'invoice-42' is taken by a pending job: cancel it, choose another id, or say what to do on conflict: keep "
        "or replace",
        {"id": JOB, "state": STATE}, id="invoice-42", state="pending",
    ),
    _code(
        "CONFLICT", 409,
        "The schedule is not at the revision that was given, a job still names the pool, a bulk retry has these dead "
        "jobs already, or the instance is being removed.",
        "later",
        "Read the schedule again and decide on what is there now; cancel what the message names; look how far the bulk "
        "retry `redriveId` is, or stop it; or wait until the removal is done.",
        "schedule 'daily-report' is at revision 3, not 2: read it again, and decide on what is there now",
        {"id": JOB, "revision": REVISION, "redriveId": REDRIVE}, revision=3,
    ),
    _code(
        "STALE_LEASE", 409, "The lease does not, or no longer, hold this job: it has ended, or was settled.",
        NEVER, "Stop working on it: another attempt may run. `cancelled` says that the job was cancelled.",
        "job 'invoice-42' was cancelled: stop working on it",
        {"id": JOB, "cancelled": CANCELLED}, id="invoice-42", cancelled=True,
    ),
    _code(
        "PAYLOAD_TOO_LARGE", 413, "The body, the args, the result, or what a batch would write is over its limit.",
        NEVER, "Send less: `limit` is in bytes. Split a batch; keep large data elsewhere and send its name.",
        "args: 300000 bytes of JSON, the limit is 262144",
        {"limit": LIMIT}, limit=262_144,
    ),
    _code(
        "UNSUPPORTED_MEDIA_TYPE", 415, "The body is not said to be plain JSON.",
        NEVER, "Send `content-type: application/json`, UTF-8, without content-encoding.",
        "content-type must be application/json (in UTF-8), and is 'text/plain'",
    ),
    _code(
        "IDEMPOTENCY_KEY_REUSED", 422,
        "The Idempotency-Key came with another body within the last 24 hours, or the answer kept for it was damaged.",
        NEVER, "Send the first body again to have its answer, or make a new key.",
        "this Idempotency-Key was used for another request in the last 24 hours: send that one again, or make a "
        "new key",
    ),
    _code(
        "QUOTA_EXCEEDED", 429, "The instance holds as many jobs as it may, dead ones included.",
        NOTHING_DONE, "Wait for `Retry-After`, cancel jobs, or retry or cancel dead ones.",
        "this instance holds 1000 jobs, dead ones included, and may hold 1000: wait for some to end",
        {"limit": LIMIT}, limit=1_000,
    ),
    _code(
        "INTERNAL", 500, "The server failed in a way nobody foresaw.",
        PERHAPS_DONE, "Tell whoever runs the server: its log says why.",
        "the server failed; its log says why",
    ),
    _code(
        "ORIGIN_NOT_CONFIGURED", 500, "The server does not know where to send callbacks.",
        "later", "Whoever runs the server must set `TOCSIN_ORIGIN_URL`, or open the host with `origin=`.",
        "callbacks have nowhere to go: open the host with origin=..., or set TOCSIN_ORIGIN_URL",
    ),
    _code(
        "OVERLOADED", 503,
        "Too many requests wait for this scheduler, too many connections are open, or too much is held of unfinished "
        "requests without a token.",
        NOTHING_DONE, "Wait for `Retry-After`, then send it again; send several jobs in one batch.",
        "scheduler/default: 1000 events wait already",
    ),
    _code(
        "UNAVAILABLE", 503, "The host is stopping, or the scheduler failed before its answer was safe to give.",
        PERHAPS_DONE, "Wait for `Retry-After`, then look (`GET /get`) or send it again.",
        "the host is not open, or is stopping",
    ),
    _code(
        "STORE_UNAVAILABLE", 503,
        "The store cannot be reached, is busy, or is damaged and needs an operator.",
        NOTHING_DONE, "Wait for `Retry-After`, then send it again; `GET /readyz` says when it answers.",
        "the store did not answer within 5 s",
    ),
    _code(
        "STORE_FULL", 507, "No space is left for new jobs; those that are there go on.",
        NOTHING_DONE, "Whoever runs the server must free space. Cancelling jobs may help too.",
        "no space is left for new jobs: free some on the store's disk; what is under way goes on",
    ),
)  # fmt: skip

CODES: Final[Mapping[str, Code]] = MappingProxyType({one.code: one for one in _ALL})
RETRY_AFTER_S: Final[Mapping[int, int]] = MappingProxyType({429: 30, 503: 1})
"""Seconds of Retry-After for each status: jobs take a while to end, requests and restarts do not."""
