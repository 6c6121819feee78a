"""Handlers of a worker declare what they take: they are given that, and a host can know it beforehand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Worker
from tocsin.dispatch.worker.handlers import Handlers
from tocsin.errors import InvalidInputError


class Invoice(msgspec.Struct):
    number: int
    lines: list[str] = []


SEEN: list[Any] = []
HANDLERS = Handlers()


@HANDLERS.handler("invoices:send")
async def send(invoice: Invoice) -> int:
    SEEN.append(invoice)
    return invoice.number


async def worked(sim: SimulatedHost) -> None:
    async with Worker(sim.jobs, HANDLERS, clock=sim.clock, random=sim.random):
        await sim.sleep(5)


@on_simulated_host()
async def test_a_handler_is_given_what_it_declares(sim: SimulatedHost) -> None:
    SEEN.clear()
    await sim.jobs.run_after(0, "invoices:send", {"number": 7}, id="good", queue="q", keep_result=60)
    await sim.jobs.run_after(0, "invoices:send", {"number": "seven"}, id="bad", queue="q")
    await worked(sim)
    dead = await sim.jobs.get("bad")

    assert [Invoice(7)] == SEEN and await sim.jobs.result("good", 0) == 7
    assert dead is not None and (dead.state, dead.reason) == ("dead", "refused")
    assert dead.last_error is not None and "args.number" in dead.last_error.message


@on_simulated_host(catalog=lambda: HANDLERS.catalog)
async def test_a_host_that_knows_the_handlers_refuses_what_none_of_them_takes(sim: SimulatedHost) -> None:
    for path, args in (("invoices:send", {"number": "seven"}), ("nobody:knows", {})):
        with pytest.raises(InvalidInputError):
            await sim.jobs.run_after(0, path, args, queue="q")
    clean_up = HANDLERS.register("plugin", {"plugin:run": lambda args: None})
    await sim.jobs.run_after(0, "plugin:run", queue="q")
    clean_up()
    with pytest.raises(InvalidInputError):
        await sim.jobs.run_after(0, "plugin:run", queue="q")

    assert (await sim.jobs.pending("plugin:")).count == 1
