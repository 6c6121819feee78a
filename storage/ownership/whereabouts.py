"""The place of each slot, as this host knows from memory, and waking for those who wait until it is somewhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tocsin.storage.ownership.engine import SLOTS, HostRow, HostState, SlotRow, slot_of
from tocsin.storage.ownership.membership import Membership
from tocsin.storage.ownership.slots import Slots
from tocsin.storage.shared import Located

HERE: Final = Located(here=True)
NOWHERE: Final = Located(here=False)
LOOK_S: Final = 0.1
"""So often the store is asked while somebody waits for a slot to be elsewhere."""


class Whereabouts:
    """The owner of each slot and the hosts there are, as read last; of this host's own slots, what it knows."""

    def __init__(self, slots: Slots, membership: Membership, look: Callable[[], None]) -> None:
        """`look()` has the store asked soon where the slots are."""
        self._slots, self._membership, self._look = slots, membership, look
        self.owners: list[str | None] = [None] * SLOTS
        self.hosts: dict[str, HostRow] = {}
        self.waiting = 0
        """Number of those who wait for a slot to be elsewhere."""
        self._moved: asyncio.Future[None] | None = None

    def start(self) -> None:
        self.owners, self.hosts, self._moved = [None] * SLOTS, {}, None

    # ---- What was read ---------------------------------------------------------------------------

    def read_hosts(self, rows: Iterable[HostRow]) -> bool:
        """Note which hosts there are; return whether others live than before."""
        before = {(host, row.state) for host, row in self.hosts.items()}
        self.hosts = {row.host: row for row in rows}
        changed = before != {(host, row.state) for host, row in self.hosts.items()}
        if changed:
            self.moved()
        return changed

    def read_slots(self, rows: Sequence[SlotRow]) -> None:
        owners = list(self.owners)
        for row in rows:
            owners[row.slot] = row.owner
        if owners != self.owners:
            self.owners = owners
            self.moved()

    def note(self, slots: Iterable[int], owner: str | None) -> None:
        for slot in slots:
            self.owners[slot] = owner
        self.moved()

    def moved(self) -> None:
        """Wake those who wait: something may be elsewhere."""
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)
        self._moved = None

    # ---- What is asked ---------------------------------------------------------------------------

    def owner_of(self, slot: int) -> str | None:
        """Return the living owner of a slot, as far as is known."""
        if slot in self._slots.held:
            return self._membership.host
        owner = self.owners[slot]
        row = None if owner is None else self.hosts.get(owner)
        return None if row is None or row.state is HostState.DEAD else row.host

    def locate(self, name: str) -> Located:
        if not self._membership.sure:
            return NOWHERE
        slot = slot_of(name)
        if (tenure := self._slots.held.get(slot)) is not None:
            return NOWHERE if tenure.leaving else HERE
        owner = self.owners[slot]
        row = None if owner is None else self.hosts.get(owner)
        if row is None or row.state is HostState.DEAD or row.host == self._membership.host:
            return NOWHERE
        return Located(False, row.host, row.url)

    async def relocated(self, name: str, since: Located, wait_s: float) -> Located:
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        self.waiting += 1
        try:
            while (found := self.locate(name)) == since and (left := end - loop.time()) > 0:
                self._look()
                if self._moved is None:
                    self._moved = loop.create_future()
                await asyncio.wait([self._moved], timeout=min(left, LOOK_S))
            return found
        finally:
            self.waiting -= 1
