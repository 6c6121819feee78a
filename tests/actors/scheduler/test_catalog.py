"""A host with a catalog: what does not fit is refused when it is scheduled, and parked if it no longer fits when it
fires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin import Catalog, Cron
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck
from tocsin.actors.scheduler.model.records import Record
from tocsin.dispatch.catalog.expected import ANY_ARGS, Expected
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, SettingsError

BAD = {"amount": "x"}
GOOD = {"amount": 1, "due": datetime(2027, 1, 1, tzinfo=UTC)}
PLACE = r"args\.amount: expected int, got str"
UNKNOWN = "path 'nope' is not in the catalog"


class Invoice(msgspec.Struct):
    amount: int
    due: datetime | None = None


FIRST: dict[str, Any] = {"send": Invoice, "any": Any, "none": None}


class Shelf:
    """What the host asks for its catalog; tests put another one there."""

    def __init__(self) -> None:
        self.now: Any = Catalog(FIRST, workflows={"refund": Invoice})

    def __call__(self) -> Any:
        return self.now


def catalogued(test: Callable[[SimulatedHost, Shelf], Any]) -> Callable[[], None]:
    shelf = Shelf()

    async def run(sim: SimulatedHost) -> None:
        shelf.now = Catalog(FIRST, workflows={"refund": Invoice})
        await test(sim, shelf)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return on_simulated_host(catalog=shelf)(run)


async def dead(sim: SimulatedHost, job_id: str) -> Record:
    record = await sim.jobs.get(job_id)
    assert record is not None and record.state == "dead"
    return record


# ---- When scheduled ------------------------------------------------------------------------------


@catalogued
async def test_every_way_to_schedule_refuses_what_is_unknown_or_does_not_fit(sim: SimulatedHost, shelf: Shelf) -> None:
    jobs = sim.jobs
    for path, args, said in (("nope", GOOD, UNKNOWN), ("send", BAD, PLACE)):
        with pytest.raises(InvalidInputError, match=said):
            await jobs.run_after(1, path, args)
        with pytest.raises(InvalidInputError, match=said):
            await jobs.run_at(sim.now + 5, path, args)
        with pytest.raises(InvalidInputError, match=said):
            await jobs.schedules.put("s", path, args, every=60)
        with pytest.raises(InvalidInputError, match=rf"schedule 'bad': {said}"):
            good, bad = {"path": "any", "every": 60}, {"path": path, "args": args, "every": 60}
            await jobs.schedules.register("app", [("good", good), ("bad", bad)])
        with pytest.raises(InvalidInputError, match=said):
            await jobs.schedules.register("app", Cron().hourly("h", minute=1, target=path, args=args))
    with pytest.raises(InvalidInputError, match="workflow 'send' is not in the catalog"):
        await jobs.run_after(1, None, GOOD, workflow="send")
    given = (("send", GOOD), ("send", BAD), ("nope", 1))
    answers = await jobs.submit_many([Job(path=path, args=args, after=0) for path, args in given])
    assert [isinstance(one, InvalidInputError) for one in answers] == [False, True, True]
    assert (await jobs.schedules.list()).schedules == []
    await sim.sleep(1)
    assert [one.body["functionPath"] for one in sim.deliveries] == ["send"]


@catalogued
async def test_what_fits_arrives_as_it_was_given(sim: SimulatedHost, shelf: Shelf) -> None:
    await sim.jobs.run_after(0, "send", GOOD)
    await sim.jobs.run_after(0, "any", [1, "x"])
    await sim.jobs.run_after(0, "none")
    await sim.jobs.run_after(0, None, GOOD, workflow="refund")
    await sim.jobs.schedules.put("s", "send", GOOD, every=1)
    await sim.sleep(1.5)
    assert len(sim.deliveries) == 5


@on_simulated_host()
async def test_without_a_catalog_anything_goes(sim: SimulatedHost) -> None:
    assert sim.host.catalog is None
    await sim.jobs.run_after(0, "nope", BAD)
    await sim.sleep(1)
    assert len(sim.deliveries) == 1


# ---- Before an attempt ---------------------------------------------------------------------------


@catalogued
async def test_a_job_that_no_longer_fits_is_parked_and_never_sent(sim: SimulatedHost, shelf: Shelf) -> None:
    await sim.jobs.run_after(10, "send", GOOD, id="changed", pool="p", max_concurrency=1)
    await sim.jobs.run_after(10, "any", GOOD, id="removed")
    await sim.jobs.run_after(10, "none", id="stays")
    shelf.now = {"send": {"type": "object", "required": ["number"]}, "none": None}
    await sim.sleep(11)

    assert [one.body["id"] for one in sim.deliveries] == ["stays"]
    changed, removed = await dead(sim, "changed"), await dead(sim, "removed")
    assert (changed.reason, changed.attempt, changed.attempts) == ("blocked", 1, 0)
    assert changed.last_error is not None and removed.last_error is not None
    assert changed.last_error.message == 'not sent: args: "number" is a required property'
    assert removed.last_error.message.startswith("not sent: functionPath 'any' is not in the catalog")
    assert (await sim.jobs.status()).in_flight == 0

    shelf.now = FIRST
    assert (await sim.jobs.dead_retry_all(reason="blocked")).matched == 2
    await sim.sleep(2)
    assert {one.body["id"] for one in sim.deliveries} == {"stays", "changed", "removed"}


@catalogued
async def test_each_attempt_is_checked_again(sim: SimulatedHost, shelf: Shelf) -> None:
    sim.reply = lambda delivery: Answer(500, {}, b"")
    await sim.jobs.run_after(0, "send", GOOD, id="a", retry=Retry(base_ms=5_000))
    await sim.sleep(1)
    shelf.now = {"other": None}
    await sim.sleep(30)
    assert (len(sim.deliveries), (await dead(sim, "a")).attempts) == (1, 1)


@catalogued
async def test_occurrences_of_a_schedule_that_no_longer_fits_are_parked_and_it_cannot_be_triggered(
    sim: SimulatedHost, shelf: Shelf
) -> None:
    await sim.jobs.schedules.put("s", "send", GOOD, every=10)
    shelf.now = {"send": None}
    await sim.sleep(11)
    [occurrence] = (await sim.jobs.schedules.occurrences("s")).occurrences
    assert occurrence.state == "dead"
    with pytest.raises(InvalidInputError, match="args: expected none"):
        await sim.jobs.schedules.trigger("s", "key")
    await sim.jobs.schedules.pause("s")
    shelf.now = FIRST
    sim.reply = lambda delivery: OK
    assert (await sim.jobs.schedules.trigger("s", "key")).created
    await sim.sleep(1)
    assert len(sim.deliveries) == 1


# ---- The catalog in force ------------------------------------------------------------------------


@catalogued
async def test_a_catalog_that_cannot_be_read_leaves_the_last_one_in_force(sim: SimulatedHost, shelf: Shelf) -> None:
    first = sim.host.catalog
    assert first is not None and sorted(first.functions) == ["any", "none", "send"]
    for wrong in (None, 5, {"send": 5}, {"send": {"type": "nope"}}):
        shelf.now = wrong
        with pytest.raises(InvalidInputError, match=PLACE):
            await sim.jobs.run_after(1, "send", BAD)
        assert sim.host.catalog is first
    shelf.now = growing = {"send": Any}
    await sim.jobs.run_after(1, "send", BAD)
    growing["more"] = Any
    await sim.jobs.run_after(1, "more", BAD)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "catalog must be a dict, a Catalog or a function that gives one, not int"),
        ({"p": 5}, "catalog, functionPath 'p': give a type"),
        (lambda: {"p": 5}, "catalog, functionPath 'p': give a type"),
        (lambda: 1 / 0, r"catalog\(\) raised ZeroDivisionError"),
    ],
)
def test_a_catalog_that_is_none_is_refused_when_the_host_is_made(given: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ActorHost.open("memory:", catalog=given)


class Panic(BaseException):
    """As a library in Rust raises it."""


class Panicking(Expected):
    schema = ANY_ARGS

    def refusal(self, raw: bytes) -> str | None:
        raise Panic("over a secret")


@catalogued
async def test_a_check_that_fails_sends_nothing_and_loses_nothing(sim: SimulatedHost, shelf: Shelf) -> None:
    await sim.jobs.run_after(1, "any", id="a")
    shelf.now = {"any": Panicking()}
    with pytest.raises(InvalidInputError, match="args: their check failed with Panic; the host's log says why"):
        await sim.jobs.run_after(1, "any")
    await sim.sleep(2)
    assert (sim.deliveries, (await dead(sim, "a")).reason) == ([], "blocked")


def test_a_check_that_blocks_the_loop_for_long_is_said_once_for_each_path(caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter(range(100))
    check = CatalogCheck({"p": Any, "q": Any}, lambda: next(seconds))

    class Target:
        function_path: str | None = "p"
        workflow: str | None = None

    other = Target()
    other.function_path = "q"
    with caplog.at_level(logging.WARNING, "tocsin.catalog"):
        for target in (Target(), Target(), other):
            assert check.refusal(target, b"null") is None
    assert [record.getMessage()[:41] for record in caplog.records] == [
        "checking 4 bytes of args of 'p' took 1000",
        "checking 4 bytes of args of 'q' took 1000",
    ]


def test_a_catalog_from_a_coroutine_is_refused() -> None:
    async def later() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {}

    with pytest.raises(SettingsError, match="from a plain function"):
        ActorHost.open("memory:", catalog=later)
