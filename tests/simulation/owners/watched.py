"""A shared disk that watches: who writes on what, who is declared dead and why, and what a roll-back loses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import Held, HostRow
from tocsin.storage.shared_disk import SharedDisk, SharedState

N, OP = b"n", b"op/"


@dataclass
class Ledger:
    """Notes what was promised, and each promise that was broken."""

    broken: list[str] = field(default_factory=list)
    applied: set[bytes] = field(default_factory=set)
    """Keys of operations that were ever in the store."""
    acknowledged: dict[bytes, str] = field(default_factory=dict)
    """By operation: which actor's."""
    refused: dict[bytes, str] = field(default_factory=dict)
    """By operation: the error of which its caller was told."""
    lost: set[bytes] = field(default_factory=set)
    """Operations that a roll-back has undone."""

    def must(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(what)


BRIEFLY_S = 0.6
"""Whoever looks twice may see nothing of a lock that is held for so long between the looks."""


class _Sessions(dict[int, object]):
    """Knows since when each lock is free, or was held only briefly."""

    def __init__(self) -> None:
        super().__init__()
        self.free_since: dict[int, float] = {}
        self.held_since: dict[int, float] = {}

    def setdefault(self, session: int, connection: object) -> object:  # type: ignore[override]
        if session not in self:
            self.held_since[session] = asyncio.get_running_loop().time()
        return super().setdefault(session, connection)

    def __delitem__(self, session: int) -> None:
        super().__delitem__(session)
        now = asyncio.get_running_loop().time()
        if session not in self.free_since or now - self.held_since.get(session, 0.0) > BRIEFLY_S:
            self.free_since[session] = now


class WatchedDisk(SharedDisk):
    """Looks at each statement before it is done."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.sessions = _Sessions()  # type: ignore[assignment]  # a dict of the same
        self.may_be_reaped: Callable[[str], bool] = lambda host: True
        """Whether something has happened to this host by which its lease may have ended."""
        self.least_look_s = 0.0
        self.note: Callable[[str], None] = lambda what: None

    def apply(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> None:
        for said in held:
            row = self.state.slots[said.slot]
            same = (row.owner, row.epoch, row.seq) == (owner, said.epoch, said.seq)
            self.ledger.must(same, f"slot {said.slot} is {row}, and was written as {said} of {owner}")
        for one in writes:
            old = self.count(one.name)
            ops = [key for key in one.rows if key.startswith(OP)]
            if (new := one.rows.get(N)) is not None:
                right = int(new) == old + len(ops)
                self.ledger.must(right, f"{one.name} is {old}, and becomes {int(new)} by {len(ops)} operations")
            self.ledger.applied.update(ops)
            self.ledger.lost.difference_update(ops)  # not answered before the roll-back, and sent again
        super().apply(owner, held, writes)

    def count(self, name: str) -> int:
        rows = self.state.rows.maps.get(name)
        return int((rows.get(N) if rows is not None else None) or b"0")

    def operations(self, names: Iterable[str]) -> set[bytes]:
        maps = self.state.rows.maps
        return {key for name in names if name in maps for key, _ in maps[name].range(OP, b"op0", 1_000_000, False)}

    def register(self, host: HostRow, ttl_s: float) -> None:
        super().register(host, ttl_s)
        self.note(f"{host.host[:6]} is entered")

    def drain(self, host: str) -> bool:
        drained = super().drain(host)
        self.note(f"{host[:6]} drains: {drained}")
        return drained

    def reap(self) -> list[str]:
        reaped = super().reap()
        for host in reaped:
            self.note(f"{host[:6]} is declared dead by its lease")
            self.ledger.must(self.may_be_reaped(host), f"{host} was well, and was declared dead by its lease")
        return reaped

    def reap_without_session(self, host: str) -> bool:
        lease = self.state.leases.get(host)
        if not super().reap_without_session(host):
            return False
        assert lease is not None and isinstance(self.sessions, _Sessions)
        self.note(f"{host[:6]} is declared dead by its session")
        gone = asyncio.get_running_loop().time() - self.sessions.free_since.get(lease.row.session, 0.0)
        self.ledger.must(gone >= self.least_look_s, f"{host} was declared dead {gone:g} s after its session was seen")
        return True

    def roll_back(self, state: SharedState) -> None:
        before = self.operations(list(self.state.rows.maps))
        super().roll_back(state)
        self.ledger.lost |= before - self.operations(list(self.state.rows.maps))

    def go_away(self) -> None:
        super().go_away()
        self.sessions = _Sessions()  # type: ignore[assignment]
