"""Define each value of a request as JSON Schema, made of the limits that the checks use, so that the
OpenAPI document and the checks cannot come apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tocsin.actors.cron.expression import MAX_LENGTH
from tocsin.actors.cron.preview import MAX_COUNT
from tocsin.actors.scheduler.client.changes import ERROR_MAX
from tocsin.actors.scheduler.client.schedules_port import PREVIEW, REQUEST_KEY_MAX
from tocsin.actors.scheduler.model import pool_settings, timing
from tocsin.actors.scheduler.model import validation as limits
from tocsin.actors.scheduler.model.activity import MOST_MINUTES
from tocsin.actors.scheduler.model.followers import MAX_FOLLOWERS
from tocsin.actors.scheduler.model.groups import MAX_MEMBERS
from tocsin.actors.scheduler.model.rows import LARGEST_MS
from tocsin.actors.scheduler.schedules import definition
from tocsin.dispatch import failure, rate, retry
from tocsin.dispatch.origin import ORIGIN_NAME
from tocsin.dispatch.url_list import URL_LIMIT

Schema = dict[str, Any]

IS: Final = "x-is"
"""Under this name a field carries its shape through msgspec's schema into the document, which replaces it."""
NEEDED: Final = "x-needed"


def shape(schema: Schema, said: str, *, needed: bool = False) -> msgspec.Meta:
    """Describe a field whose Python type says less. `needed`: its default is there only to be refused."""
    return msgspec.Meta(extra_json_schema={IS: {**schema, "description": said}, NEEDED: needed})


# ---- Values --------------------------------------------------------------------------------------


def whole(bounds: tuple[int, int], **more: Any) -> Schema:
    return {"type": "integer", "format": "int64", "minimum": bounds[0], "maximum": bounds[1], **more}


def number(most: float) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": most}


def one_of(words: Sequence[str], **more: Any) -> Schema:
    return {"type": "string", "enum": list(words), **more}


NOT_BLANK: Final = (
    r"[^\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"  # as str.isspace
)
"""Dialects of patterns differ in what `\\S` is."""
ANY: Final[Schema] = {}
FLAG: Final[Schema] = {"type": "boolean"}
TEXT: Final[Schema] = {"type": "string"}
PRINTABLE: Final[Schema] = {
    "type": "string",
    "maxLength": limits.LONGEST_PLACE,
    "pattern": r"^[^\u0000-\u001f\u007f-\u00a0\u2028\u2029\ufeff]+$",
}
"""A line for people; others that are not printable are refused, too."""
INSTANT: Final = whole((limits.SMALLEST_MS, LARGEST_MS))
FAILURE: Final[Schema] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What failed, for people."},
        "code": {"type": ["string", "null"], "pattern": f"^{failure.CODE.pattern}$", "description": "For programs."},
        "status": {"type": ["integer", "null"], "minimum": failure.STATUS[0], "maximum": failure.STATUS[1],
                   "description": "The HTTP status that whoever waits may answer with."},
        "data": {"description": f"Any JSON of at most {failure.MAX_DATA} bytes: it is stored, and shown, no secrets."},
    },
    "required": ["message"],
    "additionalProperties": False,
}  # fmt: skip
DELAY: Final = whole(limits.DELAY_MS)
JOB_ID: Final[Schema] = {"type": "string", "maxLength": 64, "pattern": f"^(?!__){limits.ID.pattern}$"}
REDRIVE_ID: Final = JOB_ID
JOB_IDS: Final[Schema] = {"type": "array", "items": JOB_ID, "minItems": 1, "maxItems": 1_000}
OWNED_NAME: Final[Schema] = {"type": "string", "maxLength": 126, "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,125}$"}
"""With the owner's name and a colon before it, it is a schedule's name."""
INSTANCE_NAME: Final[Schema] = {"type": "string", "maxLength": 128, "pattern": f"^{limits.INSTANCE.pattern}$"}
ORIGIN: Final[Schema] = {"type": "string", "maxLength": 64, "pattern": f"^{ORIGIN_NAME.pattern}$"}
URL: Final[Schema] = {"type": "string", "maxLength": URL_LIMIT, "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"}
NAME: Final[Schema] = {"type": "string", "maxLength": 128, "pattern": f"^{limits.NAME.pattern}$"}
TARGET: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": limits.MAX_TARGET, "pattern": NOT_BLANK}
TRACE: Final[Schema] = {"type": "string"}
"""Whatever it holds is no error."""
PREFIX: Final[Schema] = {"type": "string", "maxLength": limits.MAX_TARGET}
LEASE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": limits.MAX_LEASE}
LABELS: Final[Schema] = {"type": "array", "items": NAME, "maxItems": limits.MAX_LABELS}
JOBS: Final[Schema] = {
    "type": "array",
    "items": {"$ref": "#/components/schemas/ScheduleRequest"},
    "maxItems": limits.MAX_BATCH,
}
CONFLICT: Final = one_of(limits.CONFLICTS, default="error")
PUT_OFF: Final = whole(timing.PUT_OFF_MS)
ON_THROTTLE: Final = one_of(timing.ON_THROTTLE, default="refuse")
PRIORITY: Final = whole(limits.PRIORITY, default=0)
MAX_CONCURRENCY: Final = whole(limits.MAX_CONCURRENCY)
CAP: Final = whole(limits.CAP)
RATE_LIMIT: Final = whole(rate.LIMIT)
RATE_PER: Final[Schema] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$", "default": "1s"}
RATE_BURST: Final = whole(rate.BURST, default=1)
RATE_OF_POOL: Final[Schema] = {
    "oneOf": [{"$ref": "#/components/schemas/RateRequest"}, {"const": pool_settings.NO_RATE}, {"type": "null"}]
}
RATE_OF_JOB: Final[Schema] = {"oneOf": [{"$ref": "#/components/schemas/RateRequest"}, {"type": "null"}]}
COOLS: Final = one_of(pool_settings.COOLS, default="none")
WEIGHTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": whole(pool_settings.WEIGHT),
    "propertyNames": TARGET,
    "maxProperties": pool_settings.MAX_WEIGHTS,
}
PER_KEY: Final = whole(pool_settings.PER_KEY)
TIMEOUT: Final = whole(limits.TIMEOUT_MS)
TIMEOUT_OR_NONE: Final[Schema] = {
    **whole((0, limits.TIMEOUT_MS[1])),
    "not": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": limits.TIMEOUT_MS[0]},
}
LEASE_LENGTH: Final = whole(limits.LEASE_MS)
CLAIM_MAX: Final = whole(limits.CLAIM_MAX, default=1)
CLAIM_WAIT: Final = whole(limits.CLAIM_WAIT_MS, default=20_000)
RESULT_WAIT: Final = whole(limits.CLAIM_WAIT_MS, default=0)
KEEP_RESULT: Final = whole(limits.KEEP_RESULT_MS)
QUEUE_PATH: Final[Schema] = {
    "type": "string",
    "maxLength": limits.QUEUES_MAX * 129 - 1,
    "pattern": rf"^(\*|{limits.NAME.pattern}(,{limits.NAME.pattern}){{0,{limits.QUEUES_MAX - 1}}})$",
}
QUEUES: Final[Schema] = {"type": "array", "items": NAME, "maxItems": limits.QUEUES_MAX}
GROUP_SIZE: Final = whole((1, MAX_MEMBERS))
GROUP: Final = {"anyOf": [NAME, {"$ref": "#/components/schemas/GroupRequest"}, {"type": "null"}]}
THEN: Final[Schema] = {
    "type": "array",
    "items": {"$ref": "#/components/schemas/FollowingRequest"},
    "maxItems": MAX_FOLLOWERS,
}
PID: Final = whole(limits.PID)
RATE: Final = whole(limits.RATE_PER_SECOND, default=10)
PAGE_LIMIT: Final = whole(limits.PAGE_LIMIT, default=100)
RETRIES: Final = whole((0, retry.MAX_RETRIES))
BACKOFF: Final = one_of(retry.BACKOFFS, default="exponential")
WAIT: Final = number(retry.LARGEST_MS)
JITTER: Final = number(1)
ERROR_KEPT: Final = ERROR_MAX
CRON: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
TIMEZONE: Final[Schema] = {"type": "string", "maxLength": 64, "default": "UTC"}
EVERY: Final = whole(definition.EVERY_MS)
MISFIRE: Final = one_of(definition.MISFIRES, default="one")
OVERLAP: Final = one_of(definition.OVERLAPS, default="skip")
GRACE: Final = whole(definition.GRACE_MS, default=60_000)
CATCH_UP: Final = whole(definition.CATCH_UP, default=100)
JITTER_MS: Final = whole(definition.JITTER_MS, default=0)
REVISION: Final = whole(definition.REVISION)
REQUEST_KEY: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": REQUEST_KEY_MAX}
MINUTES: Final = whole((1, MOST_MINUTES), default=MOST_MINUTES)
PREVIEW_COUNT: Final = whole((1, MAX_COUNT), default=PREVIEW)


