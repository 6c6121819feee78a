"""Tasks, pools by handle, and the errors of handlers, by every way to a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.actors.client.doors import House, each_door, house
from tests.actors.scheduler import declared_tasks as app
from tests.actors.scheduler.declared_tasks import Invoice
from tocsin import HandlerError, Tasks, TerminalError, Worker
from tocsin.errors import InvalidInputError, JobFailedError

pytestmark = pytest.mark.anyio

INVOICE = Invoice(7, datetime(2027, 1, 1, tzinfo=UTC), Decimal("10.50"))
DATA = {"until": INVOICE.due}


async def asked(found: House, call: Callable[[Any], Any]) -> Any:
    """What the call comes to on this scheduler; of a blocking one, in a thread."""
    blocking = getattr(found.jobs, "_blocking", None)
    if blocking is not None and hasattr(found.jobs, "__getattr__"):
        return await asyncio.to_thread(call, blocking)
    return await call(found.jobs)


@each_door
async def test_a_task_is_scheduled_by_the_arguments_of_its_handler(door: str) -> None:
    tasks = Tasks()
    remind = tasks.task("invoices:remind", queue="mail", keep_result="1h")(app.remind)
    async with house(door) as found, Worker(found.host.scheduler("t"), tasks):
        id = await asked(found, lambda jobs: remind.on(jobs).options(id="mine").now(INVOICE, copies=2))
        result = await found.jobs.result(id, 10)
        with pytest.raises(InvalidInputError, match=r"^args.copies: expected int, got str$"):
            await asked(found, lambda jobs: remind.on(jobs).now(INVOICE, copies="2"))  # type: ignore[arg-type]
        made = await asked(found, lambda jobs: jobs.task("add", app.add, queue="q").after("1h", 1, 2.5))
        record = await found.jobs.get(made)
        put = await found.jobs.schedules.put("daily", remind.job(INVOICE), cron="0 9 * * *")
        daily = await found.jobs.schedules.get("daily")

    assert id == "mine" and result == {"number": 7, "due": INVOICE.due, "total": Decimal("10.50")}
    assert record is not None and (record.args, record.queue) == ({"a": 1, "b": 2.5}, "q")
    assert put.revision == 1 and daily is not None
    assert (daily.function_path, daily.queue, daily.args["invoice"]["number"]) == ("invoices:remind", "mail", 7)


@each_door
async def test_a_pool_is_acted_on_by_its_handle(door: str) -> None:
    async with house(door) as found:
        set_to = await asked(found, lambda jobs: jobs.pools("stripe").set(max_concurrency=3))
        paused = await asked(found, lambda jobs: jobs.pools("stripe").pause())
        await asked(found, lambda jobs: jobs.run_after("1h", "p", queue="q", pool=jobs.pools("stripe")))
        shown = await asked(found, lambda jobs: jobs.pools("stripe").status())
        resumed = await asked(found, lambda jobs: jobs.pools("stripe").resume())

    assert (set_to.max_concurrency, paused.paused, shown.queued, resumed.paused) == (3, True, 1, False)


@each_door
async def test_an_attempt_is_settled_with_a_coded_error_and_whoever_waits_is_told(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        for id, error in {
            "never": TerminalError("declined", code="card_declined", status=402, data=DATA),
            "again": HandlerError("declined", code="card_declined", status=402, data=DATA),
        }.items():
            await jobs.run_after(0, "charge", id=id, queue="q", keep_result="1h")
            [one] = await jobs.claim("q", wait=5)
            settled = await jobs.settle(id, one.lease, ok=False, error=error, retryable=False)
            with pytest.raises(JobFailedError) as told:
                await jobs.result(id, 5)
            [attempt] = await jobs.history(id)
            record = await jobs.get(id)

            assert settled.state == "dead"
            assert (told.value.code, told.value.status, told.value.data) == ("card_declined", 402, DATA)
            assert told.value.details == {"id": id, "state": "dead"}
            assert (attempt.code, attempt.status, attempt.data) == ("card_declined", 402, DATA)
            assert record is not None and record.last_error is not None
            assert (record.last_error.code, record.last_error.data) == ("card_declined", DATA)
            assert "card_declined: declined" in (await jobs.why(id))[0].message
