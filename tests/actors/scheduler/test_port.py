"""The port can be implemented elsewhere: JSON carries what its methods take and answer, by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, get_type_hints

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import errors
from tocsin.actors.scheduler.client import port as ports
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.client.local import LocalPort
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import schedule_records as recurring
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.transitions.kept_answers import BatchAnswers, KeptForm, OneAnswer, RowAnswers
from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.refusals import Refusal
from tocsin.dispatch.retry import Retry

PARTS: dict[str, type] = {
    "jobs": ports.JobsPort,
    "changes": ports.ChangesPort,
    "reads": ports.ReadsPort,
    "queues": ports.QueuesPort,
    "schedules": ports.SchedulesPort,
}


def methods() -> Iterator[tuple[str, str]]:
    for part, kind in PARTS.items():
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                yield part, name


def again(value: Any, kind: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


@pytest.mark.parametrize(("part", "name"), list(methods()))
def test_every_method_is_a_coroutine_whose_values_json_can_carry(part: str, name: str) -> None:
    method = getattr(PARTS[part], name)
    assert inspect.iscoroutinefunction(method)
    hints = get_type_hints(method)
    assert hints.keys() == {*inspect.signature(method).parameters, "return"} - {"self"}
    for hint in hints.values():
        msgspec.json.Decoder(hint)


@on_simulated_host()
async def test_the_local_port_has_every_method_with_the_same_arguments_and_no_other(sim: SimulatedHost) -> None:
    port = sim.port
    assert isinstance(port, LocalPort)
    for part, kind in PARTS.items():
        local = {name for name in dir(getattr(port, part)) if not name.startswith("_")}
        assert local == {name for name in vars(kind) if not name.startswith("_")}, part
    for part, name in methods():
        taken = inspect.signature(getattr(type(getattr(port, part)), name)).parameters
        assert taken == inspect.signature(getattr(PARTS[part], name)).parameters, (part, name)


@on_simulated_host()
async def test_what_the_methods_take_and_answer_is_the_same_behind_json(sim: SimulatedHost) -> None:
    args = {"sum": Decimal("1.20"), "raw": b"\0", "many": 2**70, "deep": [{"$tocsin": 1}]}
    options = {"queue": "q", "retry": Retry(jitter=0.5), "labels": ["a"], "keep_result": "1h",
               "then": [Job("b:c", args, options={"queue": "q"})]}  # fmt: skip
    job = sim.port.checks.job(Job("a:b", args, after=0, options=options))
    assert again(job, NewJob) == job
    await sim.port.jobs.submit(again(job, NewJob))
    put = sim.port.checks.wire_schedule(
        "s", raw_args=b'{"n":1}', given={"function_path": "a:b", "every_ms": 60_000, "queue": "q"}, paused=None,
        revision=None, initiator=("", "x"),
    )  # fmt: skip
    assert again(put, NewSchedule) == put
    await sim.port.schedules.put(again(put, NewSchedule))

    def same(value: Any, kind: Any) -> None:
        assert msgspec.json.encode(again(value, kind)) == msgspec.json.encode(value)

    record = await sim.port.reads.get(job.job.id)
    read = again(record, records.Record | None)
    assert read.args == args and read.retry == Retry(jitter=0.5)
    same(record, records.Record | None)
    (claimed,) = await sim.jobs.claim("q")
    await sim.jobs.complete(claimed.id, claimed.lease, result=args)
    same(await sim.port.queues.outcome(job.job.id, None), records.Outcome)
    assert again(await sim.port.queues.outcome(job.job.id, None), records.Outcome).result == args
    history = await sim.port.reads.history(job.job.id)
    assert again(history, Sequence[records.Attempt])[0].result == args
    follower = await sim.jobs.claim("q")
    assert again(follower, Sequence[Claimed]) == follower and again(follower, list[Claimed])[0].parent.result == args
    same(await sim.port.schedules.get("s"), recurring.ScheduleRecord | None)
    same(await sim.port.reads.status(), records.Status)


def test_errors_are_the_same_behind_json() -> None:
    for kind in (errors.InvalidInputError, errors.StoreFull, errors.ActorBrokenError, errors.JobFailedError):
        error = again(Refusal.of(kind("no", id="x")), Refusal).error()
        assert (type(error), error.message, str(error), error.details) == (kind, "no", "no", {"id": "x"})
    several = Refusal.of(errors.NotAllAcceptedError(["a"], [("b", errors.ConflictError("taken"))])).error()
    assert type(several) is errors.NotAllAcceptedError and "taken" in several.message
    assert type(Refusal("NoErrorOfOurs", "no").error()) is Refusal("TocsinError", "no").error().__class__
    assert type(Refusal("Any", "no").error()) is errors.TocsinError


def test_the_forms_of_kept_answers_write_the_same_behind_json() -> None:
    accepted = records.Scheduled("a", 1, True)
    refused = errors.DuplicateScheduleIdError("taken", state="dead")
    forms: list[KeptForm] = [
        OneAnswer(), BatchAnswers({0: errors.InvalidInputError("no").to_dict()}), RowAnswers(["1"]),
    ]  # fmt: skip
    for form in forms:
        for answer in (accepted, refused):
            assert again(form, KeptForm)([answer]) == form([answer])
    assert OneAnswer()([refused]) == (
        409,
        b'{"error":{"code":"DUPLICATE_SCHEDULE_ID","message":"taken","state":"dead"}}',
    )
    status, text = BatchAnswers({0: errors.InvalidInputError("no").to_dict()})([accepted])
    assert status == 200 and [*msgspec.json.decode(text)["results"][1]] == ["id", "scheduledFor", "created"]
