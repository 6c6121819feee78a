"""Dead letters in bulk: counted by reason and path, chosen by ids."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, hang, on_simulated_host
from tocsin.actors.scheduler.model.audit_records import DeadGroups
from tocsin.actors.scheduler.queries import dead_groups
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError


async def bury(sim: SimulatedHost, path: str, *ids: str) -> None:
    for id in ids:
        await sim.jobs.run_after(0, path, id=id, retry=Retry(max_retries=0))
        await sim.sleep(5)


def answer(status: int, words: bytes) -> Answer:
    return Answer(status, {}, words)


@on_simulated_host()
async def test_dead_letters_are_counted_by_reason_and_path(sim: SimulatedHost) -> None:
    assert await sim.jobs.dead_groups() == DeadGroups([], False)
    sim.reply = lambda one: answer(410 if one.body["functionPath"] == "pay:send" else 503, b"down")
    first = sim.now
    await bury(sim, "pay:send", "a", "b")
    await bury(sim, "mail:send", "c", "d", "e")
    sim.reply = lambda _: answer(500, b"other")
    await bury(sim, "pay:send", "f")
    found = await sim.jobs.dead_groups()
    assert [(one.path, one.reason, one.count, one.sample, one.last_status) for one in found.groups] == [
        ("mail:send", "exhausted", 3, "e", 503),
        ("pay:send", "refused", 2, "b", 410),
        ("pay:send", "exhausted", 1, "f", 500),
    ]
    assert not found.truncated and "HTTP 503" in (found.groups[0].last_error or "")
    assert found.groups[1].oldest < first + 5_000 <= found.groups[1].newest


@on_simulated_host()
async def test_no_more_than_so_many_are_looked_at_the_newest_ones(sim: SimulatedHost) -> None:
    sim.reply = lambda _: answer(410, b"gone")
    await bury(sim, "pay:send", *"abcdef")
    page, looked_at = dead_groups.PAGE, dead_groups.LOOKED_AT
    dead_groups.PAGE, dead_groups.LOOKED_AT = 2, 4  # type: ignore[misc]
    try:
        found = await sim.jobs.dead_groups()
    finally:
        dead_groups.PAGE, dead_groups.LOOKED_AT = page, looked_at  # type: ignore[misc]
    assert [(one.count, one.sample) for one in found.groups] == [(4, "f")] and found.truncated


@on_simulated_host()
async def test_a_bulk_retry_of_ids_retries_those_and_no_others_at_its_pace(sim: SimulatedHost) -> None:
    sim.reply = lambda _: answer(410, b"gone")
    await bury(sim, "pay:send", *"abcde")
    sim.reply = lambda _: hang()
    asked = await sim.jobs.dead_retry_all(ids=["e", "a", "nobody", "a", "c"], rate_per_second=2)
    assert (asked.matched, asked.running) == (3, True)
    with pytest.raises(ConflictError, match="goes on, and has every dead job that matches"):
        await sim.jobs.dead_retry_all(ids=["c"])
    assert (await sim.jobs.dead_retry_all(all=True, dry_run=True)).matched == 2
    await sim.sleep(0.5)
    assert {one.id for one in (await sim.jobs.dead()).records} == {"b", "c", "d"}
    await sim.crash()
    await sim.open()
    await sim.sleep(2)
    assert {one.id for one in (await sim.jobs.dead()).records} == {"b", "d"}
    ended = await sim.jobs.redrive(asked.redrive_id)
    assert ended is not None and (ended.retried, ended.running) == (3, False)


@on_simulated_host()
async def test_ids_are_a_list_of_some(sim: SimulatedHost) -> None:
    for wrong in ([], "abc", [f"j{n}" for n in range(1_001)]):
        with pytest.raises(InvalidInputError, match="ids must be a list of 1 to 1,000 ids"):
            await sim.jobs.dead_cancel_all(ids=wrong)
    with pytest.raises(InvalidInputError, match="or all=True and none of them"):
        await sim.jobs.dead_cancel_all(ids=["a"], all=True)
    with pytest.raises(InvalidInputError, match="or all=True and none of them"):
        await sim.jobs.dead_cancel_all()
