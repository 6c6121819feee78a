"""Handlers of a worker declare what they take: they are given that, and a host can know it beforehand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.stage import Stage, staged
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


async def worked(stage: Stage) -> None:
    async with Worker(stage.jobs, HANDLERS, clock=stage.clock, random=stage.random):
        await stage.sleep(5)


@staged()
async def test_a_handler_is_given_what_it_declares(stage: Stage) -> None:
    SEEN.clear()
    await stage.jobs.run_after(0, "invoices:send", {"number": 7}, id="good", queue="q", keep_result=60)
    await stage.jobs.run_after(0, "invoices:send", {"number": "seven"}, id="bad", queue="q")
    await worked(stage)
    dead = await stage.jobs.get("bad")

    assert [Invoice(7)] == SEEN and await stage.jobs.result("good", 0) == 7
    assert dead is not None and (dead.state, dead.reason) == ("dead", "refused")
    assert dead.last_error is not None and "args.number" in dead.last_error.message


@staged(catalog=lambda: HANDLERS.catalog)
async def test_a_host_that_knows_the_handlers_refuses_what_none_of_them_takes(stage: Stage) -> None:
    for path, args in (("invoices:send", {"number": "seven"}), ("nobody:knows", {})):
        with pytest.raises(InvalidInputError):
            await stage.jobs.run_after(0, path, args, queue="q")
    clean_up = HANDLERS.register("plugin", {"plugin:run": lambda args: None})
    await stage.jobs.run_after(0, "plugin:run", queue="q")
    clean_up()
    with pytest.raises(InvalidInputError):
        await stage.jobs.run_after(0, "plugin:run", queue="q")

    assert (await stage.jobs.pending("plugin:")).count == 1
