"""What each operation does to a job in each state: every cell of the table is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, hang, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.states import OPERATIONS as TABLE
from tocsin.actors.scheduler.transitions.states import STATES
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, DuplicateScheduleIdError, StaleLeaseError

ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


CELLS = {
    (operation, state): cell for operation, cells in TABLE.items() for state, cell in zip(STATES, cells, strict=True)
}


# ---- A job in each state -------------------------------------------------------------------------


async def bring_about(sim: SimulatedHost, state: str) -> None:
    """A job called `x` in that state."""
    options = {"id": "x", "pool": "p", "timeout_ms": 1_000}
    if state == "pending":
        await sim.jobs.submit_many([Job(path="work:run", after="1h", options=options)])
    elif state == "waiting":
        await sim.jobs.set_pool("p", paused=True)
        await sim.jobs.submit_many([Job(path="work:run", after=0, options=options)])
    elif state == "pulled":
        await sim.jobs.submit_many([Job(path="work:run", after=0, options={**options, "queue": "q"})])
        [claimed] = await sim.jobs.claim("q")
        sim.claimed_lease = claimed.lease
    elif state != "gone":
        answers: dict[str, Callable[[Delivery], Answer | Awaitable[Answer]]] = {
            "running": lambda one: hang(),
            "unknown": lambda one: hang(),
            "accepted": lambda one: ACCEPTED,
            "dead": lambda one: Answer(410, {}, b""),
        }
        sim.reply = answers[state]
        await sim.jobs.submit_many([Job(path="work:run", after=0, options=options)])
        await sim.sleep(2 if state == "unknown" else 0.5)


# ---- The operations, each telling in the table's words what happened -------------------------------


async def schedule(sim: SimulatedHost, conflict: str) -> str:
    job = Job(path="work:run", args={"n": 2}, after="2h", options={"id": "x", "on_conflict": conflict})
    (answer,) = await sim.jobs.submit_many([job])
    if isinstance(answer, DuplicateScheduleIdError):
        return f"409 {answer.details['state']}"
    assert isinstance(answer, Scheduled)
    if answer.created:
        record = await sim.jobs.get("x")
        assert record is not None and record.args == {"n": 2}
        return "swapped" if conflict == "replace" and sim.had_one else "made"
    return f"kept {answer.state}"


async def cancel(sim: SimulatedHost) -> str:
    answer = await sim.jobs.cancel("x")
    if not answer.cancelled:
        return "no"
    assert await sim.jobs.get("x") is None
    return "cancelled, was running" if answer.was_running else "cancelled"


async def reschedule(sim: SimulatedHost) -> str:
    answer = await sim.jobs.reschedule("x", after="3h")
    if answer.rescheduled:
        record = await sim.jobs.get("x")
        assert record is not None and record.next_attempt_at == sim.now + 3 * 3_600_000
        return "moved"
    return "no, is running" if answer.was_running else "no"


async def dead_retry(sim: SimulatedHost) -> str:
    return "due now" if (await sim.jobs.dead_retry("x")).retried else "no"


async def dead_cancel(sim: SimulatedHost) -> str:
    return "removed" if await sim.jobs.dead_cancel("x") else "no"


def lease_of(sim: SimulatedHost) -> str:
    return sim.claimed_lease or (sim.deliveries[-1].lease if sim.deliveries else "1.1.none")


async def complete(sim: SimulatedHost) -> str:
    try:
        await sim.jobs.complete("x", lease_of(sim))
    except StaleLeaseError:
        return "409 stale"
    assert await sim.jobs.get("x") is None
    return "done"


async def extend(sim: SimulatedHost) -> str:
    try:
        await sim.jobs.extend("x", lease_of(sim), 120_000)
    except StaleLeaseError:
        return "409 stale"
    return "extended"


async def free_slot(sim: SimulatedHost) -> str:
    try:
        freed = await sim.jobs.free_slot("x")
    except ConflictError:
        return "409 runs"
    return str(freed.state) if freed.freed else "no"


async def why(sim: SimulatedHost) -> str:
    return (await sim.jobs.why("x"))[0].code


OPERATIONS: dict[str, Callable[[SimulatedHost], Awaitable[str]]] = {
    "schedule, error": lambda sim: schedule(sim, "error"),
    "schedule, keep": lambda sim: schedule(sim, "keep"),
    "schedule, replace": lambda sim: schedule(sim, "replace"),
    "cancel": cancel,
    "reschedule": reschedule,
    "dead_retry": dead_retry,
    "dead_cancel": dead_cancel,
    "free_slot": free_slot,
    "complete": complete,
    "extend": extend,
    "why": why,
}


def test_the_table_is_whole() -> None:
    assert set(CELLS) == {(operation, state) for operation in OPERATIONS for state in STATES}


@pytest.mark.parametrize(("operation", "state"), [*CELLS])
def test_a_cell_of_the_table(operation: str, state: str) -> None:
    said: list[str] = []

    async def test(sim: SimulatedHost) -> None:
        await bring_about(sim, state)
        sim.had_one = state != "gone"
        said.append(await OPERATIONS[operation](sim))
        assert await sim.faults() == []
        sim.reply = lambda one: OK
        await sim.sleep(200)  # whatever goes on, goes on soundly

    on_simulated_host()(test)()

    assert said == [CELLS[operation, state]]
