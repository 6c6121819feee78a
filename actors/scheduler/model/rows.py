"""The rows of a scheduler: what each holds, under which key it stands, and its encoding.

Keys are bytes and sort as bytes; values are msgpack arrays that start with a version tag. Names in keys
(ids, pools, queues) hold no slash, so a slash always ends one. The table is in docs/rows.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from tocsin.actors.scheduler.model.asked_by import Pause
from tocsin.actors.scheduler.model.flow_rows import JobExtras, PoolFlow
from tocsin.actors.scheduler.model.row import Row as Row
from tocsin.dispatch.retry import Retry

DUE_DIGITS: Final = 15
LARGEST_MS: Final = 10**DUE_DIGITS - 1
DAY_MS: Final = 86_400_000
SOON: Final = 10**9
"""A timer below this is no instant: something is left to do as soon as there is a turn, whatever the clock says. Those
with less behind them go first."""
PULLED: Final = "pulled"
"""The kind of the leases of workers."""
INLINE_ARGS: Final = 64 * 1024
"""Args above this continue in `args/<id>/<n>` rows, so that no value passes the store's limit."""


class ScheduleRef(Row, frozen=True, array_like=True, tag=1):
    """For an occurrence: which slot of which schedule it is."""

    name: str
    slot: int
    uid: str
    """Of the schedule: one that is made again under the same name has another."""
    first_slot: int | None = None
    """The earliest of the slots that it stands for, and ..."""
    coalesced: int | None = 0
    """... how many they are, besides its own; None: not counted."""
    request: str | None = None
    """For one that was triggered: the hash of its request key."""


End = tuple[ScheduleRef, str, str]
"""An occurrence that ended: of which slot, its job's id, and how."""


class JobRow(Row, frozen=True, array_like=True, tag=1):
    """`job/<id>`: what was asked for. Written once, never rewritten; stays while the job is dead."""

    id: str
    incarnation: str
    scheduled_for: int
    enqueued_at: int
    args: bytes
    args_rows: int = 0
    function_path: str | None = None
    workflow: str | None = None
    pool: str = ""
    queue: str = ""
    priority: int = 0
    max_concurrency: int | None = None
    retry: Retry | None = None
    timeout_ms: int | None = None
    expires_at: int | None = None
    shard_key: str | None = None
    labels: tuple[str, ...] = ()
    initiator: tuple[str, str] = ("", "")
    """Who requested it: the name of their token and the user, each "" if there is none. Rows written before this
    member was added have none; nobody else is sent it."""
    schedule: ScheduleRef | None = None
    """For an occurrence of a schedule."""
    args_size: int | None = None
    """If more than args is stored as `args`: how many bytes of it they are. Then comes ..."""
    then_size: int = 0
    """... so much of what follows when it is done (`chains`), and then the result of its parent."""
    parent: str | None = None
    """The id of the job whose success started this one."""
    chained: tuple[str, ...] = ()
    """Targets of the jobs of `then`, nested ones too: they count as pending."""
    keep_result_ms: int | None = None
    """For how long its result is kept, if that was asked for."""
    older_retry: bool = False  # `retry` was asked for in the older system's words
    trace: tuple[str, str] | None = None  # `traceparent` and `tracestate` of what asked for it
    extras: JobExtras | None = None  # what few jobs have

    @property
    def target(self) -> str:
        return self.function_path or self.workflow or ""


class LastError(Row, frozen=True, array_like=True, tag=1):
    """How the last attempt that did not succeed ended."""

    at: int
    message: str
    status: int | None = None
    code: str | None = None  # for programs, of the handler or the receiver; and what came with it, JSON text of 2 KiB
    data: bytes | None = None


class AtRow(Row, frozen=True, array_like=True, tag=1):
    """`at/<id>`: only while a job waits that has left its first place. Rides in the lease meanwhile."""

    next_at: int
    attempt: int = 0
    """Dispatches so far; never repeats within an incarnation."""
    attempts: int = 0
    """Charged failures since scheduled or retried from the dead."""
    losses: int = 0
    last_token: str = ""
    """The fencing token of an attempt whose lease ended without an answer: its success may still come."""
    last_error: LastError | None = None
    expires: bool = True
    """False once retried from the dead: `expires_at` no longer counts."""
    moved_to: int | None = None  # the due instant since it was rescheduled, in place of the job's own
    apart: int = 0  # its level in `suspects`: how far it is kept apart from others
    in_turn: bool = False  # it stands in the line of its shard key, which has turns with others


