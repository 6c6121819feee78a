"""The seam of providers whose store several hosts share: where an actor is, and mail to it. No engine is imported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from tocsin.storage.api import StoreProvider


@dataclass(frozen=True, slots=True)
class Located:
    """The place of an actor, as far as this host knows. Neither `here` nor a `host`: nobody owns it at present, or this
    host does not reach the store and cannot know."""

    here: bool
    host: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host of a shared store, as `/status` shows it."""

    host: str
    name: str
    url: str | None
    state: str
    lease_left_ms: int
    slots: int
    """Number of slots that it owns."""
    weight: int = 1


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A shared store as this host sees it."""

    host: str
    hosts: Sequence[HostFacts]
    unowned: int
    """Number of slots without a living owner."""
    mail: int
    """Number of calls that wait in the store for their actor's owner."""
    oldest_mail_ms: int
    beat_ms: int
    """The time since the last sign of life of this host was accepted."""


@dataclass(slots=True)
class SharedCounts:
    """The numbers of what this process met since it started, for metrics."""

    taken: int = 0
    """Slots that it took."""
    handed_over: int = 0
    """Slots that it released in order, to another host or because it stops."""
    lost: int = 0
    """Slots that were taken from it: it was declared dead, or an operator released them."""
    fenced: int = 0
    """Commits that were refused, because another host owned the slot."""
    rolled_back: int = 0
    """Slots whose rows were found older than what this host had committed."""
    commits_lost: int = 0
    """Commits that had been accepted and were missing in those."""
    reaped: int = 0
    """Hosts that it declared dead."""
    died: int = 0
    """Times that it was declared dead itself, and started again as another host."""
    mail_sent: int = 0
    mail_done: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A call that came by mail for an actor of this host. `op` names it: it may come again until it is ended."""

    op: str
    actor: str
    body: bytes
    sender: str
    slot: int
    seq: int


class Mailbox(Protocol):
    """Calls to actors whose owner is not reached: kept in the store until they are done, once each."""

    async def send(self, actor: str, op: str, body: bytes) -> None:
        """Keep a call durably. A second time with the same `op` changes nothing. OverloadedError with `retryAfterMs`
        where too much waits already; StoreUnavailable."""
        ...

    async def bring(self, one: Arrived) -> None:
        """Keep a call that lay in the mail of another store, with whoever sent it. Raises as `send` does."""
        ...

    async def answer(self, op: str, wait_s: float) -> bytes | None:
        """Return the answer to a call of this host; None if it has not come in this time."""
        ...

    def arrivals(self) -> AsyncIterator[Sequence[Arrived]]:
        """Yield calls for actors of this host, the oldest of each actor first. What is not ended comes again."""
        ...

    async def end(self, done: Sequence[tuple[Arrived, bytes]]) -> None:
        """Note that these calls were done, with their answers. Nothing happens for those that this host does not own
        any more: their owner gets them, and finds by `op` that they were done."""
        ...


@runtime_checkable
class SharedProvider(StoreProvider, Protocol):
    """A `StoreProvider` whose store has several hosts. `open` raises StoreLocked for actors that this host does not
    own; commits raise Fenced or RolledBack, and `events` yields Lost, when it owned them and does no more."""

    mailbox: Mailbox
    counts: SharedCounts

    def locate(self, name: str) -> Located:
        """Return where an actor is, from memory. `here` only while this host's lease is good for certain."""
        ...

    def is_host(self, host: str) -> bool:
        """Return whether a living host of this store has that id, from memory. A copy of the store has others, which
        know the same secret: nobody may do for them what belongs into their store."""
        ...

    @property
    def has_others(self) -> bool:
        """Return whether other hosts of this store are up, from memory."""
        ...

    @property
    def lease_good(self) -> bool:
        """Return whether this host's lease is good for certain. Without it `locate` says `here` of no actor, and
        nothing is begun."""
        ...

    async def relocated(self, name: str, since: Located, wait_s: float) -> Located:
        """Return where an actor is as soon as that is another place than `since`, or at the end of this time."""
        ...

    @property
    def secret(self) -> bytes:
        """The secret that the hosts of this store share, after `start`."""
        ...

    def announce(self, url: str | None, weight: int = 1) -> None:
        """Say where other hosts reach this one, and its share of the slots. To be called before `start`."""
        ...

    def announce_rules(self, rules: str) -> None:
        """Say by which rules this host assigns instances to stores: others see it at the end of its name. To be called
        before `start`."""
        ...

    @property
    def store_ms(self) -> int | None:
        """Return the time of the store's clock now, ms since the epoch, as the last beats tell; None before the first.
        Whoever has a clock of their own sees by it how far that one is off."""
        ...

    @property
    def clocks_differ_ms(self) -> int:
        """Return by how much `store_ms` of two hosts may differ at most: nobody knows how long each way of a sign of
        life took."""
        ...

    async def facts(self) -> StoreFacts: ...

    async def hand_over(self) -> None:
        """Let go of all slots at once, and take no more: `events` yields Leaving for them. Returns when each is
        released, or lost. Reads, mail and calls to other hosts go on until `stop`."""
        ...

    async def drain_host(self, host: str) -> bool:
        """Have a host let go of all that it owns; False if there is none that is up."""
        ...

    async def release_slots(self, slots: Sequence[int]) -> Sequence[int]:
        """Take slots away from their owners, whoever they are, for an operator; return which had one."""
        ...


def shared_of(provider: StoreProvider) -> SharedProvider | None:
    """Return the provider if several hosts share its store, else None."""
    return cast(SharedProvider, provider) if provider.capabilities.shared else None
