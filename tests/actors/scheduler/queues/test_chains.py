"""`then`: what follows a job starts in the commit that settles it, with its result, or stays with it."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin import Job
from tocsin.actors.scheduler.state.path_counts import path_key
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, PayloadTooLargeError

NO_RETRY = Retry(max_retries=0)


def queued(path: str, *then: Job, **options: object) -> Job:
    return Job(path=path, options={"queue": "q", "then": list(then), **options})


async def run_next(stage: Stage, result: object = None, wait: float = 0) -> str:
    """Claim the next job of the queue and settle it; what it was to run."""
    [one] = await stage.jobs.claim("q", wait=wait)
    await stage.jobs.complete(one.id, one.lease, result=result)
    return one.function_path or ""


# ---- Starting ------------------------------------------------------------------------------------


@staged()
async def test_a_chain_runs_link_after_link_and_each_gets_the_result_of_the_one_before(stage: Stage) -> None:
    first = await stage.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run", queued("c:run"))])
    record = await stage.jobs.get(first)
    assert record is not None
    [b] = record.then
    [c] = b.then
    assert (b.function_path, b.queue, c.function_path) == ("b:run", "q", "c:run")
    await run_next(stage, {"n": 1})
    [second] = await stage.jobs.claim("q", wait=0)
    assert second.parent is not None and (second.id, second.parent.id, second.parent.result) == (b.id, first, {"n": 1})
    assert second.then and (await stage.jobs.get(second.id)).parent == first  # type: ignore[union-attr]
    await stage.jobs.complete(second.id, second.lease, result=None)
    [third] = await stage.jobs.claim("q", wait=0)

    assert third.id == c.id and third.parent is not None and third.parent.result is None and not third.then
    await stage.jobs.complete(third.id, third.lease)
    assert await stage.jobs.claim("q", wait=1) == []


@staged()
async def test_several_jobs_may_follow_and_wait_a_while(stage: Stage) -> None:
    later = Job(path="late:run", after="10m", options={"queue": "q"})
    await stage.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run"), queued("c:run"), later])
    await run_next(stage)
    soon = {await run_next(stage), await run_next(stage)}
    began = stage.now

    assert soon == {"b:run", "c:run"} and await stage.jobs.claim("q", wait=0) == []
    await stage.sleep(590)
    assert await run_next(stage, wait=60) == "late:run" and stage.now - began >= 599_000


@staged()
async def test_callbacks_and_queues_mix_in_a_chain_and_a_json_answer_is_a_result(stage: Stage) -> None:
    stage.reply = lambda one: Answer(200, {"content-type": "application/json; charset=utf-8"}, b'{"rows": 3}')
    await stage.jobs.run_after(0, "called:run", then=[queued("pulled:run", Job(path="called:again"))])
    await stage.sleep(1)
    [one] = await stage.jobs.claim("q", wait=0)
    assert one.parent is not None and one.parent.result == {"rows": 3}
    await stage.jobs.complete(one.id, one.lease, result=[1])
    await stage.sleep(1)
    last = stage.deliveries[-1].body

    assert last["functionPath"] == "called:again" and last["parent"] == {"id": one.id, "result": [1]}


@pytest.mark.parametrize("answer", [OK, Answer(200, {"content-type": "application/json"}, b"{"), Answer(204, {}, b"")])
def test_an_answer_that_is_no_json_is_no_result(answer: Answer) -> None:
    @staged()
    async def run(stage: Stage) -> None:
        stage.reply = lambda one: answer
        await stage.jobs.run_after(0, "called:run", then=[queued("pulled:run")])
        await stage.sleep(1)
        [one] = await stage.jobs.claim("q", wait=0)
        assert one.parent is not None and one.parent.raw_result is None

    run()


@staged()
async def test_long_chains_with_long_args_survive_restarts(stage: Stage) -> None:
    """Args and what follows fill several rows."""
    args = "x" * 100_000
    following = Job(path="b:run", args=args, options={"queue": "q", "then": [Job(path="c:run", args=args)]})
    await stage.jobs.run_after(0, "a:run", args, queue="q", then=[following])
    await stage.crash()
    await stage.open()
    [a] = await stage.jobs.claim("q", wait=0)
    assert a.args == args
    await stage.jobs.complete(a.id, a.lease, result="y" * 60_000)
    await stage.crash()
    await stage.open()
    [b] = await stage.jobs.claim("q", wait=0)
    assert b.args == args and b.parent is not None and b.parent.result == "y" * 60_000
    await stage.jobs.complete(b.id, b.lease)
    await stage.sleep(1)

    assert stage.deliveries[-1].body["args"] == args


@staged()
async def test_many_parents_that_end_at_once_start_what_follows_in_several_turns(stage: Stage) -> None:
    """One commit holds 8 MiB."""
    big = "x" * 200_000
    for n in range(60):
        await stage.jobs.run_after(1, "a:run", id=f"p{n}", then=[Job(path="b:run", args=big)])
    await stage.sleep(30)

    assert sum(one.body["functionPath"] == "b:run" for one in stage.deliveries) == 60


@staged()
async def test_many_parents_with_many_small_followers_fit_their_commits(stage: Stage) -> None:
    """A commit holds 10,000 rows: 200 jobs that start 20 each are settled in several."""
    at = stage.now + 1_000
    for _ in range(2):
        await stage.jobs.submit_many([
            Job(path="a:run", at=at, options={"then": [
                Job(path=f"b:{n}", options={"queue": "q", "expires_at": at + 10**9}) for n in range(20)
            ]})
            for _ in range(100)
        ])  # fmt: skip
    await stage.sleep(20)

    assert (await stage.jobs.pending("b:")).count == 4_000


# ---- Not starting --------------------------------------------------------------------------------


@staged()
async def test_a_failed_attempt_starts_nothing(stage: Stage) -> None:
    await stage.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run")])
    [one] = await stage.jobs.claim("q")
    await stage.jobs.complete(one.id, one.lease, ok=False, delay=5)
    assert (await stage.jobs.pending("b:")).pending
    await stage.sleep(4)
    assert await stage.jobs.claim("q", wait=0) == []
    assert [await run_next(stage, wait=10), await run_next(stage)] == ["a:run", "b:run"]


@staged()
async def test_a_dead_parent_keeps_its_chain_and_a_retry_goes_on_with_it(stage: Stage) -> None:
    await stage.jobs.run_after(0, "a:run", id="a", queue="q", retry=NO_RETRY, then=[queued("b:run")])
    [one] = await stage.jobs.claim("q")
    await stage.jobs.complete("a", one.lease, ok=False)
    dead = await stage.jobs.get("a")
    assert dead is not None and dead.state == "dead" and [one.function_path for one in dead.then] == ["b:run"]
    assert not (await stage.jobs.pending("b:")).pending
    await stage.jobs.dead_retry("a")

    assert (await stage.jobs.pending("b:")).count == 1
    assert [await run_next(stage), await run_next(stage)] == ["a:run", "b:run"]


@staged()
async def test_cancelling_a_job_takes_its_chain_along_also_while_it_runs(stage: Stage) -> None:
    for running in (False, True):
        await stage.jobs.run_after(0, "a:run", id="a", queue="q", then=[queued("b:run")])
        lease = (await stage.jobs.claim("q"))[0].lease if running else None
        await stage.jobs.cancel("a")
        if lease is not None:
            await stage.jobs.complete("a", lease)
        assert await stage.jobs.claim("q", wait=0) == [] and not (await stage.jobs.pending()).pending


@staged()
async def test_a_late_success_starts_what_follows_once(stage: Stage) -> None:
    await stage.jobs.run_after(0, "a:run", id="a", queue="q", then=[queued("b:run")])
    [one] = await stage.jobs.claim("q", lease_ms=1_000)
    await stage.sleep(2)
    for _ in range(3):
        await stage.jobs.complete("a", one.lease)

    assert await run_next(stage) == "b:run" and await stage.jobs.claim("q", wait=0) == []


# ---- Limits --------------------------------------------------------------------------------------


@staged()
async def test_what_cannot_follow_is_refused_and_says_where(stage: Stage) -> None:
    deep = queued("x:run")
    for _ in range(50):
        deep = queued("x:run", deep)
    for then, words in (
        ([Job(path="b:run", at=stage.now)], r"then\[0\]\.at"),
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
            await stage.jobs.run_after(0, "a:run", queue="q", then=then)  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLargeError, match="then: 4"):
        await stage.jobs.run_after(0, "a:run", queue="q", then=[queued("b:run") for _ in range(2)] + [
            Job(path="b:run", args="x" * 200_000, options={"queue": "q"}) for _ in range(2)
        ])  # fmt: skip
    assert not (await stage.jobs.pending()).pending


@staged()
async def test_keep_knows_the_same_chain_though_its_ids_are_others(stage: Stage) -> None:
    async def submit(path: str) -> object:
        new = stage.jobs._new_job("a:run", None, b"{}", stage.now + 9_999, stage.jobs._wire_options(
            {"id": "a", "queue": "q", "on_conflict": "keep", "then": [queued(path)]}
        ))  # fmt: skip
        return (await stage.jobs.submit(new)).identical

    await submit("b:run")
    assert [await submit("b:run"), await submit("c:run")] == [True, False]


# ---- What pends ----------------------------------------------------------------------------------


@staged()
async def test_pending_sees_what_waits_runs_retries_and_follows(stage: Stage) -> None:
    await stage.jobs.run_after(100, "mail:send", queue="q", then=[queued("mail:log", queued("audit:write"))])
    await stage.jobs.run_after(0, "pdf:make", queue="q")
    await stage.jobs.run_after(100, None, workflow="mail-flow")
    counts = {
        prefix: (await stage.jobs.pending(prefix)).count for prefix in ("mail", "mail:", "audit:", "pdf", "", "z")
    }
    assert counts == {"mail": 3, "mail:": 2, "audit:": 1, "pdf": 1, "": 5, "z": 0}
    assert await run_next(stage) == "pdf:make"

    assert not (await stage.jobs.pending("pdf")).pending


@staged()
async def test_pending_counts_survive_restarts_and_paths_of_any_length(stage: Stage) -> None:
    long = "p" * 400 + "\N{SNOWMAN}" * 112
    wide = "\N{SNOWMAN}" * 300  # longer than what a key holds of it
    for path in (long, "p" * 512, "a/b", "a", wide):
        await stage.jobs.run_after(100, path, queue="q")
    await stage.crash()
    await stage.open()

    assert len(path_key("\N{SNOWMAN}" * 512)) <= 1_024
    assert {(await stage.jobs.pending(prefix)).count for prefix in (long, "p" * 512, "a/", wide, wide[:9])} == {1}
    assert (await stage.jobs.pending("p" * 400)).count == 2
    await stage.jobs.cancel_all(all=True)
    assert not (await stage.jobs.pending()).pending


@staged()
async def test_who_asked_for_a_chain_is_the_initiator_of_all_its_jobs(stage: Stage) -> None:
    """Rules of the app ask for them; a follower without one would pass as nobody's."""
    await stage.jobs.run_after(0, "a:run", queue="q", initiator="alice", then=[queued("b:run", queued("c:run"))])
    for path in ("a:run", "b:run", "c:run"):
        [record] = (await stage.jobs.list()).records
        assert record.function_path == path
        assert record.initiator is not None and record.initiator.user == "alice"
        await run_next(stage)
