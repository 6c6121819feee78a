"""Damaged bytes inside what a job holds: that job is shown as damaged and dies, and no neighbour notices."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from tests.actors.scheduler.row_snapshot import edited
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.damage import json_fault
from tocsin.actors.scheduler.model.rows import (
    HistRow,
    JobRow,
    ResultRow,
    args_key,
    decode,
    hist_day,
    job_key,
    result_key,
)
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow, definition_args_key, definition_key
from tocsin.errors import StoreCorrupt
from tocsin.storage.api import after

ROWS = "scheduler/t"
BROKEN = b'{"n": 2x}'
NOT_JSON = [BROKEN, b'{"n": "\xff"}', b"", b'{"n": 1', b'{"n": 1} x', b'{"n": "\x00"}', b"[" * 100_000]
LONG = {"text": "x" * 150_000}
"""Three pieces."""


async def change(sim: SimulatedHost, key: bytes, how: Callable[[bytes], bytes | None]) -> None:
    """Bytes of a row change in the store; what is in memory of it is forgotten."""
    rows = sim.disk.maps[ROWS]
    value = rows.get(key)
    assert value is not None, key
    rows.apply({key: how(value)})
    await sim.host.runtime.evict()


def without_a_whole_chain(row: bytes) -> bytes:
    """In what is to follow, not in the names that the job itself keeps of it."""
    assert row.count(b"next:run") == 2
    return row.replace(b"next:run", b"\xffext:run", 1)


def with_args(args: bytes) -> Callable[[bytes], bytes]:
    return edited(JobRow, args=args)


async def is_damaged(jobs: Scheduler, id: str) -> bool:
    record = await jobs.get(id)
    assert record is not None
    return record.args_damaged


async def died_of_it(sim: SimulatedHost, id: str) -> None:
    """It is dead for that reason, and goes: the rows are to be sound afterwards."""
    record = await sim.jobs.get(id)
    assert record is not None and (record.state, record.reason) == ("dead", "damaged")
    assert record.last_error is not None and record.attempt == 0
    told = str(await sim.faults())
    assert f"job {id} " in told or f"the args of job {id}" in told  # `tocsin check` says so too
    assert await sim.jobs.dead_cancel(id)


# ---- Shown ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", NOT_JSON)
def test_a_damaged_job_is_shown_without_its_args_and_breaks_no_page(args: bytes) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.submit_many(
            [Job(path="work:run", args={"n": n}, after=60, options={"id": f"j{n}"}) for n in range(3)]
        )
        await change(sim, job_key("j1"), with_args(args))
        for order in ("due", "id"):
            page = await sim.jobs.list(order=order)
            shown = json.loads(msgspec.json.encode(page))["records"]
            assert [one.get("args") for one in shown] == [{"n": 0}, None, {"n": 2}]
            assert [one.get("argsDamaged") for one in shown] == [None, True, None]
        record = await sim.jobs.get("j1")
        assert record is not None and record.args_damaged and "args" not in json.loads(msgspec.json.encode(record))
        with pytest.raises(StoreCorrupt, match="job 'j1'"):
            _ = record.args
        await sim.jobs.cancel("j1")

    run()


def test_args_of_which_a_piece_is_missing_are_damaged_too() -> None:
    """Also one in the middle: what is left may well be JSON."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        for piece in (0, 1):
            id = f"long{piece}"
            await sim.jobs.run_after(60, "work:run", LONG, id=id)
            assert not await is_damaged(sim.jobs, id)
            await change(sim, args_key(id, piece), lambda _: None)
            assert await is_damaged(sim.jobs, id)
            assert [one.args_damaged for one in (await sim.jobs.list()).records if one.id == id] == [True]
        await sim.sleep(61)
        for piece in (0, 1):
            await died_of_it(sim, f"long{piece}")
        assert sim.deliveries == []

    run()


# ---- Started -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_damaged_job_dies_unsent_and_its_neighbours_run(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many(
        [Job(path="work:run", args={"n": n}, after=60, options={"id": f"j{n}", "pool": "p"}) for n in range(5)]
    )
    await change(sim, job_key("j2"), with_args(BROKEN))
    await sim.sleep(70)

    assert sorted(one.body["id"] for one in sim.deliveries) == ["j0", "j1", "j3", "j4"]
    assert (await sim.jobs.status()).in_flight == 0
    [end] = await sim.jobs.history("j2")
    assert end.outcome == "damaged" and "no JSON" in (end.error or "")
    assert [one.args_damaged for one in (await sim.jobs.dead()).records] == [True]
    row = decode(JobRow, b"", sim.disk.maps[ROWS].get(job_key("j2")) or b"")
    assert row.args == BROKEN  # kept as it is, for people
    await died_of_it(sim, "j2")


