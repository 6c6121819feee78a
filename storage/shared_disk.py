"""A store that several hosts share, in memory: tables, and each statement as one instant. The reference for engines.

A `SharedDisk` outlives its hosts, as a server outlives its clients. It has a clock of its own, and what runs in it runs
although the host that asked for it does not.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk
from tocsin.storage.ownership.engine import (
    SLOTS,
    Beat,
    Held,
    HostRow,
    HostState,
    Mail,
    MailBacklog,
    SlotRow,
    slot_of,
)

START_MS: Final = 1_800_000_000_000
"""The time of the store's clock when the event loop begins, as that of a `VirtualClock`."""
ANSWERS_KEPT_S: Final = 600.0
BASES_KEPT: Final = 3


class Connected(Protocol):
    """A connection to the disk, of one process."""

    host: str

    def broken_off(self) -> None:
        """Note that the server ended the connection: what was under way is lost, and so is the session lock."""
        ...

    def reachable(self) -> None:
        """Note that the server takes connections again."""
        ...

    def hinted(self) -> None: ...


@dataclass(slots=True)
class _Lease:
    row: HostRow
    until_s: float


@dataclass
class SharedState:
    """All that the server keeps on disk; the rest is connections, and ends with them."""

    rows: MemoryDisk = field(default_factory=MemoryDisk)
    slots: list[SlotRow] = field(default_factory=lambda: [SlotRow(slot, None, 0, 0) for slot in range(SLOTS)])
    leases: dict[str, _Lease] = field(default_factory=dict)
    mail: dict[str, tuple[Mail, float]] = field(default_factory=dict)
    """By `op`, with the instant of its arrival."""
    answers: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    mail_seq: int = 0


