"""The events of a scheduler are plain data: each may travel to another process as it is."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from tocsin.actors.heartbeat import Beat
from tocsin.actors.runtime.events import Call, Event, Ring
from tocsin.actors.scheduler.actor.scheduler_actor import SchedulerEvent
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import JobRow, RedriveRow, ScheduleRef
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow
from tocsin.actors.scheduler.schedules import events as of_schedules
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.transitions import events
from tocsin.dispatch.retry import Retry

JOB = NewJob(
    JobRow(
        "a", "i", 2, 1, b"\xff{}", 1, "w:r", None, "p", "q", 3, 4, Retry(), 5, 6, "s", ("l",), ("t", "u"),
        ScheduleRef("n", 7, "uid", 8, 2), 9, 10, "b", ("w:then",), 11,
    ),
    (b"\x00rest",), True, "keep",
)  # fmt: skip
SCHEDULE = NewSchedule("s", DefinitionRow("u", 1, 2, "* * * * *", retry=Retry()), (b"rest",), True, 3)
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
    events.CancelMany([("a", "i")]),
    events.Reschedule("a", 5),
    events.RetryDead("a"),
    events.CancelDead("a"),
    events.StartRedrive("r", RedriveRow(1, 10, 0, "p", "failed", "w:r", 4), ["r0"]),
    events.StopRedrive("r"),
    events.SetPool("p", None, True),
    events.DeletePool("p"),
    events.SetInstance(None, 5_000),
    of_schedules.PutSchedules([SCHEDULE]),
    of_schedules.SetSchedulePaused("s", True, None),
    of_schedules.DeleteSchedule("s", 3),
    of_schedules.TriggerSchedule("s", "hash"),
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
