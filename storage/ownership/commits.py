"""Commits behind the fence: one statement for many actors, what became of one that broke off, and who was fenced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from tocsin.errors import Fenced, RolledBack, StoreError, StoreUnavailable
from tocsin.storage.combiner import ActorWrites, SomeRefused
from tocsin.storage.ownership.engine import Held, SharedEngine, SlotRow, Unsettled, slot_of
from tocsin.storage.ownership.slots import Slots, Tenure
from tocsin.storage.shared import SharedCounts

log = logging.getLogger("tocsin.storage")

WAITS_S = (0.02, 0.05, 0.1, 0.25, 0.5)
MOST_STALEMATES = 5
"""So often a store may refuse a commit although each slot is as said, before its error is passed on."""


class FencedCommits:
    """Writes for the slots that this host owns. One commit of a slot is under way at a time: the lanes see to that."""

    def __init__(
        self,
        engine: SharedEngine,
        slots: Slots,
        counts: SharedCounts,
        waits: Callable[[], bool],
        lost: Callable[[Sequence[Tenure]], None],
    ) -> None:
        """`waits()`: whether an unavailable store is worth waiting for. `lost(tenures)` is called after slots were
        found to be somebody else's."""
        self._engine, self._slots, self._counts, self._waits, self._lost = engine, slots, counts, waits, lost
        self._stopping = False

    def start(self) -> None:
        self._stopping = False

    def stop(self) -> None:
        """Wait for no store from now on."""
        self._stopping = True

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        """Apply all of it durably. SomeRefused for the actors that this host does not own any more: nothing was
        written then, and the others may go again."""
        tenures = self._tenures(writes)
        held = [tenures[slot].held for slot in sorted(tenures)]
        owner = tenures[held[0].slot].owner
        sent = _Sent(owner, held, tenures)
        for tried in count():
            if gone := {slot for slot, tenure in tenures.items() if self._slots.held.get(slot) is not tenure}:
                if sent.broke_off and await self._use_up(sent):
                    return self._bump(sent)
                raise _refused(writes, gone)
            try:
                as_said = await self._engine.commit(owner, held, writes)
            except Unsettled as error:
                if await self._landed(sent, error):
                    return self._bump(sent)
                continue
            except StoreUnavailable:
                if not sent.broke_off and (self._stopping or not self._waits()):
                    raise
                await _pause(tried)
                continue
            except RolledBack:
                if tried >= MOST_STALEMATES:
                    raise
                as_said = set()
            except StoreError:
                if sent.broke_off and await self._use_up(sent):
                    return self._bump(sent)
                raise
            if len(as_said) == len(held) or await self._judge(sent):
                return self._bump(sent)
            self._counts.fenced += 1

    def _tenures(self, writes: Sequence[ActorWrites]) -> dict[int, Tenure]:
        slots = {slot_of(one.name) for one in writes}
        if missing := {slot for slot in slots if slot not in self._slots.held}:
            raise _refused(writes, missing)
        return {slot: self._slots.held[slot] for slot in slots}

    def _bump(self, sent: _Sent) -> None:
        for tenure in sent.tenures.values():
            tenure.seq += 1

    # ---- Refused ---------------------------------------------------------------------------------

    async def _judge(self, sent: _Sent) -> bool:
        """Find out why a commit was refused, and give up the slots that are not this host's any more. Return whether it
        was refused because it had landed before."""
        rows = await self._settle(sent.held)
        if sent.broke_off and _was_applied(rows, sent.owner, sent.held):
            return True
        for row in rows:
            if not _is_as_said(row, sent.owner, sent.tenures[row.slot].held):
                self.give_up(sent.tenures[row.slot], row)
        return False

    def give_up(self, tenure: Tenure, row: SlotRow) -> None:
        """Note that this slot is as `row` says, which is not as its owner believed. That the store lacks commits of a
        tenure is said once, also if it has ended."""
        error = self._why(tenure, row)
        news = row.lacks(tenure.held) and not tenure.lacking
        if news:
            tenure.lacking = True
            self._counts.rolled_back += 1
            ended_at = row.seq_after(tenure.epoch)
            self._counts.commits_lost += 0 if ended_at is None else tenure.seq - ended_at
        lost = self._slots.lose([tenure], error)
        if lost or news:
            log.error("%s", error.message)
        if lost:
            self._lost(lost)

    def _why(self, tenure: Tenure, row: SlotRow) -> StoreError:
        slot = f"slot {tenure.slot} of {self._engine.place}"
        if row.lacks(tenure.held):
            return RolledBack(
                f"{slot} is older than this host's memory (epoch {row.epoch}, commit {row.seq}; here {tenure.epoch}, "
                f"{tenure.seq}): durable commits were lost, by a failover to a replica that was behind, or by a "
                "restored copy. Its actors are read anew"
            )
        now = "nobody's" if row.owner is None else f"host {row.owner}'s"
        return Fenced(f"{slot} is {now} since epoch {row.epoch}, and was taken here in epoch {tenure.epoch}")

    # ---- Unknown outcomes ------------------------------------------------------------------------

    async def _landed(self, sent: _Sent, why: BaseException) -> bool:
        """Find out whether a commit that broke off is in the store. If it is not, it may still get there: until its
        number is used, by itself or by another one, nobody may say that it failed."""
        sent.broke_off = True
        log.warning("a commit of %d slots broke off, and is looked for: %r", len(sent.held), why.__cause__ or why)
        applied = _was_applied(await self._settle(sent.held), sent.owner, sent.held)
        if applied is None:
            raise self._nobody_knows(sent)
        return applied

    async def _use_up(self, sent: _Sent) -> bool:
        """Make sure that a commit that broke off, and is not sent again, cannot land any more; return whether it has
        landed. It needs all of its slots as said, so one that is not is enough."""
        first, others, doubtful = sent.held[0], sent.held[1:], False
        for tried in count():
            rows = await self._settle(sent.held)
            applied = _was_applied(rows, sent.owner, others if doubtful and others else sent.held)
            if applied is None or (applied and doubtful and not others):
                raise self._nobody_knows(sent)
            said = {one.slot: one for one in sent.held}
            if applied or not all(_is_as_said(row, sent.owner, said[row.slot]) for row in rows):
                return applied
            try:
                if await self._engine.commit(sent.owner, [first], []):
                    return False
            except Unsettled:
                doubtful = True  # if the number is used now, it may be by either of the two
            except StoreError:
                await _pause(tried)
        raise AssertionError

    def _nobody_knows(self, sent: _Sent) -> Fenced:
        error = Fenced(
            f"{len(sent.held)} slots of {self._engine.place} changed hands so often since a commit of this host broke "
            "off that nobody can say whether it was written"
        )
        log.critical("%s", error.message)
        return error

    async def _settle(self, held: Sequence[Held]) -> list[SlotRow]:
        """Read slots once nothing of this host is under way in them, however long the store does not answer."""
        for tried in count():
            try:
                return await self._engine.settle([one.slot for one in held])
            except StoreUnavailable:
                await _pause(tried)
        raise AssertionError


