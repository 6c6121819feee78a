"""`on_dead`: what follows the death of a job starts in the commit in which it dies, and is told why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tests.actors.scheduler.test_damaged_args import change
from tocsin import Job
from tocsin.actors.scheduler.model.rows import JobRow, decode, encode, job_key
from tocsin.actors.scheduler.transitions import following
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError

NO_RETRY = Retry(max_retries=0)
LATER = 1_800_000_100_000


def queued(path: str, **options: Any) -> Job:
    return Job(path=path, options={"queue": "q", **options})


async def fail_next(sim: SimulatedHost, **said: Any) -> str:
    """Claim the next job of the queue and settle it as failed; its id."""
    [one] = await sim.jobs.claim("q", wait=0)
    await sim.jobs.complete(one.id, one.lease, ok=False, error="no such mailbox", **said)
    return one.id


# ---- Starting ------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_death_starts_what_is_to_follow_it_and_tells_why(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(
        0, "a:run", id="a", queue="q", retry=NO_RETRY, then=[queued("b:run")], on_dead=[queued("mourn:run")]
    )
    record = await sim.jobs.get("a")
    assert record is not None and [one.function_path for one in record.on_dead] == ["mourn:run"]
    died_at = sim.now
    await fail_next(sim)
    [one] = await sim.jobs.claim("q", wait=0)

    assert (one.function_path, one.id) == ("mourn:run", record.on_dead[0].id)
    assert one.parent is not None and one.parent.id == "a" and one.parent.result is None
    assert one.parent.dead == {
        "reason": "exhausted", "parkedAt": died_at, "attempts": 1, "message": "no such mailbox",
    }  # fmt: skip
    await sim.jobs.complete(one.id, one.lease)
    assert await sim.jobs.claim("q", wait=1) == []


@on_simulated_host()
async def test_success_starts_nothing_of_it_and_pends_no_more(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:run", queue="q", on_dead=[queued("mourn:run")])
    assert (await sim.jobs.pending("mourn:")).count == 1
    [one] = await sim.jobs.claim("q", wait=0)
    await sim.jobs.complete(one.id, one.lease)

    assert await sim.jobs.claim("q", wait=1) == [] and not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_a_callback_that_follows_a_death_carries_the_last_answer(sim: SimulatedHost) -> None:
    sim.reply = lambda one: OK if one.body["functionPath"] == "mourn:run" else Answer(410, {}, b"moved away")
    await sim.jobs.run_after(0, "a:run", id="a", on_dead=[Job(path="mourn:run", after="5s")])
    await sim.sleep(10)
    told = sim.deliveries[-1].body["parent"]

    assert (told["id"], "result" in told) == ("a", False)
    assert told["dead"] | {"parkedAt": 0} == {
        "reason": "refused", "parkedAt": 0, "attempts": 1, "message": "HTTP 410: gone: moved away", "status": 410,
        "response": "moved away",
    }  # fmt: skip


@pytest.mark.parametrize("death", ["lost", "lapsed", "blocked", "damaged", "refused"])
def test_every_kind_of_death_starts_it(death: str) -> None:
    blocked: list[str] = []

    @on_simulated_host(authorize_fire=lambda job: job.function_path not in blocked)
    async def run(sim: SimulatedHost) -> None:
        options: dict[str, Any] = {"queue": "q"} if death in ("lost", "refused") else {}
        retry = Retry(max_retries=0, base_ms=1)
        sim.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "1000"}, b"")
        if death == "blocked":
            blocked.append("a:run")
        await sim.jobs.run_after(1, "a:run", id="a", retry=retry, on_dead=[queued("mourn:run")], **options)
        if death == "damaged":
            await damage(sim, "a")
        for _ in range(5 if death == "lost" else 1 if death == "refused" else 0):
            [one] = await sim.jobs.claim("q", wait=60, lease_ms=1_000)
            if death == "refused":
                await sim.jobs.complete("a", one.lease, ok=False, retryable=False)
            else:
                await sim.sleep(2)
        [one] = await sim.jobs.claim("q", wait=300)
        assert one.function_path == "mourn:run" and one.parent is not None and one.parent.dead is not None
        reasons = {"lapsed": "exhausted"}
        assert one.parent.dead["reason"] == reasons.get(death, death)
        await sim.jobs.dead_cancel("a")  # its args may be damaged on purpose

    run()


async def damage(sim: SimulatedHost, job_id: str) -> None:
    """Change one byte of the args of a job in the store."""

    def edited(value: bytes) -> bytes:
        row = decode(JobRow, job_key(job_id), value)
        return encode(structs.replace(row, args=b"!" + row.args[1:]))

    await change(sim, job_key(job_id), edited)


@on_simulated_host()
async def test_each_death_starts_it_once_and_a_letter_made_dead_again_is_no_death(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:run", id="a", queue="q", retry=NO_RETRY, on_dead=[queued("mourn:run")])
    started: list[str] = []
    for _ in range(2):
        await fail_next(sim)
        [one] = await sim.jobs.claim("q", wait=0)
        started.append(one.id)
        await sim.jobs.complete(one.id, one.lease)
        await sim.sleep(1)
        done = await sim.jobs.dead_retry_all(all=True)
    await sim.jobs.undo(done.redrive_id or "")

    assert len(started) == 2 and await sim.jobs.claim("q", wait=1) == []


@on_simulated_host()
async def test_what_follows_a_death_may_have_followers_of_both_kinds(sim: SimulatedHost) -> None:
    last = queued("last:run", retry=NO_RETRY)
    mourn = queued("mourn:run", retry=NO_RETRY, on_dead=[last], then=[queued("never:run")])
    await sim.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run", retry=NO_RETRY, on_dead=[mourn])])
    [one] = await sim.jobs.claim("q", wait=0)
    await sim.jobs.complete(one.id, one.lease)
    await sim.crash()
    await sim.open()
    for path in ("b:run", "mourn:run"):
        [one] = await sim.jobs.claim("q", wait=0)
        assert one.function_path == path
        await sim.jobs.complete(one.id, one.lease, ok=False)
    [one] = await sim.jobs.claim("q", wait=0)

    assert one.function_path == "last:run"


@on_simulated_host()
async def test_many_deaths_at_once_start_what_follows_in_several_turns(sim: SimulatedHost) -> None:
    """One commit holds 8 MiB; what is left has a timer."""
    big, at = "x" * 200_000, sim.now + 1_000
    sim.reply = lambda one: Answer(410, {}, b"") if one.body["functionPath"] == "a:run" else OK
    for n in range(60):
        await sim.jobs.run_at(at, "a:run", id=f"p{n}", on_dead=[Job(path="b:run", args=big)])
    await sim.sleep(30)
    told = [one.body["parent"]["id"] for one in sim.deliveries if one.body["functionPath"] == "b:run"]

    assert sorted(told) == sorted(f"p{n}" for n in range(60))


@pytest.fixture
def one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first death of a turn fills it, and the others wait a while."""
    monkeypatch.setattr(following, "BYTES_PER_TURN", 1)
    monkeypatch.setattr(following, "AT_ONCE", LATER)


