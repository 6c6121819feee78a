"""Reads of committed state, outside the actor's turn: jobs, counts, history, and why a job does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from tocsin.actors.scheduler.client.feed import LocalFeed
from tocsin.actors.scheduler.client.instance import Instance, name_or_none, page_limit
from tocsin.actors.scheduler.inflight.inflight import CLOCK_STOPS
from tocsin.actors.scheduler.inflight.result_waiters import NOBODY_WAITS
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.activity import MOST_MINUTES, Activity
from tocsin.actors.scheduler.model.audit_records import AuditPage, DeadGroups
from tocsin.actors.scheduler.model.feed_frames import FeedPage
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord
from tocsin.actors.scheduler.model.health import level
from tocsin.actors.scheduler.model.lost import lost
from tocsin.actors.scheduler.model.moving import moved_to, moving_to
from tocsin.actors.scheduler.model.records import (
    Attempt,
    ClockState,
    LanesStatus,
    Page,
    Pool,
    Reason,
    Record,
    Redrive,
    Status,
    pause_of,
)
from tocsin.actors.scheduler.queries import audit as audits
from tocsin.actors.scheduler.queries import clocks as clock_reads
from tocsin.actors.scheduler.queries import dead_groups, listing, why
from tocsin.actors.scheduler.queries import groups as group_reads
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries import results as outcomes
from tocsin.actors.scheduler.queries.candidates import Filter
from tocsin.actors.scheduler.queries.instances import instance as instance_counts
from tocsin.actors.scheduler.queries.redrives import read_redrive
from tocsin.errors import HostClosedError, InvalidInputError

STATES = ("pending", "waiting", "running")
ORDERS = ("due", "id")


class LocalReads:
    """Reads what one scheduler holds."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def changes(self, *, since: str | None, wait_s: float | None) -> FeedPage:
        """Return the frames of the live feed behind a place, or wait for the next one."""
        return await LocalFeed(self._instance, self.status).changes(since=since, wait_s=wait_s)

    async def get(self, id: str) -> Record | None:
        """Return the job, dead ones included; None if there is none of that id."""
        return await query.get(self._instance.view(), arguments.schedule_id(id), self._instance.now_ms())

    async def list(
        self,
        *,
        cursor: str | None,
        limit: int,
        order: str,
        pool: str | None,
        state: str | None,
        label: str | None,
        queue: str | None,
        path: str | None,
    ) -> Page:
        """Return a page of live jobs by next attempt or by id."""
        if order not in ORDERS:
            raise InvalidInputError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        if state is not None and state not in STATES:
            raise InvalidInputError(f"state must be one of {', '.join(STATES)}, not {state!r}")
        here = self._instance
        wanted = Filter(
            name_or_none(pool, "pool"), state, name_or_none(label, "label"), _path_or_none(path),
            name_or_none(queue, "queue"),
        )  # fmt: skip
        await here.fill_labels(wanted)
        most = page_limit(limit)
        async with here.service.paging:
            return await listing.list_live(here.view(), here.name, here.now_ms(), most, cursor, wanted, order)

    async def dead(
        self,
        *,
        cursor: str | None,
        limit: int,
        pool: str | None,
        label: str | None,
        reason: str | None,
        since: int | None,
        path: str | None,
    ) -> Page:
        """Return a page of dead jobs, the newest parked last; `since` (epoch ms) leaves out those parked before."""
        here = self._instance
        parked_since = 0 if since is None else arguments.instant_ms(since, "since")
        wanted = Filter(
            name_or_none(pool, "pool"), None, name_or_none(label, "label"), _path_or_none(path),
            reason=name_or_none(reason, "reason"),
        )  # fmt: skip
        await here.fill_labels(wanted)
        async with here.service.paging:
            return await listing.list_dead(
                here.view(), here.name, here.now_ms(), page_limit(limit), cursor, wanted, parked_since
            )

    async def status(self) -> Status:
        """Count what this instance holds, exactly but for `due`."""
        here, service = self._instance, self._instance.service
        counts = await query.counts(here.view(), here.now_ms())
        gone = await lost(here.view())
        facts = service.facts(here.name)
        reasons = service.health.of_instance(here.id, counts.summary, gone=gone)
        paused_at, paused_by = pause_of(counts.pause)
        return Status(
            backlog=counts.backlog,
            in_flight=counts.in_flight,
            due=counts.due,
            oldest_due_ms=counts.oldest_due_ms,
            dead=counts.dead,
            lanes=LanesStatus(*service.lanes_in_use(here.name)),
            health=level(reasons),
            pools=counts.pools,
            more_pools=counts.more_pools,
            alarm_failures=facts.alarm_failures,
            retired=counts.retired,
            trouble=str(facts.store_trouble) if facts.store_trouble else None,
            wal_bytes=here.store().stats().wal_bytes,
            paused=counts.paused,
            paused_at=paused_at,
            paused_by=paused_by,
            moved_to=moved_to(counts.summary.instance),
            moving_to=moving_to(counts.summary.instance),
            reasons=reasons,
            clock=await clock_reads.of(here.view(), facts),
            known=counts.backlog + counts.in_flight + counts.dead > 0 or await self._is_known(),
            origins=service.origins_of(here.name),
            cluster=None if service.watch is None else await service.watch.status(here.id),
        )

    async def _is_known(self) -> bool:
        """Return whether there is anything in this instance, as the list of instances has it."""
        return await instance_counts(self._instance.host.provider, self._instance.name) is not None

    async def clock(self, wait_s: float | None) -> ClockState | None:
        """Return how the test clock stands, once no advance goes on or after so long. HostClosedError where nobody may
        wait any more."""
        here = self._instance
        inflight = here.service.inflight(here.name)  # whoever waits keeps it alive: its successor would not tell them
        with inflight.result_waiters.watch(CLOCK_STOPS) as stopped:
            found = await clock_reads.of(here.view(), here.service.facts(here.name))
            if wait_s == 0 or found is None or not found.advancing:
                return found
            if not inflight.result_waiters.stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await stopped.come()
                found = await clock_reads.of(here.view(), here.service.facts(here.name))
            if found is not None and found.advancing and inflight.result_waiters.stopping:
                raise HostClosedError(NOBODY_WAITS)
            return found

    async def why(self, id: str) -> Sequence[Reason]:
        """Return every reason the job is not running now."""
        here = self._instance
        return await why.reasons(
            here.view(), arguments.schedule_id(id), here.now_ms(), here.service.facts(here.name)
        )  # fmt: skip

    async def history(self, id: str) -> Sequence[Attempt]:
        """Return how its attempts ended, the oldest first."""
        return await outcomes.history(self._instance.view(), arguments.schedule_id(id), self._instance.now_ms())

    async def pool(self, name: str) -> Pool:
        """Return a pool and its holders."""
        here = self._instance
        return await query.pool(here.view(), arguments.plain_name(name, "name"), here.now_ms())

    async def group(self, name: str) -> GroupRecord | None:
        """Return a group; None if there is none of that name."""
        return await group_reads.get(self._instance.view(), arguments.plain_name(name, "name"))

    async def groups(self, *, cursor: str | None, limit: int) -> GroupPage:
        """Return a page of groups by name."""
        here = self._instance
        return await group_reads.page(here.view(), here.name, page_limit(limit), cursor)

    async def members(self, name: str, *, cursor: str | None, limit: int) -> Page:
        """Return a page of the members of a group that live or are dead, by id."""
        here, name = self._instance, arguments.plain_name(name, "name")
        return await group_reads.members(here.view(), here.name, name, page_limit(limit), cursor, here.now_ms())

    async def dead_groups(self) -> DeadGroups:
        """Return the dead letters by reason and path."""
        async with self._instance.service.paging:
            return await dead_groups.groups(self._instance.view())

    async def audit(
        self,
        *,
        cursor: str | None,
        limit: int,
        action: str | None,
        who: str | None,
        since: int | None,
    ) -> AuditPage:
        """Return a page of what operators did, the newest first."""
        here = self._instance
        return await audits.page(
            here.view(), here.name, cursor=cursor, limit=page_limit(limit),
            action=None if action is None else arguments.whole_text(action, "action"),
            who=None if who is None else arguments.whole_text(who, "who"),
            since=0 if since is None else arguments.instant_ms(since, "since"),
        )  # fmt: skip

    async def activity(self, minutes: int) -> Activity:
        """Return what the scheduler did in the last minutes."""
        here, wanted = self._instance, arguments.integer(minutes, "minutes", 1, MOST_MINUTES)
        found = await instance_counts(here.host.provider, here.name)
        return here.service.activities.of(here.name, wanted, 0 if found is None else found.backlog)

    async def redrive(self, redrive_id: str) -> Redrive | None:
        """Return how far a bulk retry has come; None if there is none of that id."""
        return await read_redrive(self._instance.view(), arguments.schedule_id(redrive_id))


def _path_or_none(value: str | None) -> str | None:
    """Check a path that no job could have: such a list would always be empty."""
    return None if value is None else arguments.target(value, "function_path")
