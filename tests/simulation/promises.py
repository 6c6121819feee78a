"""The promises of the contract, watched from outside: at the network, at the disk, and at the callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.schedules import Watched
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.scheduler.model.rows import LeaseRow, PoolRow, decode, job_key, lease_key, pool_key, split_line_tail
from tocsin.actors.testing import VirtualClock
from tocsin.storage.api import after
from tocsin.storage.memory import MemoryProvider


@dataclass(slots=True)
class Wish:
    """What a caller asked for, and what it was told."""

    n: int
    id: str
    due: int
    pool: str | None
    expires: int | None
    may_die: bool
    """May end dead: its budget is small, or the receiver may refuse it for good."""
    accepted: bool = False
    cancelled: bool = False
    swept: bool = False
    """A bulk action has cancelled it, and no undo has put it back."""
    unsure: bool = False
    """Its caller heard an error: it may be there or not."""


@dataclass(slots=True)
class Run:
    """An attempt as the receiver sees it."""

    lease: str
    ends: int
    running: int = 1
    answered: bool = False
    """One copy of it has said how it ended; another one, doubled by the network, may still run."""
    accepted: bool = False
    """Only its worker is left; whether its lease lives says the disk (the host may never have heard of it)."""


@dataclass(slots=True)
class Promises:
    """Notes every broken one; the run fails at its end at the latest."""

    disk: Watched
    clock: VirtualClock
    wishes: dict[int, Wish] = field(default_factory=dict)
    delivered: Counter[int] = field(default_factory=Counter)
    done: set[int] = field(default_factory=set)
    """On disk, as its holder has said; who may not have heard that it was booked."""
    leases: dict[str, set[str]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    untils: dict[str, int] = field(default_factory=dict)
    """When each lease ends, as it stood when its callback left."""
    names: dict[int, str] = field(default_factory=dict)
    """Webhook ids, by the numbers of wishes."""
    crashes: int = 0
    paused_since: int | None = None
    """Since when pool a was surely paused."""
    lowered: set[str] = field(default_factory=set)
    """Pools whose cap was lowered in this run: holders may finish."""
    broken: list[str] = field(default_factory=list)
    late: bool = False
    """Hosts stand still in this run: what they were about to send leaves when they go on."""
    slack_ms: int = 0
    """Clocks of hosts are so far apart."""
    steps: bool = False
    """The wall clock steps in this run: instants are no measure."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the host an assertion would be taken for a fault of the network: keep it for the end."""
        try:
            yield
        except AssertionError as error:
            self.broken.append(str(error))
            raise

    # ---- At the sender ---------------------------------------------------------------------------

    def sent(self, headers: Mapping[str, str], content: Mapping[str, Any]) -> None:
        """A callback is about to leave the host."""
        job_id, lease, webhook_id = content["id"], content["lease"], headers["webhook-id"]
        row = self.disk.rows_now.get(lease_key(job_id, lease))
        if row is None and self.late and lease in self.disk.pulled.durable:
            return  # its host stood still between the commit and this, and the lease has ended
        assert row is not None, f"job {job_id} was sent before its lease was on disk"
        if not self.steps:
            assert self.clock.now_ms() + self.slack_ms >= content["scheduledFor"], f"job {job_id} was sent early"
        held = decode(LeaseRow, lease_key(job_id, lease), row)
        assert self.crashes or not held.at.losses, f"job {job_id} counts a lost host, and none was lost"
        self.untils[lease] = held.until
        if not self.steps:
            deadline = int(headers["tocsin-deadline"])
            assert held.until >= deadline, f"the lease of {job_id} ends before its deadline"
        if "schedule" in content:
            self.disk.schedules.sent(content, webhook_id)
        else:
            self._sent_wish(self.wishes[content["args"]["n"]], held, webhook_id)
        self._count_slots(content.get("pool"))
        assert content["attempt"] > self.attempts.get(webhook_id, 0), f"attempt of {job_id} repeats"
        self.attempts[webhook_id] = content["attempt"]
        self.leases.setdefault(webhook_id, set()).add(lease)

    def must_be_operated(self, operated: bool, wish: Wish) -> None:
        if not operated:
            self.broken.append(f"job {wish.n} was cancelled in bulk, and nobody asked for that")

    def _sent_wish(self, wish: Wish, held: LeaseRow, webhook_id: str) -> None:
        known = self.names.setdefault(wish.n, webhook_id) if wish.n else webhook_id
        assert known == webhook_id, f"job {wish.n} got another name: {webhook_id}"
        assert not wish.cancelled, f"job {wish.n} was sent after its cancel was answered"
        if self.paused_since is not None and wish.pool == "a" and not self.steps:
            assert held.started <= self.paused_since, f"job {wish.n} started in a paused pool"

    def _count_slots(self, pool: str | None) -> None:
        if pool is None:
            return
        rows = self.disk.rows_now
        row = rows.get(pool_key(pool))
        cap = decode(PoolRow, b"", row).cap if row else 1
        leases = rows.range(b"lease/", after(b"lease/"), 10_000, False)
        held = sum(decode(LeaseRow, key, value).pool == pool for key, value in leases)
        assert held <= cap or pool in self.lowered, f"{held} slots of {pool} are held, its cap is {cap}"

    # ---- At the receiver -------------------------------------------------------------------------

    def arrived(self, webhook_id: str, job_id: str, lease: str) -> Run:
        """Two attempts of one job may not be alive inside one lease."""
        if lease not in self.untils:
            return Run(lease, 0)  # it left late
        runs = self.runs.setdefault(webhook_id, [])
        for other in runs:
            if other.lease != lease and other.running and not self.steps:
                late = self.clock.now_ms() + self.slack_ms >= other.ends
                held = self.disk.rows_now.get(lease_key(job_id, other.lease)) is not None
                assert late or ((other.accepted or other.answered) and not held), (
                    f"{webhook_id}: a second attempt inside the lease of the first"
                )
        for same in runs:
            if same.lease == lease:
                same.running += 1
                return same
        run = Run(lease, self.untils[lease])
        runs.append(run)
        return run

    # ---- At the callers --------------------------------------------------------------------------

    def accepted(self, wish: Wish) -> None:
        wish.accepted = True
        on_disk = self.disk.rows_now.get(job_key(wish.id)) is not None
        went = self.delivered[wish.n] or wish.n in self.done or self._gone(wish)
        assert on_disk or went or self._expired(wish), f"job {wish.n} was accepted and is not on disk"

    def _gone(self, wish: Wish) -> bool:
        cancelled = wish.cancelled or wish.swept
        return cancelled or wish.may_die or (wish.expires is not None and wish.expires <= self.clock.now_ms())

    def _expired(self, wish: Wish) -> bool:
        """Whether its history says that it expired: a clock that was ahead meanwhile may be back."""
        rows = self.disk.rows_now.range(b"hist/", after(b"hist/"), 10_000, False)
        return any(f"/{wish.id}/".encode() in key and key.endswith(b"-expired") for key, _ in rows)

    def instants_ahead(self) -> Iterator[int]:
        """When what is on disk is to go on: a clock that was ahead may have put it far away."""
        rows = self.disk.rows_now
        for key, value in rows.range(b"lease/", after(b"lease/"), 10_000, False):
            yield decode(LeaseRow, key, value).until
        for key, _ in rows.range(b"line/", after(b"line/"), 10_000, False):
            yield split_line_tail(key)[0]

    # ---- At the end ------------------------------------------------------------------------------

    async def rows_are_sound(self) -> None:
        """At any instant, a crash included."""
        provider = MemoryProvider(self.disk.whole)
        await provider.start()
        faults = await check(provider.view(self.disk.name), self.disk.whole.wakes.get(self.disk.name))
        await provider.stop()
        assert faults == [], faults

    async def hold(self, *, calm: bool) -> None:
        """After the storm: everything accepted ended well, nothing is left over, the rows are sound."""
        assert self.broken == [], self.broken
        await self.rows_are_sound()
        provider = MemoryProvider(self.disk.whole)
        await provider.start()
        view = provider.view(self.disk.name)
        for wish in self.wishes.values():
            if wish.accepted and not self.delivered[wish.n] and wish.n not in self.done:
                assert self._gone(wish) or await self._dead(provider, wish), f"job {wish.n} was lost"
            if calm and wish.accepted and not wish.may_die:
                assert self.delivered[wish.n] <= 1, f"job {wish.n} came {self.delivered[wish.n]} times in good weather"
        for family in (b"line/", b"lines/", b"lease/", b"at/", b"bad/"):
            left = await view.scan(family, after(family), limit=5)
            assert left == [], f"left over: {left}"
        timers = await view.scan(b"timer/", after(b"timer/"), limit=50)
        kept = (
            b"/history/",
            b"/retire/",
            b"/cron/",
            b"/cronforget/",
            b"/result/",
            b"/audit/",
            b"/undo/",
        )  # of what has ended; the invariants know whom they serve
        assert all(any(kind in key for kind in kept) for key, _ in timers), f"left over: {timers}"
        jobs = await view.scan(b"job/", after(b"job/"), limit=10_000)
        dead = await view.scan(b"dead/", after(b"dead/"), limit=10_000)
        assert len(jobs) == len(dead), "a job is neither dead nor gone"
        await provider.stop()

    async def _dead(self, provider: MemoryProvider, wish: Wish) -> bool:
        return bool(await provider.view(self.disk.name).get([b"dead/" + wish.id.encode()]))