@dataclass(slots=True)
class _Sent:
    """A commit on its way: what it says of its slots."""

    owner: str
    held: Sequence[Held]
    tenures: dict[int, Tenure]
    broke_off: bool = False
    """Once it was sent and not answered."""


async def _pause(tried: int) -> None:
    await asyncio.sleep(WAITS_S[min(tried, len(WAITS_S) - 1)])


def _is_as_said(row: SlotRow, owner: str, said: Held) -> bool:
    return (row.owner, row.epoch, row.seq) == (owner, said.epoch, said.seq)


def _was_applied(rows: Sequence[SlotRow], owner: str, held: Sequence[Held]) -> bool | None:
    """Return whether a commit that was sent as this is in the store, all or nothing of it; None if no row tells."""
    said = {one.slot: one for one in held}
    found = {_tells(row, owner, said[row.slot]) for row in rows if row.slot in said}
    return True if True in found else False if False in found else None


def _tells(row: SlotRow, owner: str, said: Held) -> bool | None:
    if row.epoch == said.epoch and row.owner not in (owner, None):
        return False  # a store that went back gives an epoch a second time
    if row.epoch > said.epoch:
        ended_at = row.seq_after(said.epoch)
        return None if ended_at is None else ended_at > said.seq
    return row.epoch == said.epoch and row.seq > said.seq


def _refused(writes: Sequence[ActorWrites], slots: set[int]) -> SomeRefused:
    return SomeRefused(
        {
            one.name: Fenced(f"{one.name} (slot {slot} of the store) is not this host's any more")
            for one in writes
            if (slot := slot_of(one.name)) in slots
        }
    )