# ---- What members of one body have to do with each other -----------------------------------------

NULL: Final[Schema] = {"type": "null"}


def _given(name: str, kind: str | list[str], *absent: str) -> Schema:
    return {"required": [name], "properties": {name: {"type": kind}, **dict.fromkeys(absent, NULL)}}


def exactly_one(kind: str, one: str, other: str) -> Schema:
    """Null is the same as left out."""
    return {"oneOf": [_given(one, kind, other), _given(other, kind, one)]}


def exactly_one_of(**kinds: str) -> Schema:
    """Null is the same as left out."""
    return {"oneOf": [_given(name, kind, *(kinds.keys() - {name})) for name, kind in kinds.items()]}


def at_least_one(**kinds: str | list[str]) -> Schema:
    return {"anyOf": [_given(name, kind) for name, kind in kinds.items()]}


def not_both(one: str, other: str) -> Schema:
    return {"anyOf": [{"properties": {name: NULL}} for name in (one, other)]}


def needs(name: str, other: str, kind: str) -> Schema:
    """`name` may be given only together with `other`."""
    return {"anyOf": [{"properties": {name: NULL}}, _given(other, kind)]}


def only_with(name: str, values: Sequence[str | None] | None, other: str, allowed: Sequence[str]) -> Schema:
    """Allow only these values of `other`, or none, unless `name` has one of `values` (None: is left out)."""
    unless: Schema = NULL if values is None else {"enum": list(values)}
    return {"anyOf": [{"properties": {name: unless}}, {"properties": {other: {"enum": [None, *allowed]}}}]}


def done_or_failed() -> Schema:
    """Require `ok: false` for what describes a failure, and success for a result."""
    unsaid: Schema = {"enum": [True, None]}
    done = {"ok": unsaid, "retryable": unsaid, "charge": unsaid, "error": NULL, "delayMs": NULL}
    failed = {"required": ["ok"], "properties": {"ok": {"const": False}, "result": NULL}}
    return {"oneOf": [{"properties": done}, failed]}


def filters_or_all(**kinds: str) -> Schema:
    """Require at least one filter, or `all: true` and none of them."""
    alone = {"required": ["all"], "properties": {"all": {"const": True}, **dict.fromkeys(kinds, NULL)}}
    some = {"properties": {"all": {"enum": [False, None]}}, **at_least_one(**kinds)}
    return {"oneOf": [alone, some]}