class LeaseRow(Row, frozen=True, array_like=True, tag=1):
    """`lease/<id>/<token>`: an attempt is alive. A pool's holders are its lease rows and nothing else.

    The token is a fencing token: it settles this attempt only, and only while this row (or `last_token`) names it."""

    until: int
    kind: str
    """`fired`: a callback is on its way. `accepted`: the receiver works on and will complete it. `unknown`: its
    deadline passed or its host stopped; waits for `until`. `pulled`: a worker has it."""
    host: str
    """Of `pulled` ones: the worker's id, "" if it did not say."""
    incarnation: str
    pool: str
    queue: str
    priority: int
    length_ms: int
    started: int
    """When the attempt was claimed."""
    at: AtRow
    orphan: bool = False
    """The job was cancelled: the slot is held until the attempt ends, then only this row goes."""
    charged: bool = False
    """For `unknown` and `accepted`: whether the attempt counts against the budget when the lease ends."""
    retry_at: int = 0
    """For `unknown`: no next attempt before this, nor before `until`."""
    promised: int = 0  # until when an `/extend` has said that it holds: `until` is never before that
    shard: str = ""  # of its line, if it has turns with others
    origin: str = ""  # the named origin to which its callback goes


class LinesRow(Row, frozen=True, array_like=True, tag=1):
    """`lines/<pool>/<queue>`: per priority, how many wait and when the first is due."""

    buckets: dict[int, tuple[int, int]]


class InstanceRow(Row, frozen=True, array_like=True, tag=1):
    """`instance`: whether firing is stopped, all is being removed, and the deadline of callbacks (None: the host's)."""

    paused: bool = False
    erasing: bool = False
    timeout_ms: int | None = None
    pause: Pause | None = None
    importing: str = ""  # the import that writes these rows; `erasing` as well: who does not end it removes them
    moving: tuple[str, str, bool] | None = None  # the move it is part of, where to, and whether nothing changes more


class PoolRow(Row, frozen=True, array_like=True, tag=1):
    """`pool/<name>`: its cap, whether it is paused, and who set the cap (`job` or `put`)."""

    cap: int
    paused: bool = False
    set_by: str = "job"
    pause: Pause | None = None
    flow: PoolFlow | None = None


class DeadRow(Row, frozen=True, array_like=True, tag=1):
    """`dead/<id>`: why a job was given up, and the last answer."""

    reason: str
    parked_at: int
    at: AtRow
    status: int | None = None
    response: bytes | None = None
    retire_at: int | None = None  # when it is dropped for its age; its timer says the same


class ParkedRow(Row, frozen=True, array_like=True, tag=1):
    """`parked/<ms>/<id>`: dead letters by time, with what they are filtered by."""

    reason: str
    pool: str
    path: str


class RedriveRow(Row, frozen=True, array_like=True, tag=1):
    """`redrive/<id>`: dead letters being retried in bulk, at a pace, from those parked before it was asked for."""

    before: int
    rate: int
    matched: int
    pool: str | None = None
    reason: str | None = None
    path: str | None = None
    since: int = 0
    cursor: tuple[int, str] = (0, "")
    retried: int = 0
    next_at: int = 0  # its timer; 0 once it has ended
    stopped: bool = False
    turn: int = 0  # of several that retry jobs of one pool, the one with the lowest goes first
    noted_at: int = 0  # the instant of its row in the audit log; 0: it has none
    ids: tuple[str, ...] | None = None  # only these; the cursor counts them


class IdemRow(Row, frozen=True, array_like=True, tag=1):
    """`idem/<day>/<hash>`: the answer to a request with an Idempotency-Key, committed with its effect."""

    body: bytes  # hash of the request's body
    at: int
    status: int
    answer: bytes


class HistRow(Row, frozen=True, array_like=True, tag=1):
    """`hist/<day>/<id>/<incarnation>/<n>`: how one attempt, or the job itself, ended."""

    outcome: str
    attempt: int
    started: int
    ended: int
    due: int
    """When it was to start: `started - due` is the lateness."""
    token: str = ""
    status: int | None = None
    message: str | None = None
    result: bytes | None = None
    code: str | None = None
    data: bytes | None = None
    ran: tuple[str, str] = ("", "")  # its path or workflow, and its pool: the job may be gone


class ResultRow(Row, frozen=True, array_like=True, tag=1):
    """`result/<id>`: how a job ended that asked for its result to be kept, or why it has none. Timer: `until`."""

    incarnation: str
    state: str  # `done`, `cancelled` or `expired`; of a dead job the letter tells
    ended: int
    until: int
    result: bytes | None = None
    no_result: str | None = None