@on_simulated_host()
async def test_a_worker_gets_the_neighbours_of_a_damaged_job_once_and_whole(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many(
        [Job(path="work:run", args={"n": n}, after=0, options={"id": f"j{n}", "queue": "q"}) for n in range(5)]
    )
    await change(sim, job_key("j2"), with_args(BROKEN))
    claimed = await sim.jobs.claim("q", max=10, wait=0)

    assert [one.args for one in claimed] == [{"n": n} for n in (0, 1, 3, 4)]
    assert json.loads(msgspec.json.encode(claimed))[2]["args"] == {"n": 3}
    for one in claimed:
        await sim.jobs.complete(one.id, one.lease)
    assert await sim.jobs.claim("q", max=10, wait=0) == []
    await died_of_it(sim, "j2")


@on_simulated_host()
async def test_a_damaged_job_that_is_retried_dies_again_and_one_that_was_mended_runs(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", {"n": 1}, id="bad", queue="q")
    await change(sim, job_key("bad"), with_args(BROKEN))
    assert await sim.jobs.claim("q", wait=0) == []
    assert (await sim.jobs.dead_retry("bad")).retried
    assert await sim.jobs.claim("q", wait=0) == []
    await sim.jobs.dead_retry_all(reason="damaged")
    await sim.sleep(2)
    assert await sim.jobs.claim("q", wait=0) == []
    assert (await sim.jobs.status()).dead == 1
    await change(sim, job_key("bad"), with_args(b'{"n": 2}'))
    await sim.jobs.dead_retry("bad")
    [one] = await sim.jobs.claim("q", wait=0)

    assert one.args == {"n": 2}
    await sim.jobs.complete(one.id, one.lease)


@on_simulated_host()
async def test_a_job_that_asks_to_keep_a_damaged_one_is_told_that_they_differ(sim: SimulatedHost) -> None:
    then = [Job(path="next:run")]
    await sim.jobs.run_after(60, "work:run", {"n": 1}, id="bad", then=then)
    await change(sim, job_key("bad"), without_a_whole_chain)
    [answer] = await sim.jobs.submit_many(
        [Job(path="work:run", args={"n": 1}, after=60, options={"id": "bad", "on_conflict": "keep", "then": then})]
    )

    assert not isinstance(answer, Exception) and (answer.created, answer.identical) == (False, False)
    await sim.jobs.cancel("bad")


# ---- Chains and results --------------------------------------------------------------------------


@on_simulated_host()
async def test_a_job_whose_chain_is_damaged_dies_before_it_runs(sim: SimulatedHost) -> None:
    """Run as it is, what follows it would be lost, and nobody would see that."""
    await sim.jobs.run_after(60, "work:run", {"n": 1}, id="bad", then=[Job(path="next:run")])
    await change(sim, job_key("bad"), without_a_whole_chain)
    assert not await is_damaged(sim.jobs, "bad")  # its args are whole
    await sim.sleep(61)

    record = await sim.jobs.get("bad")
    assert record is not None and record.args == {"n": 1} and record.then == ()
    assert record.last_error is not None and "follow" in record.last_error.message
    assert sim.deliveries == []
    await died_of_it(sim, "bad")


@on_simulated_host()
async def test_a_follower_with_damaged_args_dies_when_its_turn_comes(sim: SimulatedHost) -> None:
    [answer] = await sim.jobs.submit_many(
        [Job(path="work:run", after=60, options={"then": [Job(path="next:run", args={"n": 2})]})]
    )
    assert not isinstance(answer, Exception)
    await change(sim, job_key(answer.id), lambda value: value.replace(b'{"n":2}', b'{"n":x}'))
    record = await sim.jobs.get(answer.id)
    assert record is not None
    await sim.sleep(62)

    assert [one.body["functionPath"] for one in sim.deliveries] == ["work:run"]
    await died_of_it(sim, record.then[0].id)


@on_simulated_host()
async def test_a_job_whose_parents_result_is_damaged_dies_unsent(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:run", queue="q", then=[Job(path="b:run", after=60, options={"queue": "q"})])
    [one] = await sim.jobs.claim("q", wait=0)
    await sim.jobs.complete(one.id, one.lease, result={"n": 22})
    [follower] = (await sim.jobs.list()).records
    await change(sim, job_key(follower.id), lambda value: value.replace(b'{"n":22}', b'{"n":2x}'))
    await sim.sleep(61)

    assert await sim.jobs.claim("q", wait=0) == []
    record = await sim.jobs.get(follower.id)
    assert record is not None and record.last_error is not None and "parent" in record.last_error.message
    assert record.reason == "damaged" and await sim.jobs.dead_cancel(follower.id)


@on_simulated_host()
async def test_damaged_results_are_left_out_and_said_to_be(sim: SimulatedHost) -> None:
    for id in ("good", "bad"):
        await sim.jobs.run_after(0, "a:run", id=id, queue="q", keep_result="1h")
        [one] = await sim.jobs.claim("q", wait=0)
        await sim.jobs.complete(one.id, one.lease, result={"n": 22})
    await change(sim, result_key("bad"), edited(ResultRow, result=BROKEN))
    day = hist_day(sim.now // 86_400_000) + b"bad/"
    for key, _ in sim.disk.maps[ROWS].range(day, after(day), 10, False):
        await change(sim, key, edited(HistRow, result=BROKEN))

    assert await sim.jobs.result("good") == {"n": 22}
    with pytest.raises(StoreCorrupt, match="job 'bad'"):
        await sim.jobs.result("bad")
    [end] = await sim.jobs.history("bad")
    assert end.result_damaged
    with pytest.raises(StoreCorrupt, match="the result of this attempt was damaged"):
        _ = end.result
    assert json.loads(msgspec.json.encode(await sim.port.queues.outcome("bad", 0)))["resultDamaged"]


# ---- Schedules -----------------------------------------------------------------------------------


async def _break(kind: str, sim: SimulatedHost) -> None:
    if kind == "args":
        await change(sim, definition_key("x"), edited(DefinitionRow, args=BROKEN))
    elif kind == "piece":
        await change(sim, definition_args_key("x", 0), lambda _: None)
    else:
        await change(sim, definition_key("x"), edited(DefinitionRow, then=b"\xff\xff"))


@pytest.mark.parametrize("kind", ["args", "piece"])
def test_occurrences_of_a_schedule_with_damaged_args_die_unsent_and_it_is_shown_as_damaged(kind: str) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        for name in ("w", "x", "y"):
            await sim.jobs.schedules.put(name, "work:run", LONG if kind == "piece" else {"n": 1}, every=60)
        await _break(kind, sim)
        page = json.loads(msgspec.json.encode(await sim.jobs.schedules.list()))
        assert [one.get("argsDamaged", False) for one in page["schedules"]] == [False, True, False]
        assert "args" not in page["schedules"][1]
        assert [one for one in await sim.faults() if "args of schedule x" in one]
        await sim.sleep(61)
        assert len(sim.deliveries) == 2
        [dead] = (await sim.jobs.dead()).records
        assert dead.schedule is not None and dead.schedule.name == "x"
        await died_of_it(sim, dead.id)
        await sim.jobs.schedules.put("x", "work:run", {"n": 2}, every=60)
        await sim.sleep(60)
        assert len(sim.deliveries) == 5

    run()


@on_simulated_host()
async def test_a_schedule_whose_chain_is_damaged_breaks_no_page(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("w", "work:run", every=60)
    await sim.jobs.schedules.put("x", "work:run", every=60)
    await _break("then", sim)

    assert [one.name for one in (await sim.jobs.schedules.list()).schedules] == ["w", "x"]
    await sim.sleep(61)
    assert len(sim.deliveries) == 1
    await sim.jobs.schedules.put("x", "work:run", every=60)
    sim.disk.maps[ROWS].apply({b"bad/" + definition_key("x"): None})


# ---- The check itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"{}", b"null", b'"\xc3\xa9"', b'{"a": [1, 2.5e3, true, "\\u00e9"]}'])
def test_whole_json_has_no_fault(text: bytes) -> None:
    assert json_fault(text) is None
