"""Changes of many jobs or dead letters at once, a page at a time; and undoing them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.runtime.done import HEX, made_at
from tocsin.actors.scheduler.client.instance import Instance, name_or_none, path_or_none
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import Act
from tocsin.actors.scheduler.model.audit_records import Undone
from tocsin.actors.scheduler.model.reasons import DEAD_REASONS
from tocsin.actors.scheduler.model.rows import RedriveRow
from tocsin.actors.scheduler.queries import audit as audits
from tocsin.actors.scheduler.queries import listing
from tocsin.actors.scheduler.queries.candidates import Filter
from tocsin.actors.scheduler.queries.redrives import read_redrive
from tocsin.actors.scheduler.transitions import events
from tocsin.actors.scheduler.transitions import redrive as redrives
from tocsin.dispatch.instants import show
from tocsin.dispatch.words import word
from tocsin.errors import ConflictError, InvalidInputError, TocsinError

PAGE = 500
MOST_IDS = 1_000


class LocalBulk:
    """Changes much of what one scheduler holds at once."""

    def __init__(self, instance: Instance, who: AskedBy) -> None:
        self._instance, self._who = instance, who

    async def cancel_all(
        self, *, pool: str | None, label: str | None, path: str | None, all: bool, dry_run: bool
    ) -> records.Matched:
        """Cancel every job there is now that fits all filters, a page at a time."""
        if all == any(one is not None for one in (pool, label, path)):
            raise InvalidInputError(f"give pool, label or {word('function_path')}, or {word('all')} and none of them")
        here = self._instance
        wanted = Filter(name_or_none(pool, "pool"), None, name_or_none(label, "label"), path_or_none(path))
        await here.fill_labels(wanted)
        until, cursor, matched, cancelled = here.now_ms(), None, 0, 0
        act = here.act("cancel_all", self._who, said={"pool": pool, "label": label, "functionPath": path})
        while True:
            async with here.service.paging:
                page = await listing.list_live(here.view(), here.name, until, PAGE, cursor, wanted)
            found = [(one.id, one.incarnation) for one in page.records if one.enqueued_at <= until]
            matched += len(found)
            if not dry_run:
                cancelled += await here.cancel_many(found, act)
            if not page.truncated:
                return await self._matched(act, matched, cancelled)
            cursor = page.cursor

    async def dead_retry_all(
        self,
        *,
        pool: str | None,
        reason: str | None,
        path: str | None,
        since: int | None,
        ids: Sequence[str] | None,
        all: bool,
        rate_per_second: int,
        dry_run: bool,
    ) -> records.Redrive:
        """Retry the dead letters parked before this call that fit all filters; `since` is epoch ms."""
        here, chosen = self._instance, _chosen(pool, reason, path, since, ids, all)
        rate = arguments.integer(rate_per_second, word("rate_per_second"), *arguments.RATE_PER_SECOND)
        if here.op:  # the call may have come before
            redrive_id = arguments.mint_id(made_at(here.op), int(here.op[HEX:], 16))
            if (known := await read_redrive(here.view(), redrive_id)) is not None:
                return known
        else:
            redrive_id = arguments.mint_id(here.now_ms(), here.host.random.getrandbits(80))
        row = msgspec.structs.replace(chosen, before=self._before(), rate=rate)
        while True:
            others = await redrives.running(here.view())
            counted = await redrives.count(here.view(), row, others)
            if counted.under_way and not counted.matched:
                raise ConflictError(
                    f"bulk retry {counted.by!r} goes on, and has every dead job that matches: look how far it is, or "
                    "stop it before you start another",
                    redriveId=counted.by,
                )
            row = msgspec.structs.replace(row, matched=counted.matched, turn=redrives.next_turn(others))
            begins = bool(counted.matched) and not dry_run
            if not begins or await here.call(events.StartRedrive(redrive_id, row, tuple(others), self._who)):
                waits_for = redrives.waits_for(redrive_id, row, others) if begins else None
                return records.Redrive(redrive_id, counted.matched, 0, begins, waits_for=waits_for)

    async def dead_cancel_all(
        self,
        *,
        pool: str | None,
        reason: str | None,
        path: str | None,
        since: int | None,
        ids: Sequence[str] | None,
        all: bool,
        dry_run: bool,
    ) -> records.Matched:
        """Cancel the dead letters parked before this call that fit all filters, a page at a time."""
        here, chosen = self._instance, _chosen(pool, reason, path, since, ids, all)
        given = {"pool": pool, "reason": reason, "functionPath": path, "since": since}
        act = here.act("dead_cancel_all", self._who, said={**given, "ids": None if ids is None else len(ids)})
        found: list[tuple[str, int]] = []
        matched = cancelled = 0
        before = self._before()
        async for (parked_at, job_id), letter in redrives.letters(here.view(), chosen.since, before, chosen.ids):
            if not redrives.wanted(chosen, letter):
                continue
            matched += 1
            found.append((job_id, parked_at))
            if len(found) == PAGE and not dry_run:
                cancelled += await self._discard(found, act)
                found = []
        if not dry_run:
            cancelled += await self._discard(found, act)
        return await self._matched(act, matched, cancelled)

    async def _discard(self, letters: Sequence[tuple[str, int]], act: Act) -> int:
        discarded = 0
        while letters:
            done, left = await self._instance.call(events.DiscardMany(letters, act))
            discarded, letters = discarded + done, letters[len(letters) - left :]
        return discarded

    async def _matched(self, act: Act, matched: int, cancelled: int) -> records.Matched:
        if not cancelled:
            return records.Matched(matched, 0)
        return records.Matched(matched, cancelled, act.id, await audits.undo_until(self._instance.view(), act.id))

    def _before(self) -> int:
        """Return the instant before which letters were parked that were there at this call. A clock that stands parks
        letters at this very instant, before it."""
        here = self._instance
        return here.now_ms() + (here.service.clocks.at(here.name) is not None)

    async def undo(self, action_id: str) -> Undone:
        """Undo an action, a page at a time. Goes on after a crash, once begun."""
        here, undoes = self._instance, arguments.schedule_id(action_id)
        undo_id = here.act("undo", self._who).id
        begun = await here.change(events.StartUndo(undo_id, undoes, self._who), audits.no_action(undoes))
        if isinstance(begun, TocsinError):
            raise begun
        while begun.running:
            page = await here.call(events.UndoPage(undo_id))
            if page is None:
                raise ConflictError(f"undo {undo_id!r} is gone: its instance was removed meanwhile")
            begun = page
        return Undone(undo_id, undoes, begun.matched, begun.restored, begun.skipped, begun.until or None)


def _chosen(
    pool: str | None, reason: str | None, path: str | None, since: int | None, ids: Sequence[str] | None, all: bool
) -> RedriveRow:
    """Check the filters of dead letters, and return them as a bulk retry has them."""
    if all == any(one is not None for one in (pool, reason, path, since, ids)):
        raise InvalidInputError(
            f"give pool, reason, {word('function_path')}, since or ids, or {word('all')} and none of them"
        )
    if reason is not None and reason not in DEAD_REASONS:
        raise InvalidInputError(f"reason must be one of {', '.join(DEAD_REASONS)}, not {show(reason)}")
    parked_since = 0 if since is None else arguments.instant_ms(since, "since")
    return RedriveRow(
        0, 1, 0, name_or_none(pool, "pool"), reason, path_or_none(path), parked_since, ids=_ids_or_none(ids)
    )


def _ids_or_none(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    if ids is None:
        return None
    given: object = ids
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not 1 <= len(given) <= MOST_IDS:
        raise InvalidInputError(f"ids must be a list of 1 to {MOST_IDS:,} ids")
    return tuple(dict.fromkeys(arguments.schedule_id(one) for one in given))