LAYOUT: Final = 3
"""1: without `paths/`, counted when such a scheduler is opened. 2: without `label/`, filled in then."""
META_LAYOUT: Final = b"meta/layout"
META_COUNTERS: Final = b"meta/counters"
META_SLOT: Final = b"meta/slot"
"""The latest slot that was decided: a clock that is a day behind it was ahead then."""
META_RECOUNT: Final = b"meta/recount"
"""There if the row of a job was set aside: counts by function path are wrong until the next start."""
META_ZONES: Final = b"meta/zones"
"""The version of the time zones that next slots were computed with."""
INSTANCE: Final = b"instance"


def _plain(value: object) -> str:
    """Return a text of an app's own class as the text that it is; a row holds nothing else that msgpack lacks."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a row cannot hold {type(value).__name__}")


encode: Final[Callable[[msgspec.Struct], bytes]] = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decoders: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[msgspec.Struct]] = {}

R = TypeVar("R", bound=msgspec.Struct)


class BadRow(Exception):
    """A row that cannot be read. It is moved aside (`bad/<key>`), never deleted."""

    def __init__(self, key: bytes, reason: str) -> None:
        super().__init__(f"{key!r}: {reason}")
        self.key = key


def decode(kind: type[R], key: bytes, value: bytes) -> R:
    """Read a row; raises BadRow."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        row = decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRow(key, str(error)) from error
    assert isinstance(row, kind)
    return row


# ---- Keys ----------------------------------------------------------------------------------------


def job_key(job_id: str) -> bytes:
    return b"job/%b" % job_id.encode()


def args_key(job_id: str, n: int) -> bytes:
    return b"args/%b/%02d" % (job_id.encode(), n)


def at_key(job_id: str) -> bytes:
    return b"at/%b" % job_id.encode()


def dead_key(job_id: str) -> bytes:
    return b"dead/%b" % job_id.encode()


def parked_key(parked_at: int, job_id: str) -> bytes:
    return b"parked/%015d/%b" % (parked_at, job_id.encode())


def lease_key(job_id: str, token: str) -> bytes:
    return b"lease/%b/%b" % (job_id.encode(), token.encode())


def split_lease_key(key: bytes) -> tuple[str, str]:
    """Return id and token."""
    _, job_id, token = key.decode().split("/")
    return job_id, token


def lines_key(pool: str, queue: str) -> bytes:
    return b"lines/%b/%b" % (pool.encode(), queue.encode())


def split_lines_key(key: bytes) -> tuple[str, str]:
    """Return pool and queue."""
    _, pool, queue = key.decode().split("/")
    return pool, queue


def bucket_prefix(pool: str, queue: str, priority: int) -> bytes:
    return b"line/%b/%b/%02d/" % (pool.encode(), queue.encode(), 9 - priority)


def line_key(pool: str, queue: str, priority: int, due: int, job_id: str) -> bytes:
    return b"line/%b/%b/%02d/%015d/%b" % (pool.encode(), queue.encode(), 9 - priority, due, job_id.encode())


def split_line_tail(key: bytes) -> tuple[int, str]:
    """Return due and id, from the end of a line key."""
    _, due, job_id = key.rsplit(b"/", 2)
    return int(due), job_id.decode()


def hist_key(ended: int, job_id: str, incarnation: str, n: str) -> bytes:
    return b"hist/%06d/%b/%b/%b" % (ended // DAY_MS, job_id.encode(), incarnation.encode(), n.encode())


def redrive_key(redrive_id: str) -> bytes:
    return b"redrive/%b" % redrive_id.encode()


def idem_key(day: int, digest: bytes) -> bytes:
    return b"idem/%06d/%b" % (day, digest.hex().encode())


def idem_day(day: int) -> bytes:
    return b"idem/%06d/" % day


def hist_day(day: int) -> bytes:
    """Return the prefix of everything that ended on one day."""
    return b"hist/%06d/" % day


def result_key(job_id: str) -> bytes:
    return b"result/%b" % job_id.encode()


def pool_key(name: str) -> bytes:
    return b"pool/%b" % name.encode()


def timer_key(ms: int, kind: str, key: str) -> bytes:
    return b"timer/%015d/%b/%b" % (ms, kind.encode(), key.encode())


def split_timer_key(key: bytes) -> tuple[int, str, str]:
    """Return instant, kind and key."""
    _, ms, kind, rest = key.decode().split("/", 3)
    return int(ms), kind, rest


def bad_key(key: bytes) -> bytes:
    return b"bad/" + key
