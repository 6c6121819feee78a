"""Query parameters and headers of routes: what they are called, what they may be, and what they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema
from tocsin.actors.scheduler.client.feed import SEQ_MAX
from tocsin.actors.scheduler.client.reads import ORDERS, STATES

DST: Final = 1_793_448_000_000
"""A day before clocks in New York go back, so that an example shows what is said of that."""
KEY_MAX: Final = 255
"""Characters of an Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a request. `example` is a value that does what the document says."""

    name: str
    schema: Schema
    said: str
    needed: bool = False
    example: Any = None
    place: str = "query"


def names(parameters: tuple[Parameter, ...]) -> tuple[str, ...]:
    return tuple(one.name for one in parameters)


FRESH: Final = Parameter(
    "fresh",
    shapes.FLAG,
    "True: have the host answer that has the scheduler, where several share a store.",
    example=False,
)
JOB: Final = Parameter("id", shapes.JOB_ID, "The job.", needed=True, example="invoice-42")
CURSOR: Final = Parameter("cursor", shapes.TEXT, "From the page before; it belongs to one list and its filters.")
LIMIT: Final = Parameter("limit", shapes.PAGE_LIMIT, "How many at most.", example=10)
ORDER: Final = Parameter(
    "order", shapes.one_of(ORDERS, default="due"), "By the next attempt, or by id. Paging by id is the stable one."
)
POOL: Final = Parameter("pool", shapes.NAME, "Only of this pool.", example="stripe")
STATE: Final = Parameter("state", shapes.one_of(STATES), "Only in this state.", example="pending")
LABEL: Final = Parameter("label", shapes.NAME, "Only with this label.", example="tenant-7")
PATH: Final = Parameter(
    "functionPath", shapes.TARGET, "Only those that call this function path, or workflow.", example="invoices:send"
)
SINCE: Final = Parameter("since", shapes.INSTANT, "Only those parked at this instant (epoch ms) or later.")
POOL_NAME: Final = Parameter("name", shapes.NAME, "The pool.", needed=True, example="stripe")
CONFIRM: Final = Parameter(
    "confirm", shapes.INSTANCE_NAME, "The name of the instance, once more.", needed=True, example="tenant-a"
)
REDRIVE: Final = Parameter(
    "redriveId", shapes.REDRIVE_ID, "The bulk retry.", needed=True, example="01m4cw2n8j6t0q7v9xk3d5r1zb", place="path"
)
BACKFILL: Final = Parameter(
    "backfillId", shapes.REDRIVE_ID, "The backfill.", needed=True, example="01m4cw2n8j6t0q7v9xk3d5r1zc", place="path"
)
SCHEDULE: Final = Parameter(
    "name", shapes.INSTANCE_NAME, "The schedule.", needed=True, example="daily-report", place="path"
)
INSTANCE: Final = Parameter(
    "instance", shapes.INSTANCE_NAME, "The scheduler.", needed=True, example="tenant-a", place="path"
)
KEY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": KEY_MAX},
    "Sent again with the same body within 24 hours, the first answer is given again and nothing else is done.",
    example="order-4711",
    place="header",
)

REVISION: Final = Parameter(
    "revision", shapes.REVISION, "The one that was read; 409 if it is not the latest any more.", example=1
)
CANCEL_PENDING: Final = Parameter(
    "cancelPending", {**shapes.FLAG, "default": False}, "Cancel its occurrences that wait, run or retry, too."
)
EXPR: Final = Parameter("expr", shapes.CRON, "The cron expression.", needed=True, example="30 1 * * *")
TIMEZONE: Final = Parameter(
    "timezone", shapes.TIMEZONE, "An IANA name: whose clock it is read on.", example="America/New_York"
)
FROM: Final = Parameter("from", shapes.INSTANT, "Only later instants than this, epoch ms (default: now).", example=DST)
COUNT: Final = Parameter("count", shapes.PREVIEW_COUNT, "How many.", example=3)

MINUTES: Final = Parameter("minutes", shapes.MINUTES, "How many, up to the present one.", example=5)
REASON: Final = Parameter("reason", shapes.NAME, "Only those given up for this reason.", example="refused")
PREFIX: Final = Parameter("prefix", shapes.PREFIX, "Of function paths or workflows.", example="invoices:")
RESULT_WAIT: Final = Parameter("waitMs", shapes.RESULT_WAIT, "How long to wait until it has ended, ms.")
FEED_SINCE: Final = Parameter(
    "since", {"type": "string", "maxLength": SEQ_MAX}, "The `seq` of the last frame that was seen (default: none was)."
)
FEED_WAIT: Final = Parameter("waitMs", shapes.RESULT_WAIT, "How long to wait until something changes, ms.")
CLOCK_WAIT: Final = Parameter("waitMs", shapes.RESULT_WAIT, "How long to wait until no advance goes on, ms.")
QUEUE_FILTER: Final = Parameter("queue", shapes.NAME, "Only of this queue.")
QUEUE_NAME: Final = Parameter("queueName", shapes.NAME, "The queue.", needed=True, example="mail", place="path")
QUEUE: Final = Parameter(
    "queue",
    shapes.QUEUE_PATH,
    "A queue, several (`mail,pdf`), or `*` for all.",
    needed=True,
    example="mail",
    place="path",
)

OWNER: Final = Parameter(
    "owner", shapes.INSTANCE_NAME, "Whose set it is; its names begin with this.", needed=True, example="app",
    place="path",
)  # fmt: skip

GROUP: Final = Parameter("group", shapes.NAME, "The group.", needed=True, example="import-7", place="path")
ACTION: Final = Parameter("action", shapes.TEXT, "Only this one, by the name of its method.", example="set_pool")
WHO: Final = Parameter("who", shapes.TEXT, "Only by this token or user, or by this way: python, http, dashboard.")
DONE_SINCE: Final = Parameter("since", shapes.INSTANT, "Only those of this instant (epoch ms) or later.")

ONE_JOB: Final = (JOB,)
RECENT: Final = (MINUTES,)
ONE_POOL: Final = (POOL_NAME,)
LISTED: Final = (CURSOR, LIMIT, ORDER, POOL, STATE, LABEL, QUEUE_FILTER, PATH)
PREFIXED: Final = (PREFIX,)
RESULT_OF: Final = (JOB, RESULT_WAIT)
CHANGES: Final = (FEED_SINCE, FEED_WAIT)
SOCKET: Final = (FEED_SINCE, Parameter("token", shapes.TEXT, "Of `POST /ws-token`, where no header can be sent."))
CLOCK_READ: Final = (CLOCK_WAIT,)
DEAD_LISTED: Final = (CURSOR, LIMIT, POOL, LABEL, REASON, SINCE, PATH)
AUDITED: Final = (CURSOR, LIMIT, ACTION, WHO, DONE_SINCE)
PAGED: Final = (CURSOR, LIMIT)
CONFIRMED: Final = (CONFIRM,)
IMPORTED: Final = (
    Parameter(
        "sameJobs",
        shapes.one_of(("true", "false")),
        "true: what was exported never runs again, so jobs keep their `webhook-id`. Left out: as the file says.",
    ),
    Parameter("paused", shapes.one_of(("true", "false")), "Whether the instance is to be paused; left out: as it was."),
)
UNSEALED: Final = (
    Parameter("move", shapes.NAME, "The move that is given up.", needed=True, example="5b1e09c4d27fa836"),
)
DELETED: Final = (REVISION, CANCEL_PENDING)
PREVIEWED: Final = (EXPR, TIMEZONE, FROM, COUNT)
BY_PATH: Final = {f"{{{one.name}}}": one for one in (REDRIVE, BACKFILL, SCHEDULE, QUEUE, QUEUE_NAME, OWNER, GROUP)}
"""Those that stand in paths, as they stand there."""
