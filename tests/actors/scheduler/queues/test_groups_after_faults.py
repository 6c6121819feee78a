"""Groups whose rows, or those of their members, are lost; and members of which nobody heard that they were accepted."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tests.actors.scheduler.queues.test_groups import ON_DEAD, THEN, counts, ends, group, member, work
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.actors.scheduler.turn_runner import TurnRunner
from tocsin import Group
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.transitions import groups
from tocsin.actors.scheduler.transitions.submit import submit
from tocsin.errors import ConflictError
from tocsin.storage.memory import MemoryDisk, MemoryProvider


async def damage(sim: SimulatedHost, rows: dict[bytes, bytes | None]) -> None:
    """Reopen the host over these rows, use what they are of, and remove what it has set aside."""
    await sim.crash()
    sim.disk.maps["scheduler/t"].apply(rows)
    await sim.open()
    await work(sim)
    await sim.sleep(400)
    await sim.crash()
    await sim.open()
    await work(sim)
    left = sim.disk.maps["scheduler/t"].range(b"bad/", b"bad0", 100, False)
    assert left
    sim.disk.maps["scheduler/t"].apply({key: None for key, _ in left})


@on_simulated_host()
async def test_a_member_whose_row_is_lost_is_dead_and_listed_no_more(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g", then=THEN, on_dead=ON_DEAD)
    for n in range(3):
        await member(sim, f"m{n}")
    await sim.jobs.groups.seal("g")
    await damage(sim, {b"job/m1": b"\xc1"})

    assert counts(await group(sim)) == {"members": 3, "done": 2, "dead": 1}
    assert [one.function_path for one in await ends(sim)] == ["some:died"] and await sim.faults() == []


@on_simulated_host()
async def test_members_that_their_group_had_lost_are_listed_anew(sim: SimulatedHost) -> None:
    await member(sim, "m0", Group("g", then=THEN, size=2))
    await sim.jobs.run_after(3_600, "a:run", id="m1", queue="q", group="g")
    [(key, _)] = [
        row for row in sim.disk.maps["scheduler/t"].range(b"member/", b"member0", 9, False) if b"m1" in row[0]
    ]
    await damage(sim, {key: None, b"lines//q": b"\xc1"})

    assert [one.id for one in (await sim.jobs.groups.members("g")).records] == ["m1"]


@on_simulated_host()
async def test_what_was_to_follow_a_group_whose_row_is_lost_pends_no_more(sim: SimulatedHost) -> None:
    await member(sim, "m0", Group("g", then=THEN, size=2))
    assert (await sim.jobs.pending("all:")).pending
    await damage(sim, {b"group/g": b"\xc1"})

    assert not (await sim.jobs.pending("all:")).pending and await sim.jobs.groups.get("g") is None


def test_a_member_that_replaces_and_is_sent_twice_is_accepted_once_also_when_its_group_is_sealed() -> None:
    """Between two hosts the answer may be lost on its way."""

    async def run() -> None:
        provider = MemoryProvider(MemoryDisk())
        await provider.start()
        runner = await TurnRunner.open(provider)
        extras = JobExtras(group="g")
        plain = runner.job("m", conflict="replace")
        sent = replace(plain, job=replace(plain.job, incarnation="7-3", extras=extras), group=NewGroup("g"))
        [first] = await runner.turn(lambda turn: submit(turn, [sent]))
        await runner.turn(lambda turn: groups.seal(turn, "g"))
        again = replace(sent, group=None)
        assert await runner.turn(lambda turn: submit(turn, [again])) == [first]
        other = replace(again, job=replace(again.job, incarnation="7-4"))
        [refused] = await runner.turn(lambda turn: submit(turn, [other]))
        assert isinstance(refused, ConflictError)
        await provider.stop()

    asyncio.run(run())