@pytest.mark.usefixtures("one_a_turn")
@on_simulated_host()
async def test_deaths_that_waited_for_room_start_once_over_a_crash_and_a_retry(sim: SimulatedHost) -> None:
    for n in range(9):
        mourn = queued("mourn:run", queue="mourners")
        await sim.jobs.run_after(0, "a:run", id=f"p{n}", queue="q", retry=NO_RETRY, on_dead=[mourn])
    claimed = await sim.jobs.claim("q", max=9, wait=0)
    await asyncio.gather(*(sim.jobs.complete(one.id, one.lease, ok=False) for one in claimed))
    for one in claimed:
        await sim.jobs.dead_retry(one.id)
    await sim.crash()
    await sim.open()
    assert sim.now < LATER
    await sim.sleep(200)
    told = [one.parent.id for one in await sim.jobs.claim("mourners", max=20, wait=0) if one.parent is not None]

    assert len(await sim.jobs.claim("q", max=20, wait=0)) == 9
    assert sorted(told) == sorted(one.id for one in claimed)


# ---- At every door -------------------------------------------------------------------------------


@on_simulated_host()
async def test_occurrences_have_it_from_their_schedule(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("s", "a:run", every="1h", queue="q", retry=NO_RETRY, on_dead=[queued("mourn:run")])
    shown = await sim.jobs.schedules.get("s")
    assert shown is not None and [one.function_path for one in shown.on_dead] == ["mourn:run"]
    ids = []
    for _ in range(2):
        await sim.sleep(3_600)
        await fail_next(sim)
        [one] = await sim.jobs.claim("q", wait=0)
        assert one.function_path == "mourn:run"
        ids.append(one.id)
        await sim.jobs.complete(one.id, one.lease)

    assert len(set(ids)) == 2


@on_simulated_host()
async def test_what_cannot_follow_a_death_is_refused_and_says_where(sim: SimulatedHost) -> None:
    for on_dead, words in (
        ([Job(path="b:run", at=sim.now)], r"on_dead\[0\]\.at"),
        ([queued("b:run"), queued("c:run", id="mine")], r"on_dead\[1\]: id cannot be given"),
        ([queued("b:run", on_dead=[queued("c:run", priority=10)])], r"on_dead\[0\]: on_dead\[0\]: priority"),
        ([queued(f"b{n}:run") for n in range(21)], "on_dead starts 21 jobs, at most 20"),
        ("b:run", "on_dead must be a list of Job"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            await sim.jobs.run_after(0, "a:run", queue="q", on_dead=on_dead)  # type: ignore[arg-type]
    assert not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_keep_knows_the_same_end_though_its_ids_are_others(sim: SimulatedHost) -> None:
    async def submit(path: str) -> object:
        options = {"id": "a", "queue": "q", "on_conflict": "keep", "on_dead": [queued(path)]}
        new = sim.port.checks.job(Job(path="a:run", at=sim.now + 9_999, options=options))
        return (await sim.port.jobs.submit(new)).identical

    await submit("b:run")
    assert [await submit("b:run"), await submit("c:run")] == [True, False]