class SharedDisk:
    """The server: state, clock, locks and connections.

    `rows` may be a `MemoryDisk` that watches what is applied to it. `clock_ahead_s` may be set at any time.
    """

    def __init__(self, rows: MemoryDisk | None = None, *, place: str = "shared-disk", start_ms: int = START_MS) -> None:
        self.state = SharedState(rows if rows is not None else MemoryDisk())
        self.place, self.start_ms, self.clock_ahead_s = place, start_ms, 0.0
        self.secret = b"the secret that the hosts of this disk share"
        self.away = False
        """Nobody reaches the server."""
        self.history = ""
        """Another one after each roll-back. Empty: this store does not tell."""
        self.life = 0
        """Grows each time that all connections end: what was under way before does not land after it."""
        self.connections: dict[Connected, None] = {}
        self.sessions: dict[int, Connected] = {}
        """Who holds which session lock."""
        self.locked: dict[int, asyncio.Future[None]] = {}
        """Slots that a statement under way holds; the future is done when it has ended."""
        self.context = Context()
        """In which the server runs, whoever asked."""
        self._slots_of: dict[str, int] = {}

    # ---- Time, failures ----------------------------------------------------------------------------

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() + self.clock_ahead_s

    def now_ms(self) -> int:
        """Return the time of the store's clock, ms since the epoch."""
        return self.start_ms + math.floor(self.now_s() * 1000 + 1e-3)

    def copied(self) -> SharedState:
        """Return what is on disk at this instant: the state of a standby that is as far."""
        state, rows = self.state, MemoryDisk()
        rows.maps = {name: one.copy() for name, one in state.rows.maps.items()}
        rows.wakes = dict(state.rows.wakes)
        leases = {host: _Lease(lease.row, lease.until_s) for host, lease in state.leases.items()}
        return SharedState(rows, list(state.slots), leases, dict(state.mail), dict(state.answers), state.mail_seq)

    def roll_back(self, state: SharedState) -> None:
        """Go on from an earlier state, which serves once, as a standby that was behind. All connections end."""
        # The object of the rows stays: it may be one that watches.
        watched, self.state = self.state.rows, state
        watched.maps, watched.wakes = state.rows.maps, state.rows.wakes
        state.rows = watched
        if self.history:
            self.history += "'"
        self.go_away()
        self.come_back()

    def go_away(self) -> None:
        """End all connections and what is under way, as a server that stops."""
        self.away = True
        self.life += 1
        self.sessions.clear()
        locked, self.locked = self.locked, {}
        for future in locked.values():
            if not future.done():
                future.set_result(None)
        for connection in list(self.connections):
            connection.broken_off()

    def come_back(self) -> None:
        """Take connections again, as the server that starts, or the one that is in its place."""
        self.away = False
        for connection in list(self.connections):
            connection.reachable()

    # ---- Rows --------------------------------------------------------------------------------------

    def commit(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> set[int]:
        slots = self.state.slots
        as_said = {
            one.slot
            for one in held
            if (row := slots[one.slot]).owner == owner and row.epoch == one.epoch and row.seq == one.seq
        }
        if len(as_said) == len(held):
            self.apply(owner, held, writes)
        return as_said

    def apply(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> None:
        """Apply a commit whose fence holds; simulations watch here."""
        for one in held:
            row = self.state.slots[one.slot]
            self.state.slots[one.slot] = replace(row, seq=row.seq + 1)
        self.state.rows.apply(writes)

    def stored(self, actor: str) -> tuple[bool, int | None]:
        return actor in self.state.rows.maps, self.state.rows.wakes.get(actor)

    def names(self, start: str, limit: int) -> list[str]:
        return sorted(name for name in self.state.rows.maps if name > start)[:limit]

    def wakes(self, slots: Iterable[int], start: str, limit: int) -> list[tuple[str, int | None]]:
        wanted, rows = frozenset(slots), self.state.rows
        names = sorted(name for name in rows.maps if name > start and self.slot_of(name) in wanted)
        return [(name, rows.wakes.get(name)) for name in names[:limit]]

    def slot_of(self, name: str) -> int:
        if (slot := self._slots_of.get(name)) is None:
            slot = self._slots_of[name] = slot_of(name)
        return slot

    # ---- Who owns what -----------------------------------------------------------------------------

    def register(self, host: HostRow, ttl_s: float) -> None:
        """Enter a host. Whoever does it again, since no answer came, lengthens the lease; the dead stay dead."""
        known = self.state.leases.get(host.host)
        if known is None:
            self.state.leases[host.host] = _Lease(replace(host, state=HostState.UP), self.now_s() + ttl_s)
        elif known.row.state is not HostState.DEAD:
            known.until_s = self.now_s() + ttl_s

    def beat(self, host: str, ttl_s: float) -> Beat | None:
        lease = self.state.leases.get(host)
        if lease is None or lease.row.state is HostState.DEAD:
            return None
        lease.until_s = self.now_s() + ttl_s
        return Beat(lease.row.state, self.now_ms(), self.history)

    def hosts(self) -> list[HostRow]:
        now, owners = self.now_s(), self._owners()
        return [
            replace(
                lease.row,
                lease_left_ms=round((lease.until_s - now) * 1000),
                session_gone=bool(lease.row.session) and lease.row.session not in self.sessions,
            )
            for host, lease in self.state.leases.items()
            if lease.row.state is not HostState.DEAD or host in owners
        ]

    def _owners(self) -> set[str | None]:
        return {row.owner for row in self.state.slots}

    def drain(self, host: str) -> bool:
        lease = self.state.leases.get(host)
        if lease is None or lease.row.state is not HostState.UP:
            return False
        lease.row = replace(lease.row, state=HostState.DRAINING)
        return True

    def reap(self) -> list[str]:
        now = self.now_s()
        return [host for host, lease in self.state.leases.items() if lease.until_s < now and _die(lease)]

    def reap_without_session(self, host: str) -> bool:
        lease = self.state.leases.get(host)
        if lease is None or not lease.row.session or lease.row.session in self.sessions:
            return False
        return _die(lease)

    def forget(self, host: str) -> None:
        if host not in self._owners():
            self.state.leases.pop(host, None)

    def take(self, slots: Iterable[int], host: str) -> list[SlotRow]:
        """Take what nobody living owns. A slot that a statement under way holds is passed over."""
        taken = []
        for slot in sorted(set(slots)):
            row = self.state.slots[slot]
            if slot in self.locked or self._lives(row.owner):
                continue
            bases = (row.base_seq, *row.earlier_bases)[:BASES_KEPT] if row.epoch else ()
            self.state.slots[slot] = SlotRow(slot, host, row.epoch + 1, row.seq, row.seq, bases)
            taken.append(self.state.slots[slot])
        return taken

    def _lives(self, owner: str | None) -> bool:
        lease = None if owner is None else self.state.leases.get(owner)
        return lease is not None and lease.row.state is not HostState.DEAD

    def release(self, slots: Iterable[int], host: str) -> list[SlotRow]:
        released = [slot for slot in sorted(set(slots)) if self.state.slots[slot].owner == host]
        for slot in released:
            self.state.slots[slot] = replace(self.state.slots[slot], owner=None)
        return [self.state.slots[slot] for slot in released]

    # ---- Mail --------------------------------------------------------------------------------------

    def put_mail(self, mail: Sequence[Mail], most: int, oldest_ms: int) -> list[bool]:
        state, backlogs = self.state, {one.slot: one for one in self.backlogs()}
        # What an app wrote itself may stay for ever, and holds up nobody by its age.
        slow = {one.slot for one, at in state.mail.values() if one.sender and (self.now_s() - at) * 1000 > oldest_ms}
        kept: list[bool] = []
        for one in mail:
            there = one.op in state.mail or one.op in state.answers
            backlog = backlogs.get(one.slot)
            full = backlog is not None and (backlog.count >= most or one.slot in slow)
            kept.append(there or not full)
            if not there and not full:
                state.mail_seq += 1
                state.mail[one.op] = replace(one, seq=state.mail_seq), self.now_s()
                backlogs[one.slot] = MailBacklog(
                    one.slot, backlog.count + 1 if backlog else 1, backlog.oldest_ms if backlog else 0
                )
        return kept

    def take_mail(self, slots: Iterable[int], limit: int) -> list[Mail]:
        wanted, now = frozenset(slots), self.now_s()
        found = [
            replace(one, age_ms=max(0, round((now - at) * 1000)))
            for one, at in self.state.mail.values()
            if one.slot in wanted
        ]
        return sorted(found, key=lambda one: one.seq)[:limit]

    def end_mail(self, host: str, done: Sequence[tuple[Mail, bytes]]) -> list[Mail]:
        state, now = self.state, self.now_s()
        ended = [
            (mail, answer) for mail, answer in done if mail.op in state.mail and state.slots[mail.slot].owner == host
        ]
        for mail, answer in ended:
            del state.mail[mail.op]
            state.answers[mail.op] = answer, now
        for op in [op for op, (_, at) in state.answers.items() if at < now - ANSWERS_KEPT_S]:
            del state.answers[op]
        return [mail for mail, _ in ended]

    def answers(self, ops: Iterable[str]) -> dict[str, bytes]:
        return {op: self.state.answers[op][0] for op in ops if op in self.state.answers}

    def backlogs(self) -> list[MailBacklog]:
        now, found = self.now_s(), dict[int, list[float]]()
        for one, at in self.state.mail.values():
            found.setdefault(one.slot, []).append(at)
        return [
            MailBacklog(slot, len(ats), max(0, round((now - min(ats)) * 1000))) for slot, ats in sorted(found.items())
        ]

    def hint(self, hosts: Sequence[str], late_s: Mapping[Connected, float | None] | None = None) -> None:
        """Wake these hosts, or all; `late_s` says for whom the hint is late, or lost (None)."""
        loop = asyncio.get_running_loop()
        for connection in self.connections:
            late = 0.0 if late_s is None else late_s.get(connection, 0.0)
            if late is not None and (not hosts or connection.host in hosts):
                loop.call_later(late, connection.hinted, context=self.context)

    def when_free(self, slots: Iterable[int], then: Callable[[], None]) -> bool:
        """Return whether no statement under way holds one of these slots; else call back when one has ended."""
        for slot in slots:
            if (locked := self.locked.get(slot)) is not None:
                locked.add_done_callback(lambda _: then(), context=self.context)
                return False
        return True


def _die(lease: _Lease) -> bool:
    if lease.row.state is HostState.DEAD:
        return False
    lease.row = replace(lease.row, state=HostState.DEAD)
    return True
