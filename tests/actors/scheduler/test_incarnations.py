"""Receivers know jobs by `webhook-id`, whatever instance, host or store has sent them: no two share one."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SECRET
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.model.rows import JobRow, decode, encode, job_key
from tocsin.actors.testing import VirtualClock, simulate
from tocsin.dispatch.receiver.received import Received
from tocsin.dispatch.receiver.receiver import Receiver
from tocsin.dispatch.testing import SimNetwork
from tocsin.storage.memory import MemoryDisk, MemoryProvider

INSTANCES = ("a", "b", "c")
NEVER_USED_BEFORE = re.compile(r"[0-9a-z]{12,}-[1-9][0-9]*")


class Side:
    """One receiver, which remembers what it has done; and hosts that send to it, one after the other."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = VirtualClock()
        self.runs: Counter[tuple[str, str]] = Counter()
        """By instance and id of jobs."""
        self.jobs: list[Received] = []
        self.receiver = Receiver([SECRET], clock=self.clock)
        self.receiver.register({"mail:welcome": self._run, "report": self._run})

    async def _run(self, args: Any, job: Received) -> None:
        self.runs[job.instance, job.id] += 1
        self.jobs.append(job)

    def host(self, disk: MemoryDisk, random: Random | None = None) -> ActorHost:
        chance = random or self.random
        return ActorHost.open(
            MemoryProvider(disk), origin="https://receiver.example", secrets=[SECRET],
            transport=SimNetwork(self.receiver.handle, chance), clock=self.clock, random=chance,
        )  # fmt: skip

    async def welcome(self, host: ActorHost, instance: str = "a") -> None:
        """One job, always of the same id, until it is booked."""
        jobs = host.scheduler(instance)
        await jobs.run_after(0, "mail:welcome", {}, id="welcome-mail")
        await self.clock.sleep(20)
        assert await jobs.get("welcome-mail") is None, "it has not ended"
        [end] = [one.outcome for one in await jobs.history("welcome-mail")][-1:]
        assert end == "done"


def on_side(test: Callable[[Side], Coroutine[Any, Any, None]]) -> None:
    async def main(random: Random) -> None:
        side = Side(random)
        await test(side)
        await side.receiver.aclose(0)

    for seed in range(3):
        simulate(seed, main)


def test_jobs_of_one_id_in_three_instances_are_run_three_times_by_one_receiver() -> None:
    async def act(side: Side) -> None:
        async with side.host(MemoryDisk()) as host:
            for instance in INSTANCES:
                await side.welcome(host, instance)
        assert side.runs == {(instance, "welcome-mail"): 1 for instance in INSTANCES}

    on_side(act)


def test_schedules_of_one_name_in_three_instances_all_run_at_one_receiver() -> None:
    async def act(side: Side) -> None:
        async with side.host(MemoryDisk()) as host:
            for instance in INSTANCES:
                await host.scheduler(instance).schedules.put("report", cron="* * * * *", path="report")
            await side.clock.sleep(3 * 60 + 20)
            for instance in INSTANCES:
                found = await host.scheduler(instance).schedules.occurrences("report")
                assert [one.state for one in found.occurrences] == ["fired"] * 3
        assert len(side.runs) == 9 and set(side.runs.values()) == {1}

    on_side(act)


def test_a_store_made_anew_is_not_taken_for_the_one_before() -> None:
    async def act(side: Side) -> None:
        for _ in range(3):
            async with side.host(MemoryDisk()) as host:
                await side.welcome(host)
        assert side.runs["a", "welcome-mail"] == 3

    on_side(act)


def test_a_store_restored_from_a_copy_is_not_taken_for_what_came_after_the_copy() -> None:
    async def act(side: Side) -> None:
        disk = MemoryDisk()
        async with side.host(disk) as host:
            await side.welcome(host)
        for _ in range(3):
            restored = copy.deepcopy(disk)
            async with side.host(restored) as host:
                await side.welcome(host)
        assert side.runs["a", "welcome-mail"] == 4

    on_side(act)


def test_a_job_that_stood_in_the_copy_is_known_again() -> None:
    async def act(side: Side) -> None:
        disk = MemoryDisk()
        async with side.host(disk) as host:
            await host.scheduler("a").run_after(60, "mail:welcome", {}, id="welcome-mail")
        for _ in range(2):
            async with side.host(copy.deepcopy(disk)):
                await side.clock.sleep(100)
        assert side.runs["a", "welcome-mail"] == 1

    on_side(act)


