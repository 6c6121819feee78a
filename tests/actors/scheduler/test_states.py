"""What each operation does to a job in each state: every cell of the table is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.states import OPERATIONS as TABLE
from tocsin.actors.scheduler.transitions.states import STATES
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import DuplicateScheduleIdError, StaleLeaseError

ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


CELLS = {
    (operation, state): cell for operation, cells in TABLE.items() for state, cell in zip(STATES, cells, strict=True)
}


# ---- A job in each state -------------------------------------------------------------------------


async def hang() -> Answer:
    await asyncio.get_running_loop().create_future()
    return OK


async def bring_about(stage: Stage, state: str) -> None:
    """A job called `x` in that state."""
    options = {"id": "x", "pool": "p", "timeout_ms": 1_000}
    if state == "pending":
        await stage.jobs.submit_many([Job(path="work:run", after="1h", options=options)])
    elif state == "waiting":
        await stage.jobs.set_pool("p", paused=True)
        await stage.jobs.submit_many([Job(path="work:run", after=0, options=options)])
    elif state == "pulled":
        await stage.jobs.submit_many([Job(path="work:run", after=0, options={**options, "queue": "q"})])
        [claimed] = await stage.jobs.claim("q")
        stage.claimed_lease = claimed.lease
    elif state != "gone":
        answers: dict[str, Callable[[Delivery], Answer | Awaitable[Answer]]] = {
            "running": lambda one: hang(),
            "unknown": lambda one: hang(),
            "accepted": lambda one: ACCEPTED,
            "dead": lambda one: Answer(410, {}, b""),
        }
        stage.reply = answers[state]
        await stage.jobs.submit_many([Job(path="work:run", after=0, options=options)])
        await stage.sleep(2 if state == "unknown" else 0.5)


# ---- The operations, each telling in the table's words what happened -------------------------------


async def schedule(stage: Stage, conflict: str) -> str:
    job = Job(path="work:run", args={"n": 2}, after="2h", options={"id": "x", "on_conflict": conflict})
    (answer,) = await stage.jobs.submit_many([job])
    if isinstance(answer, DuplicateScheduleIdError):
        return f"409 {answer.details['state']}"
    assert isinstance(answer, Scheduled)
    if answer.created:
        record = await stage.jobs.get("x")
        assert record is not None and record.args == {"n": 2}
        return "swapped" if conflict == "replace" and stage.had_one else "made"
    return f"kept {answer.state}"


async def cancel(stage: Stage) -> str:
    answer = await stage.jobs.cancel("x")
    if not answer.cancelled:
        return "no"
    assert await stage.jobs.get("x") is None
    return "cancelled, was running" if answer.was_running else "cancelled"


async def reschedule(stage: Stage) -> str:
    answer = await stage.jobs.reschedule("x", after="3h")
    if answer.rescheduled:
        record = await stage.jobs.get("x")
        assert record is not None and record.next_attempt_at == stage.now + 3 * 3_600_000
        return "moved"
    return "no, is running" if answer.was_running else "no"


async def dead_retry(stage: Stage) -> str:
    return "due now" if (await stage.jobs.dead_retry("x")).retried else "no"


async def dead_cancel(stage: Stage) -> str:
    return "removed" if await stage.jobs.dead_cancel("x") else "no"


def lease_of(stage: Stage) -> str:
    return stage.claimed_lease or (stage.deliveries[-1].lease if stage.deliveries else "1.1.none")


async def complete(stage: Stage) -> str:
    try:
        await stage.jobs.complete("x", lease_of(stage))
    except StaleLeaseError:
        return "409 stale"
    assert await stage.jobs.get("x") is None
    return "done"


async def extend(stage: Stage) -> str:
    try:
        await stage.jobs.extend("x", lease_of(stage), 120_000)
    except StaleLeaseError:
        return "409 stale"
    return "extended"


async def why(stage: Stage) -> str:
    return (await stage.jobs.why("x"))[0].code


OPERATIONS: dict[str, Callable[[Stage], Awaitable[str]]] = {
    "schedule, error": lambda stage: schedule(stage, "error"),
    "schedule, keep": lambda stage: schedule(stage, "keep"),
    "schedule, replace": lambda stage: schedule(stage, "replace"),
    "cancel": cancel,
    "reschedule": reschedule,
    "dead_retry": dead_retry,
    "dead_cancel": dead_cancel,
    "complete": complete,
    "extend": extend,
    "why": why,
}


def test_the_table_is_whole() -> None:
    assert set(CELLS) == {(operation, state) for operation in OPERATIONS for state in STATES}


@pytest.mark.parametrize(("operation", "state"), [*CELLS])
def test_a_cell_of_the_table(operation: str, state: str) -> None:
    said: list[str] = []

    async def test(stage: Stage) -> None:
        await bring_about(stage, state)
        stage.had_one = state != "gone"
        said.append(await OPERATIONS[operation](stage))
        assert await stage.faults() == []
        stage.reply = lambda one: OK
        await stage.sleep(200)  # whatever goes on, goes on soundly

    staged()(test)()

    assert said == [CELLS[operation, state]]
