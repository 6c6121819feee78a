"""Turns on real rows: what they write, and what they do about rows that are not as they should be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.actors.scheduler.turn_runner import NOW, TurnRunner
from tocsin.actors.scheduler.actor.expiry import end_leases, return_unsent, run_timers
from tocsin.actors.scheduler.model.crockford import crockford
from tocsin.actors.scheduler.model.rows import META_LAYOUT, at_key, job_key, lease_key, lines_key
from tocsin.actors.scheduler.transitions.claim import Claim, claim
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.actors.scheduler.transitions.submit import cancel, submit
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.errors import StoreSchema
from tocsin.storage.api import Batch
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def runner() -> AsyncIterator[TurnRunner]:
    provider = MemoryProvider()
    await provider.start()
    yield await TurnRunner.open(provider)
    await provider.stop()


def done(one: Claim) -> AttemptResult:
    return AttemptResult(one.job, one.token, AttemptOutcome(Verdict.DONE, status=200))


# ---- Rows written --------------------------------------------------------------------------------


async def test_a_job_alone_costs_at_most_fourteen_rows() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job()]))
        here.rows = 0
        for _ in range(50):
            await here.turn(lambda turn: submit(turn, [here.job()]))
            await here.run_due(1)

        assert here.rows / 50 <= 14.1
        assert await here.faults() == []


async def test_jobs_in_turns_of_64_cost_at_most_seven_rows_each() -> None:
    async with runner() as here:
        for _ in range(10):
            await here.turn(lambda turn: submit(turn, [here.job() for _ in range(64)]))
            await here.run_due(64)

        assert here.rows / 640 <= 7.2
        assert await here.faults() == []


async def test_waiting_in_a_full_pool_writes_nothing_however_long() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job(pool="p") for _ in range(100)]))
        (holder,) = await here.turn(lambda turn: claim(turn, 64))
        here.rows = 0
        for _ in range(100):
            here.now += 60_000
            assert await here.turn(lambda turn: claim(turn, 64)) == []

        assert here.rows == 0
        await here.turn(lambda turn: settle(turn, [done(holder)]))
        assert len(await here.turn(lambda turn: claim(turn, 64))) == 1


# ---- Leases --------------------------------------------------------------------------------------


async def test_a_lease_of_this_process_that_is_not_live_goes_back_uncharged() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x")]))
        (one,) = await here.turn(lambda turn: claim(turn, 1))
        await here.turn(lambda turn: return_unsent(turn, lambda token: token == one.token))
        assert here.state.lease_of("x") == one.token
        await here.turn(lambda turn: return_unsent(turn, lambda token: False))

        assert here.state.lease_of("x") is None
        (again,) = await here.turn(lambda turn: claim(turn, 1))
        assert (again.lease.at.attempt, again.lease.at.attempts, again.lease.at.losses) == (2, 0, 0)
        assert await here.faults() == []


async def test_an_answer_with_a_token_nobody_knows_changes_nothing() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x")]))
        (one,) = await here.turn(lambda turn: claim(turn, 1))
        forged = AttemptResult(one.job, "1.99.000000000000000000000000", AttemptOutcome(Verdict.DONE))
        await here.turn(lambda turn: settle(turn, [forged]))

        assert here.state.lease_of("x") == one.token
        assert await here.faults() == []


async def test_a_success_that_comes_after_its_lease_ended_still_counts() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x")]))
        (one,) = await here.turn(lambda turn: claim(turn, 1))
        here.now += 80_000
        await here.turn(lambda turn: end_leases(turn, lambda token: False))
        assert here.state.counters.waiting == 1
        await here.turn(lambda turn: settle(turn, [done(one)]))

        assert here.state.counters.waiting == 0
        assert await here.faults() == []


async def test_a_success_of_an_earlier_attempt_than_the_last_changes_nothing() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x")]))
        (first,) = await here.turn(lambda turn: claim(turn, 1))
        here.now += 80_000
        await here.turn(lambda turn: end_leases(turn, lambda token: False))
        (second,) = await here.turn(lambda turn: claim(turn, 1))
        await here.turn(lambda turn: settle(turn, [done(first)]))
        assert here.state.lease_of("x") == second.token
        here.now += 80_000
        await here.turn(lambda turn: end_leases(turn, lambda token: False))
        await here.turn(lambda turn: settle(turn, [done(first)]))

        assert here.state.counters.waiting == 1, "nor while the job waits for its third"


# ---- Rows that cannot be read --------------------------------------------------------------------


async def test_an_unreadable_job_is_set_aside_and_stops_nobody() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("bad"), here.job("good")]))
        await here.store.commit(Batch({job_key("bad"): b"\xc1garbage"}))
        await here.reload()
        claims = await here.turn(lambda turn: claim(turn, 64))

        assert [one.job.id for one in claims] == ["good"]
        kept = await here.view.scan(b"bad/", b"bad0", limit=10)
        assert dict(kept)[b"bad/job/bad"] == b"\xc1garbage"
        assert b"bad/line///09/%015d/bad" % NOW in dict(kept)
        assert here.state.counters.waiting == 0


async def test_a_line_whose_job_is_missing_is_set_aside() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("gone"), here.job("here")]))
        await here.store.commit(Batch(deletes={job_key("gone")}))
        await here.reload()

        assert [one.job.id for one in await here.turn(lambda turn: claim(turn, 64))] == ["here"]
        assert here.state.counters.waiting == 0


async def test_an_unreadable_summary_of_a_line_is_rebuilt_from_the_line() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job(f"j{n}", delay=n) for n in range(5)]))
        await here.store.commit(Batch({lines_key("", ""): b"\xc1"}))
        await here.reload()
        here.now += 10

        assert len(await here.turn(lambda turn: claim(turn, 64))) == 5


async def test_a_newer_layout_is_refused_with_a_word_on_what_to_do() -> None:
    async with runner() as here:
        await here.store.commit(Batch({META_LAYOUT: b"99"}))

        with pytest.raises(StoreSchema, match=r"layout 99.*upgrade tocsin"):
            await here.reload()


async def test_a_job_in_its_first_place_has_no_row_for_it() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x", delay=1_000)]))

        assert await here.view.scan(b"at/", b"at0", limit=10) == []


async def test_a_job_whose_lease_cannot_be_read_goes_back_to_its_line() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x"), here.job("y", delay=5), here.job("z", delay=9)]))
        (one,) = await here.turn(lambda turn: claim(turn, 1))
        await here.store.commit(Batch({lease_key("x", one.token): b"\xc1"}))
        await here.reload()
        here.now += 10

        assert here.state.counters.waiting == 3
        assert await here.sound()
        assert [one.job.id for one in await here.turn(lambda turn: claim(turn, 9))] == ["x", "y", "z"]


async def test_cancelling_a_job_whose_place_cannot_be_read_takes_its_line_row_along() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x"), here.job("y", delay=60_000)]))
        (one,) = await here.turn(lambda turn: claim(turn, 1))
        failed = AttemptResult(one.job, one.token, AttemptOutcome(Verdict.FAILED, "why"))
        await here.turn(lambda turn: settle(turn, [failed]))
        await here.store.commit(Batch({at_key("x"): b"\xc1"}))
        assert (await here.turn(lambda turn: cancel(turn, "x"))).cancelled
        here.now += 60_000

        assert await here.sound()
        assert [one.job.id for one in await here.turn(lambda turn: claim(turn, 9))] == ["y"]


@pytest.mark.parametrize("key", [b"meta/counters", b"lines/a/b/c", b"lease/x", b"lines//"])
async def test_a_scheduler_starts_in_spite_of_damaged_summaries(key: bytes) -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x"), here.job("y", pool="p")]))
        await here.store.commit(Batch({key: b"\xc1"}))
        await here.reload()

        assert await here.sound()
        assert len(await here.turn(lambda turn: claim(turn, 9))) == 2


async def test_a_misshapen_timer_is_set_aside() -> None:
    async with runner() as here:
        await here.turn(lambda turn: submit(turn, [here.job("x", delay=4, expires_at=NOW + 5)]))
        await here.store.commit(Batch({b"timer/000000000000001": b""}))
        await here.reload()
        here.now += 6
        await here.turn(run_timers)

        assert here.state.counters.expired == 1


# ---- Ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 5, 6, 48, 80, 127, 128])
def test_minted_text_is_base_32_and_sorts_as_its_number(bits: int) -> None:
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    numbers = sorted(Random(bits).getrandbits(bits) for _ in range(200))
    texts = [crockford(number, bits) for number in numbers]

    assert texts == sorted(texts) and {len(text) for text in texts} == {-(-bits // 5)}
    assert [int("".join(f"{digits.index(one):05b}" for one in text), 2) for text in texts] == numbers
