"""One job: how it stands, why it does not run now, what became of its attempts, and what can be done about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.actors.http.dashboard.args import readable
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.freeing import KINDS
from tocsin.actors.http.dashboard.page import Page
from tocsin.actors.http.dashboard.words import amount, span
from tocsin.actors.scheduler.model.instants_of_job import DEFAULT_RETRY
from tocsin.actors.scheduler.model.records import Attempt, Following, Reason, Record
from tocsin.errors import NotFoundError

DATA_MOST: Final = 4 * 1024
"""Characters of what an attempt left, in a line of the list."""
HOLDERS_SHOWN: Final = 10
PASSES: Final = {"POOL_RATE": "its turn comes", "POOL_COOLING": "the pool has cooled"}
ENDS: Final = {"DEAD": "given up", "RUNNING": "its lease ends", "POOL_FULL": "the first lease ends", **PASSES}
"""The words before the instant of a reason; `until` for others."""
SPANS: Final = ("NOT_DUE", "RETRY_LATER")
"""Reasons whose words say already how far off their end is."""


@dataclass(frozen=True, slots=True)
class Link:
    """A job of a chain, and how far behind the one that starts it; `dies`: that starts it by its death."""

    job: Following
    depth: int
    dies: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """The content of the page. `record` is None for a job that has ended; lists are None to whom HTTP would not tell
    them. `args` is their text, if they were asked for."""

    id: str
    record: Record | None
    reasons: Sequence[Reason] | None
    attempts: Sequence[Attempt] | None
    acts: frozenset[str]
    args: str | None
    cut: bool
    spans: Sequence[str] = SPANS

    @property
    def title(self) -> str:
        record = self.record
        return self.id if record is None else record.function_path or record.workflow or self.id

    @property
    def chain(self) -> Sequence[Link]:
        return [] if self.record is None else list(_chain(self.record, 0))

    @property
    def ladder(self) -> str:
        """Say in words how it is retried."""
        asked = None if self.record is None else self.record.retry
        retry = asked or DEFAULT_RETRY  # whichever name its times were asked for by
        if not retry.max_retries:
            return "never"
        grows = "twice as long each time" if retry.backoff == "exponential" else "as much longer each time"
        jitter = f", up to {retry.jitter:.0%} more by chance" if retry.jitter else ""
        times = amount(retry.max_retries, "retry", "retries")
        return f"{times}, after {span(int(retry.base_ms))} and then {grows}, at most {span(int(retry.max_ms))}{jitter}"

    def words(self, reason: Reason) -> str:
        return reason.message[:1].upper() + reason.message[1:]

    def ends(self, reason: Reason) -> str:
        return ENDS.get(reason.code, "until")

    def holders(self, reason: Reason) -> Sequence[str]:
        return (reason.holders or ())[:HOLDERS_SHOWN]

    def more_holders(self, reason: Reason) -> int:
        return max(0, len(reason.holders or ()) - HOLDERS_SHOWN)

    def data(self, value: Any) -> str:
        """Return what an error or an answer said for programs, as text, or the beginning of it."""
        text = json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False)
        return text if len(text) <= DATA_MOST else f"{text[:DATA_MOST]}…"


async def show(asked: Asked) -> Job:
    id = asked.names["id"]
    query = asked.query("args")
    reads = asked.port.reads
    record = await reads.get(id)
    attempts = await reads.history(id) if await asked.may("history", id) else None
    if record is None and not attempts:
        raise NotFoundError(f"there is no job {id!r} in {asked.instance}, and none has ended within the last week")
    told = record is not None and await asked.may("why", id)
    text, cut = readable(record.raw_args) if record is not None and query.text("args") else (None, False)
    return Job(
        id, record, await reads.why(id) if told else None, attempts, await _acts(asked, id, record), text, cut
    )  # fmt: skip


async def _acts(asked: Asked, id: str, record: Record | None) -> frozenset[str]:
    """Return what can be done about the job as it stands, by this caller."""
    if record is None:
        return frozenset()
    possible: tuple[str, ...] = {"dead": ("dead_retry", "dead_cancel"), "running": ("cancel",)}.get(
        record.state, ("cancel", "reschedule")
    )
    if record.lease is not None and record.lease.kind in KINDS:
        possible = (*possible, "free_slot")
    return frozenset([action for action in possible if await asked.may(action, id)])


def _chain(before: Record | Following, depth: int) -> Iterator[Link]:
    for jobs, dies in ((before.then, False), (before.on_dead, True)):
        for one in jobs:
            yield Link(one, depth, dies)
            yield from _chain(one, depth + 1)


PLACES: Final = (
    Page(name="jobs", template="job.html", path="/jobs/{id}", title="Job", action="get", resource="id", show=show),
)
