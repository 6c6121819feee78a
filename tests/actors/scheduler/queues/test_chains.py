"""`then`: what follows a job starts in the commit that settles it, with its result, or stays with it."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin import Job
from tocsin.actors.scheduler.state.path_counts import path_key
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, PayloadTooLargeError

NO_RETRY = Retry(max_retries=0)


def queued(path: str, *then: Job, **options: object) -> Job:
    return Job(path=path, options={"queue": "q", "then": list(then), **options})


async def run_next(sim: SimulatedHost, result: object = None, wait: float = 0) -> str:
    """Claim the next job of the queue and settle it; what it was to run."""
    [one] = await sim.jobs.claim("q", wait=wait)
    await sim.jobs.complete(one.id, one.lease, result=result)
    return one.function_path or ""


# ---- Starting ------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_chain_runs_link_after_link_and_each_gets_the_result_of_the_one_before(sim: SimulatedHost) -> None:
    first = await sim.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run", queued("c:run"))])
    record = await sim.jobs.get(first)
    assert record is not None
    [b] = record.then
    [c] = b.then
    assert (b.function_path, b.queue, c.function_path) == ("b:run", "q", "c:run")
    await run_next(sim, {"n": 1})
    [second] = await sim.jobs.claim("q", wait=0)
    assert second.parent is not None and (second.id, second.parent.id, second.parent.result) == (b.id, first, {"n": 1})
    assert second.then and (await sim.jobs.get(second.id)).parent == first  # type: ignore[union-attr]
    await sim.jobs.complete(second.id, second.lease, result=None)
    [third] = await sim.jobs.claim("q", wait=0)

    assert third.id == c.id and third.parent is not None and third.parent.result is None and not third.then
    await sim.jobs.complete(third.id, third.lease)
    assert await sim.jobs.claim("q", wait=1) == []


@on_simulated_host()
async def test_several_jobs_may_follow_and_wait_a_while(sim: SimulatedHost) -> None:
    later = Job(path="late:run", after="10m", options={"queue": "q"})
    await sim.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run"), queued("c:run"), later])
    await run_next(sim)
    soon = {await run_next(sim), await run_next(sim)}
    began = sim.now

    assert soon == {"b:run", "c:run"} and await sim.jobs.claim("q", wait=0) == []
    await sim.sleep(590)
    assert await run_next(sim, wait=60) == "late:run" and sim.now - began >= 599_000


@on_simulated_host()
async def test_callbacks_and_queues_mix_in_a_chain_and_a_json_answer_is_a_result(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(200, {"content-type": "application/json; charset=utf-8"}, b'{"rows": 3}')
    await sim.jobs.run_after(0, "called:run", then=[queued("pulled:run", Job(path="called:again"))])
    await sim.sleep(1)
    [one] = await sim.jobs.claim("q", wait=0)
    assert one.parent is not None and one.parent.result == {"rows": 3}
    await sim.jobs.complete(one.id, one.lease, result=[1])
    await sim.sleep(1)
    last = sim.deliveries[-1].body

    assert last["functionPath"] == "called:again" and last["parent"] == {"id": one.id, "result": [1]}


@pytest.mark.parametrize("answer", [OK, Answer(200, {"content-type": "application/json"}, b"{"), Answer(204, {}, b"")])
def test_an_answer_that_is_no_json_is_no_result(answer: Answer) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.reply = lambda one: answer
        await sim.jobs.run_after(0, "called:run", then=[queued("pulled:run")])
        await sim.sleep(1)
        [one] = await sim.jobs.claim("q", wait=0)
        assert one.parent is not None and one.parent.result is None

    run()


@on_simulated_host()
async def test_long_chains_with_long_args_survive_restarts(sim: SimulatedHost) -> None:
    """Args and what follows fill several rows."""
    args = "x" * 100_000
    following = Job(path="b:run", args=args, options={"queue": "q", "then": [Job(path="c:run", args=args)]})
    await sim.jobs.run_after(0, "a:run", args, queue="q", then=[following])
    await sim.crash()
    await sim.open()
    [a] = await sim.jobs.claim("q", wait=0)
    assert a.args == args
    await sim.jobs.complete(a.id, a.lease, result="y" * 60_000)
    await sim.crash()
    await sim.open()
    [b] = await sim.jobs.claim("q", wait=0)
    assert b.args == args and b.parent is not None and b.parent.result == "y" * 60_000
    await sim.jobs.complete(b.id, b.lease)
    await sim.sleep(1)

    assert sim.deliveries[-1].body["args"] == args


@on_simulated_host()
async def test_many_parents_that_end_at_once_start_what_follows_in_several_turns(sim: SimulatedHost) -> None:
    """One commit holds 8 MiB."""
    big = "x" * 200_000
    for n in range(60):
        await sim.jobs.run_after(1, "a:run", id=f"p{n}", then=[Job(path="b:run", args=big)])
    await sim.sleep(30)

    assert sum(one.body["functionPath"] == "b:run" for one in sim.deliveries) == 60


@on_simulated_host()
async def test_many_parents_with_many_small_followers_fit_their_commits(sim: SimulatedHost) -> None:
    """A commit holds 10,000 rows: 200 jobs that start 20 each are settled in several."""
    at = sim.now + 1_000
    for _ in range(2):
        await sim.jobs.submit_many([
            Job(path="a:run", at=at, options={"then": [
                Job(path=f"b:{n}", options={"queue": "q", "expires_at": at + 10**9}) for n in range(20)
            ]})
            for _ in range(100)
        ])  # fmt: skip
    await sim.sleep(20)

    assert (await sim.jobs.pending("b:")).count == 4_000


# ---- Not starting --------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_failed_attempt_starts_nothing(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run")])
    [one] = await sim.jobs.claim("q")
    await sim.jobs.complete(one.id, one.lease, ok=False, delay=5)
    assert (await sim.jobs.pending("b:")).pending
    await sim.sleep(4)
    assert await sim.jobs.claim("q", wait=0) == []
    assert [await run_next(sim, wait=10), await run_next(sim)] == ["a:run", "b:run"]


@on_simulated_host()
async def test_a_dead_parent_keeps_its_chain_and_a_retry_goes_on_with_it(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:run", id="a", queue="q", retry=NO_RETRY, then=[queued("b:run")])
    [one] = await sim.jobs.claim("q")
    await sim.jobs.complete("a", one.lease, ok=False)
    dead = await sim.jobs.get("a")
    assert dead is not None and dead.state == "dead" and [one.function_path for one in dead.then] == ["b:run"]
    assert not (await sim.jobs.pending("b:")).pending
    await sim.jobs.dead_retry("a")

    assert (await sim.jobs.pending("b:")).count == 1
    assert [await run_next(sim), await run_next(sim)] == ["a:run", "b:run"]


@on_simulated_host()
async def test_cancelling_a_job_takes_its_chain_along_also_while_it_runs(sim: SimulatedHost) -> None:
    for running in (False, True):
        await sim.jobs.run_after(0, "a:run", id="a", queue="q", then=[queued("b:run")])
        lease = (await sim.jobs.claim("q"))[0].lease if running else None
        await sim.jobs.cancel("a")
        if lease is not None:
            await sim.jobs.complete("a", lease)
        assert await sim.jobs.claim("q", wait=0) == [] and not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_a_late_success_starts_what_follows_once(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:run", id="a", queue="q", then=[queued("b:run")])
    [one] = await sim.jobs.claim("q", lease_ms=1_000)
    await sim.sleep(2)
    for _ in range(3):
        await sim.jobs.complete("a", one.lease)

    assert await run_next(sim) == "b:run" and await sim.jobs.claim("q", wait=0) == []


# ---- Limits --------------------------------------------------------------------------------------


@on_simulated_host()
async def test_what_cannot_follow_is_refused_and_says_where(sim: SimulatedHost) -> None:
    deep = queued("x:run")
    for _ in range(50):
        deep = queued("x:run", deep)
    for then, words in (
        ([Job(path="b:run", at=sim.now)], r"then\[0\]\.at"),
        ([queued("b:run"), queued("c:run", id="mine")], r"then\[1\]: id cannot be given"),
        ([queued("b:run", on_conflict="keep")], "on_conflict cannot be given"),
        ([queued("b:run", priority=10)], r"then\[0\]: priority must be -9\.\.9"),
        ([queued("b:run", queued("c:run", priority=10))], r"then\[0\]: then\[0\]: priority"),
        ([Job(options={"queue": "q"})], r"then\[0\]: give exactly one of path and workflow"),
        ([queued(f"b{n}:run") for n in range(21)], "then starts 21 jobs, at most 20"),
        ([queued("b:run", *[queued("c:run") for _ in range(20)]) for _ in range(5)], "the chain has 105 jobs"),
        ([deep], "deeper than 50 levels"),
        ("b:run", "then must be a list of Job"),
        ([{"path": "b:run"}], r"then\[0\] must be a Job"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            await sim.jobs.run_after(0, "a:run", queue="q", then=then)  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLargeError, match="then: 4"):
        await sim.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run") for _ in range(2)] + [
            Job(path="b:run", args="x" * 200_000, options={"queue": "q"}) for _ in range(2)
        ])  # fmt: skip
    assert not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_keep_knows_the_same_chain_though_its_ids_are_others(sim: SimulatedHost) -> None:
    async def submit(path: str) -> object:
        options = {"id": "a", "queue": "q", "on_conflict": "keep", "then": [queued(path)]}
        new = sim.port.checks.job(Job(path="a:run", at=sim.now + 9_999, options=options))
        return (await sim.port.jobs.submit(new)).identical

    await submit("b:run")
    assert [await submit("b:run"), await submit("c:run")] == [True, False]


# ---- What pends ----------------------------------------------------------------------------------


@on_simulated_host()
async def test_pending_sees_what_waits_runs_retries_and_follows(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(100, "mail:send", queue="q", then=[queued("mail:log", queued("audit:write"))])
    await sim.jobs.run_after(0, "pdf:make", queue="q")
    await sim.jobs.run_after(100, None, workflow="mail-flow")
    counts = {prefix: (await sim.jobs.pending(prefix)).count for prefix in ("mail", "mail:", "audit:", "pdf", "", "z")}
    assert counts == {"mail": 3, "mail:": 2, "audit:": 1, "pdf": 1, "": 5, "z": 0}
    assert await run_next(sim) == "pdf:make"

    assert not (await sim.jobs.pending("pdf")).pending


@on_simulated_host()
async def test_pending_counts_survive_restarts_and_paths_of_any_length(sim: SimulatedHost) -> None:
    long = "p" * 400 + "\N{SNOWMAN}" * 112
    wide = "\N{SNOWMAN}" * 300  # longer than what a key holds of it
    for path in (long, "p" * 512, "a/b", "a", wide):
        await sim.jobs.run_after(100, path, queue="q")
    await sim.crash()
    await sim.open()

    assert len(path_key("\N{SNOWMAN}" * 512)) <= 1_024
    assert {(await sim.jobs.pending(prefix)).count for prefix in (long, "p" * 512, "a/", wide, wide[:9])} == {1}
    assert (await sim.jobs.pending("p" * 400)).count == 2
    await sim.jobs.cancel_all(all=True)
    assert not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_who_asked_for_a_chain_is_the_initiator_of_all_its_jobs(sim: SimulatedHost) -> None:
    """Rules of the app ask for them; a follower without one would pass as nobody's."""
    await sim.jobs.run_after(0, "a:run", queue="q", initiator="alice", then=[queued("b:run", queued("c:run"))])
    for path in ("a:run", "b:run", "c:run"):
        [record] = (await sim.jobs.list()).records
        assert record.function_path == path
        assert record.initiator is not None and record.initiator.user == "alice"
        await run_next(sim)
