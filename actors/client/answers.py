"""Answers of a server's routes, as they are read: records are those of the handles, and hold args as text."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.dispatch.plain import Plain
from tocsin.dispatch.pulled import Claimed, raw_member
from tocsin.dispatch.retry import Backoff, OlderRetry, Retry


class Answer(Plain, msgspec.Struct, frozen=True, rename="camel"):
    """Any answer; members that this version does not know are passed over."""


class RetryOfJob(Answer, frozen=True, rename="camel"):
    """The retry ladder of a job: `maxRetries`, or `maxAttempts` if it was asked for in the older system's word."""

    max_retries: int | None = None
    max_attempts: int | None = None
    backoff: Backoff = "exponential"
    base_ms: int | float = 30_000
    max_ms: int | float = 3_600_000
    jitter: int | float = 0

    def retry(self) -> Retry:
        kind, times = (Retry, self.max_retries) if self.max_attempts is None else (OlderRetry, self.max_attempts)
        return kind(5 if times is None else times, self.backoff, self.base_ms, self.max_ms, self.jitter)


class JobOfServer(records.Record, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """A job as it is answered."""

    retry: RetryOfJob | None = None  # type: ignore[assignment]

    def record(self) -> records.Record:
        members: dict[str, Any] = dict(zip(_NAMES, _values(self), strict=True))
        return records.Record(**members, retry=None if self.retry is None else self.retry.retry())


_NAMES: Final = tuple(name for name in records.Record.__struct_fields__ if name != "retry")
_values: Final = attrgetter(*_NAMES)


class Found(Answer, frozen=True):
    record: JobOfServer | None = None


class ClockFound(Answer, frozen=True):
    clock: records.ClockState | None = None


class JobPage(Answer, frozen=True):
    records: Sequence[JobOfServer]
    truncated: bool
    cursor: str | None = None


def page_of(page: JobPage) -> records.Page:
    """Return the page as a handle gives it."""
    return records.Page([one.record() for one in page.records], page.truncated, page.cursor)


class Results(Answer, frozen=True):
    results: list[dict[str, Any]]


class ClaimedJobs(Answer, frozen=True):
    jobs: list[Claimed]


class Held(Answer, frozen=True, rename="camel"):
    lease_until: int


class Reasons(Answer, frozen=True):
    reasons: Sequence[records.Reason]


class History(Answer, frozen=True):
    attempts: Sequence[records.Attempt]


class Queues(Answer, frozen=True):
    queues: Sequence[records.Queue]


class Deleted(Answer, frozen=True):
    deleted: bool


class Removed(Answer, frozen=True):
    removed: bool


class Stopped(Answer, frozen=True):
    stopped: bool


class Backfills(Answer, frozen=True):
    backfills: Sequence[Backfill]


class Stays(Answer, frozen=True):
    stays: bool


class Nothing(Answer, frozen=True):
    """Nothing but that it was done."""


# ---- The whole server ----------------------------------------------------------------------------


class Health(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a server: whether work is accepted. `reasons`: codes of what is wrong all the same; `refusal`: why
    it is not ready."""

    ready: bool
    reasons: Sequence[str] = ()
    refusal: str | None = None


class CatalogEntry(Answer, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One path or workflow, and the JSON Schema of its args. `schema_left_out`: it is too long to be listed."""

    function_path: str | None = None
    workflow: str | None = None
    args: Any = None
    schema_left_out: bool = False


class CatalogListed(Answer, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Paths, then workflows, by name. `checked`: only these are scheduled; false: anything goes. `left_out`: of so many
    more not even the name fits."""

    checked: bool
    entries: Sequence[CatalogEntry]
    left_out: int = 0
