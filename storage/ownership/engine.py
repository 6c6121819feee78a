"""The seam of engines that several hosts share: rows behind a fence, and the tables that say who owns what.

An engine does single statements and decides nothing. When a host beats, takes, gives up or declares another one dead is
decided in this room, once, for every engine. All instants that matter are those of the engine's own clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final, Protocol

from tocsin.storage.api import Range, Row
from tocsin.storage.combiner import ActorWrites

SLOTS: Final = 4096
"""Parts of a store, each owned by one host at a time. Fixed for the life of a store: names are hashed to them."""


def slot_of(name: str) -> int:
    """Return the slot of an actor. It never changes: it is part of the layout."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % SLOTS


class HostState(StrEnum):
    """The state of a host, as the store knows it."""

    UP = "up"
    DRAINING = "draining"
    """The host stops: it is given nothing more, and lets go of what it has."""
    DEAD = "dead"
    """The host was declared dead, for good. A process that finds itself dead starts again as another host."""


@dataclass(frozen=True, slots=True)
class HostRow:
    """One start of one process. `host` is its random id (32 hex digits), never used again."""

    host: str
    name: str
    """Computer and process, for people."""
    url: str | None = None
    """The address at which other hosts reach it; None: by mail only."""
    weight: int = 1
    """Its share of the slots; 0: it owns none while there are others, and only calls."""
    state: HostState = HostState.UP
    lease_left_ms: int = 0
    """Time until its lease ends; below 0: it has ended."""
    session: int = 0
    """The lock that its session holds, by which others notice that it ended; 0: none."""
    session_gone: bool = False
    """True if nobody holds that lock: the process has ended, or has lost that connection. Always False where an engine
    cannot tell."""


@dataclass(frozen=True, slots=True)
class SlotRow:
    """Owner record, fencing token and commit number of one slot."""

    slot: int
    owner: str | None
    epoch: int
    """Grows by one each time that a host takes the slot."""
    seq: int
    """Grows by one with each commit."""
    base_seq: int = 0
    """The `seq` at the time that it was taken last: a commit of the owner before that was under way tells by it whether
    it was applied."""
    earlier_bases: tuple[int, ...] = ()
    """The `base_seq` of the times before that, the latest first, as many as the engine keeps."""

    def seq_after(self, epoch: int) -> int | None:
        """Return the commit number at which that epoch is, or ended; None if the row does not tell."""
        if epoch == self.epoch:
            return self.seq
        bases = (self.base_seq, *self.earlier_bases)
        back = self.epoch - epoch - 1  # the take that ended that epoch is so many takes back
        return bases[back] if 0 <= back < len(bases) else None

    def lacks(self, said: Held) -> bool:
        """Return whether the store went back: this row, which was read later, is older than what its owner knew."""
        seq = self.seq_after(said.epoch)
        return self.epoch < said.epoch or (seq is not None and seq < said.seq)


@dataclass(frozen=True, slots=True)
class Held:
    """A slot as its owner knows it: what a commit says of it, and what must still be so for the commit to count."""

    slot: int
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a sign of life. None in its place: this host was declared dead."""

    state: HostState
    now_ms: int
    """The time of the store's clock, ms since the epoch."""
    history: str = ""
    """Another one once the store went on from a copy that may lack the last commits: read the slots again. Empty where
    the store does not tell."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A call for an actor of another host, kept in the store until it is done. `op` names the call (32 hex digits):
    whoever does it twice must find by that name that it was done."""

    slot: int
    seq: int
    """Its place; 0 before it is stored. Places become visible in any order."""
    op: str
    actor: str
    body: bytes
    sender: str
    """The host that waits for the answer."""
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class MailBacklog:
    """The mail that waits in one slot."""

    slot: int
    count: int
    oldest_ms: int


class Unsettled(Exception):
    """Raised by `commit` where nobody can say what became of the statement: `__cause__` says how it broke off."""