def test_fences_grow_over_stores_that_are_made_anew_or_restored() -> None:
    """A receiver that refuses lower ones than it has seen would refuse all that comes of them."""

    async def act(side: Side) -> None:
        disk = MemoryDisk()
        copies = []
        for _ in range(3):
            copies.append(copy.deepcopy(disk))
            async with side.host(disk) as host:
                await side.welcome(host)
        for made in (*copies, MemoryDisk()):
            async with side.host(made) as host:
                await side.welcome(host)
        fences = [job.fence for job in side.jobs]
        assert len(fences) == 7 and fences == sorted(set(fences))

    on_side(act)


def test_fences_grow_within_a_second_and_when_the_clock_steps_back() -> None:
    async def act(side: Side) -> None:
        disk = MemoryDisk()
        for ms in (0, -3_600_000, 0, -86_400_000):
            side.clock.step(ms)
            for _ in range(2):
                async with side.host(disk) as host:
                    jobs, seen = host.scheduler("a"), len(side.jobs)
                    await jobs.run_after(0, "mail:welcome", {}, id="quick")
                    while len(side.jobs) == seen:
                        await side.clock.sleep(0.1)
        fences = [job.fence for job in side.jobs]
        assert len(fences) == 8 and fences == sorted(set(fences))

    on_side(act)


def test_a_job_of_an_older_program_keeps_its_webhook_id() -> None:
    async def act(side: Side) -> None:
        disk = MemoryDisk()
        async with side.host(disk) as host:
            await host.scheduler("a").run_after(60, "mail:welcome", {}, id="welcome-mail")
        rows, key = disk.maps["scheduler/a"], job_key("welcome-mail")
        row = decode(JobRow, key, rows.get(key) or b"")
        rows.apply(
            {key: encode(JobRow(**{**{n: getattr(row, n) for n in row.__struct_fields__}, "incarnation": "7-3"}))}
        )
        async with side.host(disk):
            await side.clock.sleep(100)
        assert [job.webhook_id for job in side.jobs] == ["welcome-mail:7-3"]

    on_side(act)


async def _made(host: ActorHost, name: str = "a") -> tuple[str, str]:
    """The incarnation of its first job, and the lease under which a worker gets it."""
    jobs = host.scheduler(name)
    await jobs.run_after(0, "mail:welcome", {}, id="welcome-mail", queue="q")
    [claimed] = await jobs.claim("q")
    return claimed.incarnation, claimed.lease


@pytest.mark.anyio
@pytest.mark.parametrize("seeded", [False, True], ids=["chance of the system", "equal seeds"])
async def test_hosts_in_processes_of_their_own_share_no_names(tmp_path: Path, seeded: bool) -> None:
    """What a host has by default no fork can copy; hosts with equal seeds are told apart by their stores' owners."""
    incarnations: set[str] = set()
    for n in range(4):
        url = f"sqlite:///{tmp_path}/{n}.db"
        async with ActorHost.open(url, random=Random(1) if seeded else None) as host:
            assert seeded or isinstance(host.runtime.random, SystemRandom)
            incarnations.add((await _made(host))[0])
    assert len(incarnations) == 4
    assert all(NEVER_USED_BEFORE.fullmatch(one) for one in incarnations)


@pytest.mark.anyio
async def test_no_two_activations_share_names(tmp_path: Path) -> None:
    """Neither two schedulers of a host, nor one scheduler before and after a restart."""
    names: set[str] = set()
    for _ in range(2):
        async with ActorHost.open(f"sqlite:///{tmp_path}/s.db", random=Random(1)) as host:
            for name in ("a", "b"):
                jobs = host.scheduler(name)
                await jobs.run_after(60, "mail:welcome", {}, id="first", on_conflict="replace", queue="q")
                await jobs.run_after(60, "mail:welcome", {}, id="second", on_conflict="replace", queue="q")
                records = [await jobs.get("first"), await jobs.get("second")]
                names |= {record.incarnation for record in records if record}
    assert len(names) == 8


@pytest.mark.anyio
async def test_a_lease_cannot_be_guessed_from_others() -> None:
    """Of stores made alike the first leases have their sequence in common, and nothing that chance gives."""
    leases = []
    for _ in range(8):
        async with ActorHost.open("memory:") as host:
            leases.append((await _made(host))[1].split("."))
    assert len({seq for _, seq, _ in leases}) == 1
    secret = [chance for _, _, chance in leases]
    assert len(set(secret)) == 8 and all(re.fullmatch("[0-9a-f]{24}", one) for one in secret)
    assert all(len(set(column)) > 1 for column in zip(*secret, strict=True)), "a digit that is always the same"
