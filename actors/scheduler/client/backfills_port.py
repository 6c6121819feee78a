"""Backfills of schedules from wire values: counted, begun, listed and stopped."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.runtime.done import HEX, made_at
from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.queries import backfills
from tocsin.actors.scheduler.schedules import events
from tocsin.actors.scheduler.schedules.definition import schedule_name
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError, NotFoundError, RequestError


class LocalBackfills:
    """Runs the past of schedules of one scheduler."""

    def __init__(self, instance: Instance, who: AskedBy) -> None:
        self._instance, self._who = instance, who

    async def backfill(self, name: str, *, start: int, end: int, rate_per_second: int, dry_run: bool) -> Backfill:
        """Run the slots from `start` on and before `end` that had no run; with `dry_run` only count them."""
        here, name = self._instance, schedule_name(name)
        first, last = arguments.instant_ms(start, "start"), arguments.instant_ms(end, "end") - 1
        if last < first:
            raise InvalidInputError(f"end ({end}) must be after start ({start}): the slots before it are run")
        rate = arguments.integer(rate_per_second, word("rate_per_second"), *arguments.RATE_PER_SECOND)
        if here.op:  # the call may have come before
            backfill_id = arguments.mint_id(made_at(here.op), int(here.op[HEX:], 16))
            if (known := await backfills.one_of(here.view(), name, backfill_id)) is not None:
                return known
        else:
            backfill_id = arguments.mint_id(here.now_ms(), here.host.random.getrandbits(80))
        counted = await backfills.count(here.view(), name, first, last, here.now_ms(), here.service.kept_slots)
        found = Backfill(
            name=name, start=start, end=end, rate_per_second=rate, matched=counted.matched, started=0, state="dry run",
            left_out=counted.left_out, slots=counted.slots,
        )  # fmt: skip
        if dry_run or not counted.matched:
            return found if dry_run else _as(found, "done")
        event = events.StartBackfill(name, backfill_id, first, last, rate, counted.matched, self._who)
        try:
            begun = await here.call(event, create=False)
        except NotFoundError:
            raise NotFoundError(f"there is no schedule {name!r}") from None
        if isinstance(begun, RequestError):
            raise begun
        return _as(found, begun.state, backfill_id)

    async def backfills(self, name: str) -> Sequence[Backfill]:
        """Return the backfills of a schedule, the newest first, at most a hundred."""
        return await backfills.listed(self._instance.view(), schedule_name(name))

    async def backfill_stop(self, name: str, backfill_id: str) -> bool:
        """Stop a backfill; what it has started goes on. False if it had ended, or there is none."""
        event = events.StopBackfill(schedule_name(name), arguments.schedule_id(backfill_id), self._who)
        stopped = await self._instance.change(event, False)
        if isinstance(stopped, NotFoundError):
            return False
        if isinstance(stopped, RequestError):
            raise stopped
        return stopped


def _as(found: Backfill, state: str, backfill_id: str = "") -> Backfill:
    return Backfill(
        backfill_id=backfill_id, name=found.name, start=found.start, end=found.end,
        rate_per_second=found.rate_per_second, matched=found.matched, started=0, state=state,
        left_out=found.left_out, slots=found.slots,
    )  # fmt: skip