class SharedEngine(Protocol):
    """One connection of this process to a store that several hosts share. Every call may raise StoreUnavailable; what
    it asked for may be done all the same, except by `commit`, which raises Unsettled then.

    Statements of this host that were cancelled or cut off may still be under way in the store; `settle` waits for those
    that hold their slots. One that still lies in some buffer is begun later, and then the fence decides: it counts if
    owner, epoch and `seq` are as it says. Until then the commit may be sent again as it was, not given up.
    """

    @property
    def place(self) -> str:
        """Return the place of the store, for people: without a password."""
        ...

    @property
    def session_lost_at(self) -> float | None:
        """Return the event loop's time at which the connection that holds the session lock was found to be broken; None
        while the lock is held, and where there is none. From then on others may declare this host dead before its lease
        ends."""
        ...

    @property
    def session_held_at(self) -> float:
        """Return the event loop's time at which the session lock was taken last; minus infinity before, and where there
        is none. Others may have declared this host dead until then: only a sign of life that was sent later tells."""
        ...

    async def open(self) -> None:
        """Connect, and check the layout. StoreSchema, StoreUnavailable."""
        ...

    async def close(self) -> None: ...

    async def secret(self) -> bytes:
        """Return the secret of this store, by which its hosts know each other. Whoever may read the store knows it."""
        ...

    # ---- Rows --------------------------------------------------------------------------------------

    async def commit(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> set[int]:
        """Apply all writes and add 1 to the `seq` of each slot, if this owner has each of them exactly as said.

        `held` names the slots of `writes`, once each, in ascending order. Returns the slots that were as said: all of
        them, and all is durable; or fewer, and nothing was written. Raises Unsettled if it is not known; any StoreError
        if nothing was written. One commit of a slot is under way at a time.
        """
        ...

    async def settle(self, slots: Sequence[int]) -> list[SlotRow]:
        """Read these slots once no statement holds them any more."""
        ...

    async def get(self, actor: str, keys: Sequence[bytes]) -> dict[bytes, bytes]: ...

    async def scan_many(self, actor: str, ranges: Sequence[Range], max_bytes: int, reverse: bool) -> list[list[Row]]:
        """Read as `StoreView.scan_many` says."""
        ...

    async def stored(self, actor: str) -> tuple[bool, int | None]:
        """Return whether the actor exists, and its wake time."""
        ...

    async def names(self, start: str, limit: int) -> list[str]: ...

    def wakes(self, slots: Sequence[int]) -> AsyncIterator[Sequence[tuple[str, int | None]]]:
        """Yield the actors of these slots with their wake times, in pages."""
        ...

    # ---- Who owns what -----------------------------------------------------------------------------

    async def register(self, host: HostRow, ttl_s: float) -> None:
        """Enter this host, with a lease of so long. Takes its session lock where `session` names one. May be done again
        if no answer came; it raises nobody from the dead."""
        ...

    async def beat(self, host: str, ttl_s: float) -> Beat | None:
        """Lengthen the lease; None if this host was declared dead, or is not known."""
        ...

    async def hosts(self) -> list[HostRow]:
        """Return the hosts, dead ones too as long as they own slots."""
        ...

    async def drain(self, host: str) -> bool:
        """Mark a host as one that stops; False if it is not up."""
        ...

    async def reap(self) -> list[str]:
        """Declare dead whose lease has ended; return who."""
        ...

    async def reap_without_session(self, host: str) -> bool:
        """Declare a host dead if nobody holds its session lock any more; return whether."""
        ...

    async def forget(self, host: str) -> None:
        """Remove a host that owns nothing."""
        ...

    async def slots(self) -> list[SlotRow]: ...

    async def take(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        """Make this host the owner of those of the slots that have none, or a dead one; return them."""
        ...

    async def release(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        """Leave those of the slots that this host owns without an owner; return them, as they are then."""
        ...

    # ---- Mail and hints ----------------------------------------------------------------------------

    async def put_mail(self, mail: Sequence[Mail], most: int, oldest_ms: int) -> list[bool]:
        """Keep mail durably; False for each whose slot has `most` of it already, or a call of a host that is older than
        `oldest_ms`: what an app wrote may stay for ever. Mail whose `op` is in the store already counts as kept."""
        ...

    async def take_mail(self, slots: Sequence[int], limit: int) -> list[Mail]:
        """Read the oldest mail of these slots, which stays until it is ended."""
        ...

    async def end_mail(self, host: str, done: Sequence[tuple[Mail, bytes]]) -> list[Mail]:
        """Replace mail by its answer, kept for some minutes, where this host still owns the slot; return which."""
        ...

    async def answers(self, ops: Sequence[str]) -> dict[str, bytes]:
        """Return the answers to mail that there are, by `op`."""
        ...

    async def backlogs(self) -> list[MailBacklog]: ...

    async def hint(self, hosts: Sequence[str]) -> None:
        """Wake these hosts, or all if none is named. A hint may be lost: nothing may depend on it."""
        ...

    def hints(self) -> AsyncIterator[None]:
        """Yield when a hint for this host, or for all, has come, and when some may have been missed because that
        connection was broken. Ends at `close`."""
        ...
