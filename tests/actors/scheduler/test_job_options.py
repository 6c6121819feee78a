"""An option of a job is known at every door, and the rows that hold it are those that stores have."""

from __future__ import annotations

import dataclasses
from typing import get_type_hints

import msgspec
import pytest

from tocsin.actors.http.wire_jobs import OptionsRequest, ScheduleRequest
from tocsin.actors.scheduler.client.job_checks import JobOptions, OccurrenceOptions
from tocsin.actors.scheduler.client.schedules import Schedules
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.scheduler.model.rows import JobRow, Row, ScheduleRef, encode
from tocsin.actors.scheduler.model.schedule_records import ScheduleRecord
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow, inherited
from tocsin.actors.scheduler.model.timing import TIMING
from tocsin.actors.scheduler.model.validation import OPTIONS
from tocsin.cli.job_options import OPTIONS as TYPED
from tocsin.dispatch.job_options import EXTRAS, LOCAL, HandlerMembers, HandlerOptions, RecordMembers, SharedOptions
from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.words import camel

JOB = JobRow(
    id="i", incarnation="n", scheduled_for=1, enqueued_at=2, args=b"{}", args_rows=3, function_path="f", workflow="w",
    pool="p", queue="q", priority=4, max_concurrency=5, timeout_ms=6, expires_at=7, shard_key="s", labels=("l",),
    initiator=("t", "u"), schedule=ScheduleRef("c", 8, "d"), args_size=9, then_size=10, parent="a", chained=("x",),
    keep_result_ms=11, older_retry=True,
)  # fmt: skip
DEFINITION = DefinitionRow(
    uid="u", created_at=1, anchor=2, cron="c", every_ms=3, at=4, timezone="Z", args=b"{}", args_rows=5,
    function_path="f", workflow="w", pool="p", max_concurrency=6, priority=7, labels=("l",), shard_key="s",
    timeout_ms=8, expires_after_ms=9, misfire="all", grace_ms=10, catch_up_limit=11, overlap="allow", jitter_ms=12,
    owner="o", initiator=("t", "u"), queue="q", then=b"h",
)  # fmt: skip
STORED_JOB = bytes.fromhex(
    "dc001a01a169a16e0102c4027b7d03a166a177a170a1710405c00607a17391a16c92a174a1759701a16308a164c000c0090aa16191a1780bc3"
)
STORED_DEFINITION = bytes.fromhex(
    "dc001d01a1750102a1630304a15ac4027b7d05a166a177a170060791a16ca173c00809a3616c6c0a0ba5616c6c6f770ca16f92a174a175a171"
    "c40168"
)


@pytest.mark.parametrize(("row", "stored"), [(JOB, STORED_JOB), (DEFINITION, STORED_DEFINITION)])
def test_rows_have_the_members_of_stored_ones_first_and_in_their_places(row: Row, stored: bytes) -> None:
    assert msgspec.msgpack.decode(stored, type=type(row)) == row
    members = msgspec.msgpack.decode(stored)
    assert msgspec.msgpack.decode(encode(row))[: len(members)] == members


def test_options_of_jobs_are_checked_stored_and_taken_at_every_door() -> None:
    in_ms = ("keep_result", "max_wait", "throttle")
    inside = {f"{name}_ms" if name in in_ms else name for name in JobOptions.__annotations__} | {"debounce_ms"}
    assert inside == OPTIONS == {*ScheduleRequest.__struct_fields__} & OPTIONS | LOCAL
    apart = {"id", "on_conflict", "then", "on_dead", "group", "initiator", *TIMING}
    assert OPTIONS - apart <= {*JobRow.__struct_fields__, *EXTRAS}
    assert {*EXTRAS} <= {*JobExtras.__struct_fields__}
    assert JobOptions.__annotations__.keys() >= OccurrenceOptions.__annotations__.keys() - {"expires_after"}


def test_options_of_schedules_are_those_of_jobs_and_go_to_their_occurrences() -> None:
    shared = SharedOptions.__annotations__.keys()
    assert shared <= {*inherited(DEFINITION), *EXTRAS} and "extras" in inherited(DEFINITION)
    assert shared - LOCAL <= {*OptionsRequest.__struct_fields__}
    assert shared <= OccurrenceOptions.__annotations__.keys()
    assert get_type_hints(Schedules.put)["options"].__args__ == (OccurrenceOptions,)
    assert {camel(name) for name in shared - LOCAL} | {"then", "onDead"} == {
        one.member.partition(".")[0] for one in TYPED
    }


def test_every_shared_option_is_shown() -> None:
    assert SharedOptions.__annotations__.keys() - LOCAL == {*RecordMembers.__struct_fields__}
    for kind in (Record, ScheduleRecord):
        assert {*RecordMembers.__struct_fields__} <= {*kind.__struct_fields__}
    assert {one.name for one in dataclasses.fields(HandlerOptions)} == {*HandlerMembers.__struct_fields__}
    assert {*HandlerMembers.__struct_fields__} <= {*Claimed.__struct_fields__}
