"""Whatever an instance holds: an action and its undo leave the rows as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost
from tests.actors.scheduler.test_audit import GONE
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.integrity.check import repair
from tocsin.actors.scheduler.model.acts import UNDO, act_key
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import LinesRow, decode
from tocsin.actors.testing import simulate
from tocsin.errors import ConflictError
from tocsin.storage.api import Batch
from tocsin.storage.memory import MemoryProvider

OTHERS = (b"audit/", b"act/", b"trash", b"hist/", b"meta/", b"redrive/", b"instance")
"""What tells of what was done, and not of how jobs stand."""
NAMES = ("a", "b", "c")


async def rows(sim: SimulatedHost) -> dict[bytes, object]:
    view = sim.host.runtime.provider.view(str(actor_of("t")))
    found = await view.scan(b"\x01", b"\xff", limit=5_000)
    own = (b"/undo/", b"/audit/", b"/history/", b"/redrive/")
    return {
        key: decode(LinesRow, key, value) if key.startswith(b"lines/") else value
        for key, value in found
        if not key.startswith(OTHERS) and not (key.startswith(b"timer/") and any(one in key for one in own))
    }


async def fill(sim: SimulatedHost, random: Random) -> None:
    """Some jobs that wait, some of them again, and some that are dead."""
    sim.reply = lambda _: GONE
    await sim.jobs.pause()
    pools: list[dict[str, Any]] = [{}, {"pool": "p"}, {"pool": "p", "max_concurrency": 3}]
    for n in range(random.randrange(4, 16)):
        await sim.jobs.run_after(
            random.choice(("1h", "2d", "0s")),
            random.choice(["pay:send", "mail:send"]),
            {"x": "y" * random.choice([0, 10, 90_000])},
            id=f"j{n}",
            **random.choice(pools),
            priority=random.randrange(-9, 10),
            labels=random.sample(NAMES, random.randrange(3)),
            expires_at=random.choice([None, sim.now + 10**9]),
            queue=random.choice([None, None, "q"]),
            keep_result=random.choice([None, 3600]),
            then=random.choice([[], [Job(path="next:run")]]),
        )
    await sim.jobs.schedules.put("s", "mail:send", every="100h", labels=["a"])
    await sim.jobs.schedules.trigger("s", "k")
    for n in range(0, 16, 3):
        await sim.jobs.reschedule(f"j{n}", after="3h")
    await sim.jobs.pause(False)
    await sim.sleep(60)
    await sim.jobs.pause()
    await sim.sleep(60)


async def act(sim: SimulatedHost, random: Random) -> str | None:
    """One bulk action; its id if it changed anything."""
    filters: list[dict[str, Any]] = [{"pool": "p"}, {"path": "mail:send"}, {"all": True}]
    kind, some = random.randrange(4), random.choice(filters)
    if kind == 0:
        return (await sim.jobs.cancel_all(**random.choice([*filters, {"label": "a"}]))).action_id
    if kind == 1:
        return (await sim.jobs.dead_cancel_all(**some)).action_id
    if kind == 2:
        known = {one.id for one in (await sim.jobs.audit()).actions}
        await sim.jobs.set_pool("p", max_concurrency=random.randrange(9), paused=random.choice([None, True]))
        return next((one.id for one in (await sim.jobs.audit()).actions if one.id not in known), None)
    started = await sim.jobs.dead_retry_all(**some, rate_per_second=100)
    return started.redrive_id if started.retried or started.matched else None


@pytest.mark.parametrize("seed", range(16))
def test_an_action_and_its_undo_leave_nothing_behind(seed: int) -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        await fill(sim, random)
        for _ in range(3):
            before = await rows(sim)
            done = await act(sim, random)
            after = await rows(sim)
            if done is None:
                assert before == after
                continue
            for turn in range(random.randrange(1, 4)):
                assert await sim.faults() == []
                undone = await sim.jobs.undo(done)
                assert undone.skipped == {}
                assert await rows(sim) == (after if turn % 2 else before)
                if random.random() < 0.3:
                    await sim.crash()
                    await sim.open()
                done = undone.action_id
        await sim.sleep(700)
        await sim.close()
        assert await sim.faults() == []
        assert not [key for key, _ in await left(sim) if key.startswith((b"act/", b"trash"))]

    simulate(seed, main)


async def left(sim: SimulatedHost) -> list[tuple[bytes, bytes]]:
    provider = MemoryProvider(sim.disk)
    await provider.start()
    try:
        return await provider.view(str(actor_of("t"))).scan(b"\x01", b"\xff", limit=5_000)
    finally:
        await provider.stop()


def test_what_is_kept_without_an_action_or_a_timer_is_found_and_mended() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        for n in range(2):
            await sim.jobs.run_after("1h", "pay:send", id=f"j{n}", labels=[f"l{n}"])
        lost, timerless = [(await sim.jobs.cancel_all(label=f"l{n}")).action_id for n in range(2)]
        assert lost is not None and timerless is not None
        await sim.close()
        provider = MemoryProvider(sim.disk)
        await provider.start()
        store = await provider.open(str(actor_of("t")))
        timers = {key for key, _ in await store.scan(b"timer/", b"timer0", limit=100) if UNDO.encode() in key}
        await store.commit(Batch(deletes={act_key(lost), *timers}))
        await store.close()
        await provider.stop()
        assert [one.split(" ")[0] for one in await sim.faults()] == ["action", f"trash/{lost}/j0"]

        await provider.start()
        await repair(provider, "t")
        await provider.stop()
        assert await sim.faults() == [f"set aside: bad/trash/{lost}/j0"]
        await sim.open()
        assert (await sim.jobs.undo(timerless)).restored == 1
        await sim.close()

    simulate(3, main)


@pytest.mark.parametrize("seed", range(5))
def test_whenever_the_host_dies_each_job_is_delivered_once_or_cancelled(seed: int) -> None:
    """An undo brings back what its answer or the log says, once; what was not undone does not come."""

    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        for n in range(700):  # more than a page
            await sim.jobs.run_after("1h", "pay:send", id=f"j{n}")
        for _ in range(random.randrange(1, 5)):
            await dying(sim, random, sim.jobs.cancel_all(all=True))
            actions = (await sim.jobs.audit()).actions
            if actions and random.random() < 0.8:
                newest = max(actions, key=lambda one: (one.at, one.action == "undo"))
                await dying(sim, random, sim.jobs.undo(newest.id))
                await sim.sleep(10)  # what was begun ends
            await sim.sleep(1)
        assert await sim.faults() == []
        waiting = {one.id for one in (await sim.jobs.list(order="id", limit=1000)).records}
        ended = {one.id: one for one in (await sim.jobs.audit()).actions}
        assert all(one.undone_by is None or one.undone_by in ended for one in ended.values())
        await sim.sleep(2 * 3600)
        assert sorted(one.id for one in sim.deliveries) == sorted(waiting)
        status = await sim.jobs.status()
        assert (status.backlog, status.in_flight, status.dead) == (0, 0, 0)
        await sim.close()
        assert await sim.faults() == []

    simulate(seed, main)


async def dying(sim: SimulatedHost, random: Random, asked: Coroutine[Any, Any, Any]) -> None:
    """Ask for something of a host that may die before it answers, and start the next one."""
    task = asyncio.ensure_future(asked)
    for _ in range(random.choice([1, 5, 20, 60, 10_000])):
        if task.done():
            break
        await asyncio.sleep(0)
    if task.done():
        if (error := task.exception()) is not None and not isinstance(error, ConflictError):
            raise error
    else:
        await sim.crash()
        await sim.open()
