"""Damaged bytes inside what a job holds: that job is shown as damaged and dies, and no neighbour notices."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin import Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.damage import json_fault
from tocsin.actors.scheduler.model.rows import (
    HistRow,
    JobRow,
    ResultRow,
    Row,
    args_key,
    decode,
    encode,
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


def change(stage: Stage, key: bytes, how: Callable[[bytes], bytes | None]) -> None:
    """Bytes of a row change in the store, whatever runs."""
    rows = stage.disk.maps[ROWS]
    value = rows.get(key)
    assert value is not None, key
    rows.apply({key: how(value)})


def without_a_whole_chain(row: bytes) -> bytes:
    """In what is to follow, not in the names that the job itself keeps of it."""
    assert row.count(b"next:run") == 2
    return row.replace(b"next:run", b"\xffext:run", 1)


def with_args(args: bytes) -> Callable[[bytes], bytes]:
    return edited(JobRow, args=args)


def edited(kind: type[Row], **changes: object) -> Callable[[bytes], bytes]:
    return lambda value: encode(msgspec.structs.replace(decode(kind, b"", value), **changes))


async def is_damaged(jobs: Scheduler, id: str) -> bool:
    record = await jobs.get(id)
    assert record is not None
    return record.args_damaged


async def died_of_it(stage: Stage, id: str) -> None:
    """It is dead for that reason, and goes: the rows are to be sound afterwards."""
    record = await stage.jobs.get(id)
    assert record is not None and (record.state, record.reason) == ("dead", "damaged")
    assert record.last_error is not None and record.attempt == 0
    told = str(await stage.faults())
    assert f"job {id} " in told or f"the args of job {id}" in told  # `tocsin check` says so too
    assert await stage.jobs.dead_cancel(id)


# ---- Shown ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", NOT_JSON)
def test_a_damaged_job_is_shown_without_its_args_and_breaks_no_page(args: bytes) -> None:
    @staged()
    async def run(stage: Stage) -> None:
        await stage.jobs.submit_many(
            [Job(path="work:run", args={"n": n}, after=60, options={"id": f"j{n}"}) for n in range(3)]
        )
        change(stage, job_key("j1"), with_args(args))
        for order in ("due", "id"):
            page = await stage.jobs.list(order=order)
            shown = json.loads(msgspec.json.encode(page))["records"]
            assert [one.get("args") for one in shown] == [{"n": 0}, None, {"n": 2}]
            assert [one.get("argsDamaged") for one in shown] == [None, True, None]
        record = await stage.jobs.get("j1")
        assert record is not None and record.args_damaged and "args" not in json.loads(msgspec.json.encode(record))
        with pytest.raises(StoreCorrupt, match="job 'j1'"):
            _ = record.args
        await stage.jobs.cancel("j1")

    run()


def test_args_of_which_a_piece_is_missing_are_damaged_too() -> None:
    """Also one in the middle: what is left may well be JSON."""

    @staged()
    async def run(stage: Stage) -> None:
        for piece in (0, 1):
            id = f"long{piece}"
            await stage.jobs.run_after(60, "work:run", LONG, id=id)
            assert not await is_damaged(stage.jobs, id)
            change(stage, args_key(id, piece), lambda _: None)
            assert await is_damaged(stage.jobs, id)
            assert [one.args_damaged for one in (await stage.jobs.list()).records if one.id == id] == [True]
        await stage.sleep(61)
        for piece in (0, 1):
            await died_of_it(stage, f"long{piece}")
        assert stage.deliveries == []

    run()


# ---- Started -------------------------------------------------------------------------------------


@staged()
async def test_a_damaged_job_dies_unsent_and_its_neighbours_run(stage: Stage) -> None:
    await stage.jobs.submit_many(
        [Job(path="work:run", args={"n": n}, after=60, options={"id": f"j{n}", "pool": "p"}) for n in range(5)]
    )
    change(stage, job_key("j2"), with_args(BROKEN))
    await stage.sleep(70)

    assert sorted(one.body["id"] for one in stage.deliveries) == ["j0", "j1", "j3", "j4"]
    assert (await stage.jobs.status()).in_flight == 0
    [end] = await stage.jobs.history("j2")
    assert end.outcome == "damaged" and "no JSON" in (end.error or "")
    assert [one.args_damaged for one in (await stage.jobs.dead()).records] == [True]
    row = decode(JobRow, b"", stage.disk.maps[ROWS].get(job_key("j2")) or b"")
    assert row.args == BROKEN  # kept as it is, for people
    await died_of_it(stage, "j2")


@staged()
async def test_a_worker_gets_the_neighbours_of_a_damaged_job_once_and_whole(stage: Stage) -> None:
    await stage.jobs.submit_many(
        [Job(path="work:run", args={"n": n}, after=0, options={"id": f"j{n}", "queue": "q"}) for n in range(5)]
    )
    change(stage, job_key("j2"), with_args(BROKEN))
    claimed = await stage.jobs.claim("q", max=10, wait=0)

    assert [one.args for one in claimed] == [{"n": n} for n in (0, 1, 3, 4)]
    assert json.loads(msgspec.json.encode(claimed))[2]["args"] == {"n": 3}
    for one in claimed:
        await stage.jobs.complete(one.id, one.lease)
    assert await stage.jobs.claim("q", max=10, wait=0) == []
    await died_of_it(stage, "j2")


@staged()
async def test_a_damaged_job_that_is_retried_dies_again_and_one_that_was_mended_runs(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", {"n": 1}, id="bad", queue="q")
    change(stage, job_key("bad"), with_args(BROKEN))
    assert await stage.jobs.claim("q", wait=0) == []
    assert (await stage.jobs.dead_retry("bad")).retried
    assert await stage.jobs.claim("q", wait=0) == []
    await stage.jobs.dead_retry_all(reason="damaged")
    await stage.sleep(2)
    assert await stage.jobs.claim("q", wait=0) == []
    assert (await stage.jobs.status()).dead == 1
    change(stage, job_key("bad"), with_args(b'{"n": 2}'))
    await stage.jobs.dead_retry("bad")
    [one] = await stage.jobs.claim("q", wait=0)

    assert one.args == {"n": 2}
    await stage.jobs.complete(one.id, one.lease)


@staged()
async def test_a_job_that_asks_to_keep_a_damaged_one_is_told_that_they_differ(stage: Stage) -> None:
    then = [Job(path="next:run")]
    await stage.jobs.run_after(60, "work:run", {"n": 1}, id="bad", then=then)
    change(stage, job_key("bad"), without_a_whole_chain)
    [answer] = await stage.jobs.submit_many(
        [Job(path="work:run", args={"n": 1}, after=60, options={"id": "bad", "on_conflict": "keep", "then": then})]
    )

    assert not isinstance(answer, Exception) and (answer.created, answer.identical) == (False, False)
    await stage.jobs.cancel("bad")


# ---- Chains and results --------------------------------------------------------------------------


@staged()
async def test_a_job_whose_chain_is_damaged_dies_before_it_runs(stage: Stage) -> None:
    """Run as it is, what follows it would be lost, and nobody would see that."""
    await stage.jobs.run_after(60, "work:run", {"n": 1}, id="bad", then=[Job(path="next:run")])
    change(stage, job_key("bad"), without_a_whole_chain)
    assert not await is_damaged(stage.jobs, "bad")  # its args are whole
    await stage.sleep(61)

    record = await stage.jobs.get("bad")
    assert record is not None and record.args == {"n": 1} and record.then == ()
    assert record.last_error is not None and "follow" in record.last_error.message
    assert stage.deliveries == []
    await died_of_it(stage, "bad")


@staged()
async def test_a_follower_with_damaged_args_dies_when_its_turn_comes(stage: Stage) -> None:
    [answer] = await stage.jobs.submit_many(
        [Job(path="work:run", after=60, options={"then": [Job(path="next:run", args={"n": 2})]})]
    )
    assert not isinstance(answer, Exception)
    change(stage, job_key(answer.id), lambda value: value.replace(b'{"n":2}', b'{"n":x}'))
    record = await stage.jobs.get(answer.id)
    assert record is not None
    await stage.sleep(62)

    assert [one.body["functionPath"] for one in stage.deliveries] == ["work:run"]
    await died_of_it(stage, record.then[0].id)


@staged()
async def test_a_job_whose_parents_result_is_damaged_dies_unsent(stage: Stage) -> None:
    await stage.jobs.run_after(0, "a:run", queue="q", then=[Job(path="b:run", after=60, options={"queue": "q"})])
    [one] = await stage.jobs.claim("q", wait=0)
    await stage.jobs.complete(one.id, one.lease, result={"n": 22})
    [follower] = (await stage.jobs.list()).records
    change(stage, job_key(follower.id), lambda value: value.replace(b'{"n":22}', b'{"n":2x}'))
    await stage.sleep(61)

    assert await stage.jobs.claim("q", wait=0) == []
    record = await stage.jobs.get(follower.id)
    assert record is not None and record.last_error is not None and "parent" in record.last_error.message
    assert record.reason == "damaged" and await stage.jobs.dead_cancel(follower.id)


@staged()
async def test_damaged_results_are_left_out_and_said_to_be(stage: Stage) -> None:
    for id in ("good", "bad"):
        await stage.jobs.run_after(0, "a:run", id=id, queue="q", keep_result="1h")
        [one] = await stage.jobs.claim("q", wait=0)
        await stage.jobs.complete(one.id, one.lease, result={"n": 22})
    change(stage, result_key("bad"), edited(ResultRow, result=BROKEN))
    day = hist_day(stage.now // 86_400_000) + b"bad/"
    for key, _ in stage.disk.maps[ROWS].range(day, after(day), 10, False):
        change(stage, key, edited(HistRow, result=BROKEN))

    assert await stage.jobs.result("good") == {"n": 22}
    with pytest.raises(StoreCorrupt, match="job 'bad'"):
        await stage.jobs.result("bad")
    [end] = await stage.jobs.history("bad")
    assert end.result is None and end.result_damaged
    assert json.loads(msgspec.json.encode(await stage.jobs.outcome("bad", 0)))["resultDamaged"]


# ---- Schedules -----------------------------------------------------------------------------------


def _break(kind: str, stage: Stage) -> None:
    if kind == "args":
        change(stage, definition_key("x"), edited(DefinitionRow, args=BROKEN))
    elif kind == "piece":
        change(stage, definition_args_key("x", 0), lambda _: None)
    else:
        change(stage, definition_key("x"), edited(DefinitionRow, then=b"\xff\xff"))


@pytest.mark.parametrize("kind", ["args", "piece"])
def test_occurrences_of_a_schedule_with_damaged_args_die_unsent_and_it_is_shown_as_damaged(kind: str) -> None:
    @staged()
    async def run(stage: Stage) -> None:
        for name in ("w", "x", "y"):
            await stage.jobs.schedules.put(name, "work:run", LONG if kind == "piece" else {"n": 1}, every=60)
        _break(kind, stage)
        page = json.loads(msgspec.json.encode(await stage.jobs.schedules.list()))
        assert [one.get("argsDamaged", False) for one in page["schedules"]] == [False, True, False]
        assert "args" not in page["schedules"][1]
        assert [one for one in await stage.faults() if "args of schedule x" in one]
        await stage.sleep(61)
        assert len(stage.deliveries) == 2
        [dead] = (await stage.jobs.dead()).records
        assert dead.schedule is not None and dead.schedule.name == "x"
        await died_of_it(stage, dead.id)
        await stage.jobs.schedules.put("x", "work:run", {"n": 2}, every=60)
        await stage.sleep(60)
        assert len(stage.deliveries) == 5

    run()


@staged()
async def test_a_schedule_whose_chain_is_damaged_breaks_no_page(stage: Stage) -> None:
    await stage.jobs.schedules.put("w", "work:run", every=60)
    await stage.jobs.schedules.put("x", "work:run", every=60)
    _break("then", stage)

    assert [one.name for one in (await stage.jobs.schedules.list()).schedules] == ["w", "x"]
    await stage.sleep(61)
    assert len(stage.deliveries) == 1
    await stage.jobs.schedules.put("x", "work:run", every=60)
    stage.disk.maps[ROWS].apply({b"bad/" + definition_key("x"): None})


# ---- The check itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"{}", b"null", b'"\xc3\xa9"', b'{"a": [1, 2.5e3, true, "\\u00e9"]}'])
def test_whole_json_has_no_fault(text: bytes) -> None:
    assert json_fault(text) is None
