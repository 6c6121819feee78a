"""What changes, by each way to a scheduler: the same frames, which go on where they were left."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from tests.actors.client.doors import each_door, house
from tocsin.testing import FakeScheduler

pytestmark = pytest.mark.anyio


@each_door
async def test_changes_come_by_every_door_and_go_on_where_they_were_left(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        await jobs.run_after("1h", "a:b", {"n": 1}, id="one", labels=["x"])
        async with aclosing(jobs.changes()) as changes:
            snapshot = await anext(changes)
            assert (snapshot.type, snapshot.status) == ("snapshot", await found.host.scheduler("t").status())
            await jobs.run_after("2h", "a:b", {"n": 2}, id="two")
            change = await anext(changes)
        assert [one.id for one in snapshot.jobs] == ["one"] and snapshot.jobs[0].labels == ("x",)
        assert [one.id for one in change.jobs] == ["two"]
        await jobs.cancel("one")
        async with aclosing(jobs.changes(since=change.seq)) as changes:
            gone = await anext(changes)
        assert (gone.type, [(one.id, one.how) for one in gone.gone]) == ("change", [("one", "cancelled")])
        async with aclosing(jobs.changes(since="ffff-1")) as changes:
            assert [(await anext(changes)).type for _ in range(2)] == ["resync", "snapshot"]
            await jobs.remove()
            async for one in changes:  # it ends
                assert one.type == "change"


async def test_a_fake_scheduler_tells_what_changes() -> None:
    jobs = FakeScheduler()
    async with aclosing(jobs.changes()) as changes:
        assert (await anext(changes)).type == "snapshot"
        await jobs.run_after("5m", "a:b", id="one")
        change = await anext(changes)
    assert [(one.id, one.state) for one in change.jobs] == [("one", "pending")]
    assert [call.method for call in jobs.calls] == ["run_after"]
