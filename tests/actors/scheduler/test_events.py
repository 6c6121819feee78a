"""The events of a scheduler are plain data: each may travel to another process as it is."""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from typing import Any, get_args

import msgspec
import pytest

from tests.actors.counter import ONE, running
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.heartbeat import Beat
from tocsin.actors.runtime.events import Call, Event, Ring
from tocsin.actors.scheduler.actor.scheduler_actor import SchedulerEvent
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import Act, AuditRow
from tocsin.actors.scheduler.model.groups import new_group
from tocsin.actors.scheduler.model.moving import ImportRow
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.queue_settings import QueueSettings
from tocsin.actors.scheduler.model.rows import InstanceRow, JobRow, RedriveRow, ScheduleRef
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow
from tocsin.actors.scheduler.schedules import events as of_schedules
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.transitions import events
from tocsin.actors.scheduler.transitions.kept_answers import OneAnswer, RowAnswers
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.retry import Retry
from tocsin.errors import HostClosedError, InvalidInputError

JOB = NewJob(
    JobRow(
        "a", "i", 2, 1, b"\xff{}", 1, "w:r", None, "p", "q", 3, 4, Retry(), 5, 6, "s", ("l",), ("t", "u"),
        ScheduleRef("n", 7, "uid", 8, 2), 9, 10, "b", ("w:then",), 11,
    ),
    (b"\x00rest",), True, "keep",
)  # fmt: skip
SCHEDULE = NewSchedule("s", DefinitionRow("u", 1, 2, "* * * * *", retry=Retry()), (b"rest",), True, 3)
BY = AskedBy("http", "ops", "alice", True)
ACT = Act("r", AuditRow(5, "cancel_all", BY, said={"pool": "p", "since": 3}))
EVENTS: list[Event[Any]] = [
    Beat(),
    Call("add", ("n", 1, None)),
    Ring(),
    events.ErasePage(),
    events.CountPaths(),
    events.ClaimMore(),
    events.SettleFinished(),
    events.Submit([JOB]),
    events.SubmitOnce([JOB], b"\xff", b"body", 3),
    events.Complete(7),
    events.Extend("a", "1.2.3", 5_000),
    events.GiveBack(["1.2.3"]),
    events.Cancel("a"),
    events.CancelMany([("a", "i")], ACT),
    events.DiscardMany([("a", 5)], ACT),
    events.StartUndo("u", "r", BY),
    events.UndoPage("u"),
    events.Reschedule("a", 5),
    events.RetryDead("a"),
    events.CancelDead("a"),
    events.StartRedrive("r", RedriveRow(1, 10, 0, "p", "failed", "w:r", 4), ["r0"]),
    events.StopRedrive("r"),
    events.SetPool("p", PoolSettings(paused=True, rate=Rate(3, "1m"), weights={"a": 2}), BY),
    events.SetQueue("q", QueueSettings(fair=True, weights={"a": 2}), BY),
    events.DeletePool("p"),
    events.OpenGroup(new_group("g", (), (), 3, ("t", "u"))),
    events.SealGroup("g"),
    events.StopGroup("g", BY),
    events.FreeSlot("a", BY),
    events.SetInstance(None, 5_000),
    events.SetClock(1_900_000_000_000),
    events.AdvanceClock(None, 1_000),
    events.FreezeClock(),
    events.BeginImport("token"),
    events.ImportRows("token", [(b"job/a", b"\xff")]),
    events.EndImport("token", InstanceRow(), ImportRow(1, "t", 2, 3, "sha", "m"), 7),
    events.Seal("m", "elsewhere", True),
    events.Unseal("m"),
    of_schedules.PutSchedules([SCHEDULE]),
    of_schedules.SetSchedulePaused("s", True, None),
    of_schedules.DeleteSchedule("s", 3),
    of_schedules.TriggerSchedule("s", "hash"),
    of_schedules.StartBackfill("s", "b", 1, 2, 3, 4, BY),
    of_schedules.StopBackfill("s", "b"),
    of_schedules.RegisterSchedules("app", [SCHEDULE]),
    of_schedules.LeaveSchedules("app", frozenset({"app:s"}), "t", True, None),
]


def test_there_is_one_here_of_each_type() -> None:
    assert {type(one) for one in EVENTS} == {Beat, Call, Ring, *get_args(SchedulerEvent)}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_the_same_when_it_was_encoded_and_decoded(event: Event[Any]) -> None:
    kinds = SchedulerEvent if isinstance(event, get_args(SchedulerEvent)) else type(event)
    encoded = msgspec.msgpack.encode(event)
    decoded = msgspec.msgpack.decode(encoded, type=kinds)

    assert type(decoded) is type(event)
    assert msgspec.msgpack.encode(decoded) == encoded  # a tuple may have become a list, which is as good


@on_simulated_host()
async def test_a_scheduler_runs_no_method_by_name_and_an_actor_of_methods_no_event_of_a_scheduler(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.run_after("1h", "w:r", id="a")
    with pytest.raises(InvalidInputError, match="no methods to call"):
        await sim.host.runtime.call(actor_of("t"), Call("pinned"))
    async with running() as host:
        with pytest.raises(InvalidInputError, match="Cancel is no event of it"):
            await host.call(ONE, events.Cancel("a"))
    assert await sim.jobs.get("a") is not None


@on_simulated_host()
async def test_a_caller_that_goes_away_keeps_no_request_with_a_key_from_being_done(sim: SimulatedHost) -> None:
    """Its answer is written and kept, though nobody waits for it, and nothing is left of it in memory."""
    job = sim.port.checks.wire_job(
        function_path="w:r", workflow=None, raw_args=b"{}", scheduled_for=None, delay_ms=60_000, options={"id": "a"}
    )
    ask = partial(sim.port.jobs.submit_once, key=b"key", body=b"body", form=RowAnswers(["a"]))
    asked = asyncio.ensure_future(ask([job]))
    renderers = sim.host._service.renderers
    for _ in range(1_000):
        if renderers._waiting:
            break  # it is in line
        await asyncio.sleep(0)
    asked.cancel()
    await sim.sleep(1)

    assert asked.cancelled() and await sim.jobs.get("a") is not None
    assert zlib.decompress((await ask([]))[1]) == b'{"a":null}'
    assert renderers._waiting == {}


@on_simulated_host()
async def test_the_function_that_writes_an_answer_goes_with_an_event_that_fails_after_its_caller_has_gone(
    sim: SimulatedHost,
) -> None:
    """The host is killed while the event stands in line: its turn never comes, and nobody hears of it."""
    asked = asyncio.ensure_future(sim.port.jobs.submit_once([JOB], key=b"key", body=b"body", form=OneAnswer()))
    renderers = sim.host._service.renderers
    for _ in range(2):  # it is called, and its event is sent
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert renderers._waiting  # its turn may still come
    await sim.host.runtime.abandon()
    await asyncio.sleep(0)

    assert renderers._waiting == {}


@on_simulated_host()
async def test_the_function_that_writes_an_answer_goes_with_a_call_that_fails(sim: SimulatedHost) -> None:
    await sim.host.stop()
    with pytest.raises(HostClosedError):
        await sim.port.jobs.submit_once([JOB], key=b"key", body=b"body", form=OneAnswer())
    await sim.sleep(0.001)
    assert sim.host._service.renderers._waiting == {}
