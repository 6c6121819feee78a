"""The engine of one host on a `SharedDisk`: its statements. The disk does them, the connection loses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from tocsin.storage.api import Range, Row
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.disk_connection import DiskConnection, Faults
from tocsin.storage.ownership.engine import Beat, Held, HostRow, Mail, MailBacklog, SlotRow, Unsettled
from tocsin.storage.shared_disk import SharedDisk

PAGE = 500
"""Actors in one page of `wakes`."""


class DiskEngine(DiskConnection):
    """A `SharedEngine` on a `SharedDisk`."""

    def __init__(self, disk: SharedDisk, faults: Faults | None = None) -> None:
        super().__init__(disk, faults)
        self._committing: set[int] = set()

    async def secret(self) -> bytes:
        return await self.ask(lambda: self.disk.secret)

    # ---- Rows --------------------------------------------------------------------------------------

    async def commit(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> set[int]:
        slots = [one.slot for one in held]
        if slots != sorted(set(slots)):
            raise ValueError(f"the slots of a commit are not in ascending order, once each: {slots}")
        if strange := {one.name for one in writes if self.disk.slot_of(one.name) not in slots}:
            raise ValueError(f"a commit of the slots {slots} writes actors of others: {sorted(strange)}")
        if both := self._committing.intersection(slots):
            raise ValueError(f"a commit of these slots is under way already: {sorted(both)}")
        self._committing.update(slots)
        copied = [ActorWrites(one.name, dict(one.rows), one.wake_at) for one in writes]
        try:
            return await self.ask(
                partial(self.disk.commit, owner, list(held), copied), slots=slots, unknown=Unsettled, writes=True
            )
        finally:
            self._committing.difference_update(slots)

    async def settle(self, slots: Sequence[int]) -> list[SlotRow]:
        return await self.ask(lambda: [self.disk.state.slots[slot] for slot in sorted(set(slots))], slots=slots)

    async def get(self, actor: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        def read() -> dict[bytes, bytes]:
            rows = self.disk.state.rows.maps.get(actor)
            return {} if rows is None else {key: value for key in keys if (value := rows.get(key)) is not None}

        return await self.ask(read)

    async def scan_many(self, actor: str, ranges: Sequence[Range], max_bytes: int, reverse: bool) -> list[list[Row]]:
        return await self.ask(lambda: self.disk.state.rows.scan_many(actor, ranges, max_bytes, reverse))

    async def stored(self, actor: str) -> tuple[bool, int | None]:
        return await self.ask(partial(self.disk.stored, actor))

    async def names(self, start: str, limit: int) -> list[str]:
        return await self.ask(partial(self.disk.names, start, limit))

    async def wakes(self, slots: Sequence[int]) -> AsyncIterator[Sequence[tuple[str, int | None]]]:
        start = ""
        while page := await self.ask(partial(self.disk.wakes, slots, start, PAGE)):
            yield page
            if len(page) < PAGE:
                return
            start = page[-1][0]

    # ---- Who owns what -----------------------------------------------------------------------------

    async def register(self, host: HostRow, ttl_s: float) -> None:
        def enter() -> None:
            self.disk.register(host, ttl_s)
            self.host, self.session = host.host, host.session
            self.lock()

        self.unlock()
        self.session_lost_at = None
        await self.ask(enter, writes=True)

    async def beat(self, host: str, ttl_s: float) -> Beat | None:
        return await self.ask(partial(self.disk.beat, host, ttl_s), writes=True)

    async def hosts(self) -> list[HostRow]:
        return await self.ask(self.disk.hosts)

    async def drain(self, host: str) -> bool:
        return await self.ask(partial(self.disk.drain, host), writes=True)

    async def reap(self) -> list[str]:
        return await self.ask(self.disk.reap, writes=True)

    async def reap_without_session(self, host: str) -> bool:
        return await self.ask(partial(self.disk.reap_without_session, host), writes=True)

    async def forget(self, host: str) -> None:
        await self.ask(partial(self.disk.forget, host), writes=True)

    async def slots(self) -> list[SlotRow]:
        return await self.ask(lambda: list(self.disk.state.slots))

    async def take(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        return await self.ask(partial(self.disk.take, list(slots), host), writes=True)

    async def release(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        return await self.ask(partial(self.disk.release, list(slots), host), slots=slots, writes=True)

    # ---- Mail and hints ----------------------------------------------------------------------------

    async def put_mail(self, mail: Sequence[Mail], most: int, oldest_ms: int) -> list[bool]:
        return await self.ask(partial(self.disk.put_mail, list(mail), most, oldest_ms), writes=True)

    async def take_mail(self, slots: Sequence[int], limit: int) -> list[Mail]:
        return await self.ask(partial(self.disk.take_mail, list(slots), limit))

    async def end_mail(self, host: str, done: Sequence[tuple[Mail, bytes]]) -> list[Mail]:
        return await self.ask(partial(self.disk.end_mail, host, list(done)), writes=True)

    async def answers(self, ops: Sequence[str]) -> dict[str, bytes]:
        return await self.ask(partial(self.disk.answers, list(ops)))

    async def backlogs(self) -> list[MailBacklog]:
        return await self.ask(self.disk.backlogs)

    async def hint(self, hosts: Sequence[str]) -> None:
        share, random = self.faults.share(), self.faults.random
        late = {
            connection: None if random.random() < 0.5 else random.choice(self.faults.late_s)
            for connection in self.disk.connections
            if share and random.random() < share
        }
        await self.ask(partial(self.disk.hint, list(hosts), late))

    async def hints(self) -> AsyncIterator[None]:
        assert self.hint_came is not None, "the engine was not opened"
        while True:
            await self.hint_came.wait()
            if not self.is_open:
                return
            self.hint_came.clear()
            yield
