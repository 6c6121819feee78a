"""Have this host own what the ring gives it: takes what is free, hands over what is another's, declares the dead dead.

One task does all of it, one step after the other, so that no two changes of ownership by this host are ever under way
at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tocsin.errors import StoreError, StoreLocked, StoreUnavailable
from tocsin.storage.ownership.engine import SLOTS, Held, HostRow, HostState, SharedEngine, SlotRow
from tocsin.storage.ownership.mailbox import Hints
from tocsin.storage.ownership.membership import Membership, either
from tocsin.storage.ownership.ring import Ring
from tocsin.storage.ownership.slots import Slots, Tenure
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.ownership.whereabouts import Whereabouts
from tocsin.storage.shared import SharedCounts

log = logging.getLogger("tocsin.storage")

BETWEEN_LOOKS_S = 0.02
"""Hints that come faster than this are one look."""


@dataclass(slots=True, eq=False)
class _HandOver:
    tenures: Sequence[Tenure]
    ends_at: float
    left: bool = False


@dataclass(slots=True)
class Parts:
    """The parts that a keeper works with."""

    engine: SharedEngine
    timing: Timing
    membership: Membership
    slots: Slots
    where: Whereabouts
    hints: Hints
    counts: SharedCounts
    settled: Callable[[Sequence[Tenure]], bool]
    """Return whether no commit of these tenures is under way."""
    give_up: Callable[[Tenure, SlotRow], None]
    """Note that a slot is not as this host believed."""


class Keeper:
    """The task that looks at the store again and again: at every hint, and every `look_s`."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._engine, self._timing, self._counts = parts, parts.engine, parts.timing, parts.counts
        self._membership, self._slots, self._where = parts.membership, parts.slots, parts.where
        self._wanted = asyncio.Event()
        self._leaving: _HandOver | None = None
        self._map_wanted = True  # the slots are to be read: something may have changed that this host was not told
        self._map_read_at = float("-inf")
        self._hinted = False
        self._buried: set[str] = set()  # hosts that this one declared dead, until they own nothing
        self._gone: dict[str, float] = {}  # hosts without a session, and when that was seen first
        self._ending = self._telling = False

    def start(self) -> None:
        self._wanted, self._leaving, self._ending, self._map_wanted = asyncio.Event(), None, False, True
        self._gone.clear()
        self._buried.clear()

    def hurry(self) -> None:
        """Look now."""
        self._wanted.set()

    def hinted(self) -> None:
        """Look now: another host has done something."""
        self._hinted = True
        self._wanted.set()

    def read_map(self) -> None:
        """Read soon where all slots are."""
        self._map_wanted = True
        self._wanted.set()

    def end(self) -> None:
        """End after the look that is under way."""
        self._ending = True
        self._wanted.set()

    async def run(self) -> None:
        troubled = False
        while not self._ending:
            self._wanted.clear()
            try:
                await self.look()
                troubled = False
            except StoreError as error:
                self._membership.interrupted()
                self._map_wanted = True  # whether a statement was done is not known
                if not troubled and not isinstance(error, StoreLocked):
                    log.warning("%s: this host cannot see to what it owns: %s", self._engine.place, error)
                troubled = True
            if not self._ending:
                await asyncio.sleep(BETWEEN_LOOKS_S)
                await either(self._wanted, self._wait_s())

    def _wait_s(self) -> float:
        wait = self._timing.look_s
        if self._gone:
            wait = min(wait, self._timing.second_look_s)
        if self._leaving is not None:
            wait = min(wait, max(self._leaving.ends_at - asyncio.get_running_loop().time(), 0.0))
        return wait

    # ---- One look --------------------------------------------------------------------------------

    async def look(self) -> None:
        """Read who is there, and do what follows from it."""
        me = self._membership.host
        if not me:
            raise StoreUnavailable("this host is not entered in the store at present")
        if self._membership.draining and self._slots.held:
            # Until this host has let go of everything it looks at nothing else: nobody has what it lets go of.
            self._hand_over_all()
            await self._release()
            return
        hosts = await self._engine.hosts()
        self._membership.answered()
        if self._where.read_hosts(hosts):
            self._map_wanted = True
        await self._judge(hosts)
        await self._release()
        if self._membership.host == me:
            await self._follow_ring(me)
        busy = self._hinted or self._leaving is not None
        if (self._map_wanted and not busy) or self._map_is_old():
            await self._read_slots()

    async def _follow_ring(self, me: str) -> None:
        mine = self._where.hosts.get(me)
        if mine is None or mine.state is HostState.DEAD:
            self._membership.hurry()  # a beat finds out
            return
        if self._membership.draining or mine.state is HostState.DRAINING:
            self._hand_over_all()
            return
        living = [
            row
            for row in self._where.hosts.values()
            if row.host == me or (row.state is HostState.UP and row.lease_left_ms > 0)
        ]
        ring = Ring({row.host: row.weight for row in living})
        if wanted := self._to_take(ring.won_by(me).difference(self._slots.held)):
            await self._take(wanted, me)
        if ring.winners:
            others = [tenure for slot, tenure in self._slots.held.items() if ring.winners[slot] != me]
            # Whoever is to have nothing lets go of all at once: nothing here is kept at work by small steps.
            self._hand_over(others, most=self._timing.step if me in ring.weights else SLOTS)

    def _to_take(self, wanted: frozenset[int]) -> list[int]:
        """Return which of these slots may be free. What another host had when that was read last is asked for only if a
        hint has come, or after a while."""
        if not self._hinted and not self._map_is_old():
            wanted = frozenset(slot for slot in wanted if self._where.owner_of(slot) is None)
        self._hinted = False
        return sorted(wanted)

    def _map_is_old(self) -> bool:
        since = asyncio.get_running_loop().time() - self._map_read_at
        return since >= (0.05 if self._where.waiting else self._timing.beat_s)

    # ---- Judging others --------------------------------------------------------------------------

    async def _judge(self, hosts: Sequence[HostRow]) -> None:
        """Declare dead whose lease or session has ended. Only who was connected without a break may: after an outage
        of the store all leases have ended, and nobody is dead."""
        others = [row for row in hosts if row.host != self._membership.host and row.state is not HostState.DEAD]
        dead: list[str] = []
        if any(row.lease_left_ms < 0 for row in others) and self._membership.connected_for(self._timing.ttl_s):
            await self._membership.beat()  # tells if the clock of the store has jumped, and lengthens the own lease
            if self._membership.connected_for(self._timing.ttl_s):
                dead += await self._engine.reap()
        dead += await self._judge_sessions([row.host for row in others if row.session and row.session_gone])
        if dead:
            self._counts.reaped += len(dead)
            self._map_wanted = True
            for host in dead:
                row = self._where.hosts.get(host)
                log.warning("host %s (%s) is declared dead", host, "?" if row is None else row.name)
            self._buried.update(dead)
            self._where.read_hosts(await self._engine.hosts())
            self._parts.hints.send()

    async def _judge_sessions(self, gone: Sequence[str]) -> list[str]:
        """Look twice at hosts whose session is gone: one that only connects again has it back the second time."""
        now = asyncio.get_running_loop().time()
        self._gone = {host: self._gone.get(host, now) for host in gone}
        dead = []
        if self._membership.may_judge_sessions:
            for host in [host for host, since in self._gone.items() if now - since >= self._timing.second_look_s]:
                del self._gone[host]
                if await self._engine.reap_without_session(host):
                    dead.append(host)
        return dead

    # ---- Taking ----------------------------------------------------------------------------------

    async def _take(self, wanted: Sequence[int], me: str) -> None:
        rows = await self._engine.take(wanted, me)
        if self._membership.host == me:
            self._took(rows)

    def _took(self, rows: Sequence[SlotRow]) -> None:
        new = self._slots.took(rows)
        if new:
            self._counts.taken += len(new)
            self._where.note(new, self._membership.host)
            self._parts.hints.send()

    async def _read_slots(self) -> None:
        """Read where all slots are. What is this host's without its knowledge was taken by a statement whose answer was
        lost; what is not this host's any more is given up."""
        me, before = self._membership.host, {slot: tenure.held for slot, tenure in self._slots.held.items()}
        rows = await self._engine.slots()
        if self._membership.host != me:
            return
        self._map_wanted = any(row.owner is None for row in rows)  # others take those just now
        self._map_read_at = asyncio.get_running_loop().time()
        self._where.read_slots(rows)
        await self._forget_dead(rows)
        strays = [row.slot for row in rows if row.owner == me and row.slot not in self._slots.held]
        if strays:
            # Taken by a statement whose answer was lost, or given up: they are taken anew, in an epoch of their own.
            await self.release(strays, me)
            self._where.note(strays, None)
        doubtful = [said for row in rows if (said := before.get(row.slot)) and not _may_be(row, me, said)]
        if doubtful:
            await self._look_closely(doubtful, me)

    async def _forget_dead(self, rows: Sequence[SlotRow]) -> None:
        """Remove the hosts that this one declared dead, once others have what they had."""
        for host in self._buried.difference(row.owner for row in rows):
            await self._engine.forget(host)
            self._buried.discard(host)

    async def _look_closely(self, doubtful: Sequence[Held], me: str) -> None:
        for row in await self._engine.settle([said.slot for said in doubtful]):
            tenure = self._slots.held.get(row.slot)
            said = next(one for one in doubtful if one.slot == row.slot)
            if tenure is not None and tenure.epoch == said.epoch and not _may_be(row, me, said):
                self._parts.give_up(tenure, row)

    # ---- Handing over ----------------------------------------------------------------------------

    async def tell_and_hand_over(self, tell: Coroutine[Any, Any, object]) -> None:
        """Tell the others while all goes on, then let go of everything: whoever hears of what is released may take it.
        Without an answer it is let go of all the same."""
        self._telling = True
        try:
            with suppress(StoreError):  # what is released here is not taken here again anyway
                await tell
        finally:
            self._telling = False
        self._hand_over_all()
        self._wanted.set()

    def _hand_over_all(self) -> None:
        if not self._telling:
            self._hand_over([*self._slots.held.values()], most=SLOTS)

    def _hand_over(self, tenures: Sequence[Tenure], *, most: int) -> None:
        """Ask the layers above to let go of slots: of a few while all goes on, of all when this host stops."""
        if not tenures or self._leaving is not None:
            return  # the rest follows when those that are leaving have left
        tenures = tenures[:most]
        ends_at = asyncio.get_running_loop().time() + self._timing.leave_s
        self._leaving = over = _HandOver(tenures, ends_at)
        self._where.moved()
        self._slots.leave(tenures, partial(self._left, over))

    def _left(self, over: _HandOver) -> None:
        over.left = True
        self._wanted.set()

    async def _release(self) -> None:
        """Release the slots that the layers above have let go of, or did not in time."""
        if (over := self._leaving) is None:
            return
        tenures = [tenure for tenure in over.tenures if self._slots.held.get(tenure.slot) is tenure]
        if asyncio.get_running_loop().time() < over.ends_at:
            if not over.left:
                return
            if not self._parts.settled(tenures):
                self._wanted.set()
                return
        elif tenures and not (over.left and self._parts.settled(tenures)):
            log.warning("%d slots are handed over although work on them has not ended in time", len(tenures))
            self._slots.lose(tenures, _handed_over())
        owner = over.tenures[0].owner
        slots = [tenure.slot for tenure in over.tenures if tenure in tenures or tenure.slot not in self._slots.held]
        if slots and owner == self._membership.host:
            await self.release(slots, owner, tenures)
        self._slots.released(tenures, _handed_over())
        self._leaving, self._map_wanted = None, True
        self._counts.handed_over += len(slots)
        self._where.note(slots, None)
        self._parts.hints.send()
        self._wanted.set()

    async def release(self, slots: Sequence[int], owner: str, tenures: Sequence[Tenure] = ()) -> None:
        """Leave slots without an owner; the tenures are those of them that this host had. A second time changes
        nothing, so a lost answer is no harm."""
        for _ in range(2):
            try:
                return await self._release_once(slots, owner, tenures)
            except StoreUnavailable:
                await asyncio.sleep(BETWEEN_LOOKS_S)
        await self._release_once(slots, owner, tenures)

    async def _release_once(self, slots: Sequence[int], owner: str, tenures: Sequence[Tenure]) -> None:
        """Release, and give up what the store lacks commits of: whoever is next begins with what is in the store, so
        only this host knows that there was more."""
        rows = {row.slot: row for row in await self._engine.release(slots, owner)}
        self._give_up_lacking(tenures, rows)
        # Released before by a statement whose answer was lost, taken away, or not taken yet in a store that went back.
        if missing := [tenure for tenure in tenures if tenure.slot not in rows]:
            found = await self._engine.settle([tenure.slot for tenure in missing])
            self._give_up_lacking(missing, {row.slot: row for row in found})

    def _give_up_lacking(self, tenures: Sequence[Tenure], rows: Mapping[int, SlotRow]) -> None:
        for tenure in tenures:
            if (row := rows.get(tenure.slot)) is not None and row.lacks(tenure.held):
                self._parts.give_up(tenure, row)


def _handed_over() -> StoreLocked:
    return StoreLocked("this part of the store was handed over to another host")


def _may_be(row: SlotRow, me: str, said: Held) -> bool:
    """Return whether a row read a moment ago may be of a slot that was this host's as said before it was read."""
    return row.owner == me and row.epoch == said.epoch and row.seq >= said.seq
