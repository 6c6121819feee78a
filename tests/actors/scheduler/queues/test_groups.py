"""Groups: what follows starts once, in the commit in which the last member ends, whatever becomes of each."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin import Group, Job
from tocsin.actors.scheduler.model import groups as model
from tocsin.actors.scheduler.model.group_records import GroupRecord
from tocsin.actors.scheduler.transitions import groups, stopping
from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError, PayloadTooLargeError

NO_RETRY = Retry(max_retries=0)
THEN = [Job(path="all:done", options={"queue": "end"})]
ON_DEAD = [Job(path="some:died", options={"queue": "end"})]


async def member(sim: SimulatedHost, id: str, group: str | Group | None = "g", **options: Any) -> None:
    await sim.jobs.run_after(0, "a:run", id=id, queue="q", group=group, **{"retry": NO_RETRY, **options})


async def work(sim: SimulatedHost, *, ok: bool = True, most: int = 100) -> list[str]:
    """Claim members and settle them; their ids."""
    claimed = await sim.jobs.claim("q", max=most, wait=0)
    await asyncio.gather(*(sim.jobs.complete(one.id, one.lease, ok=ok) for one in claimed))
    return [one.id for one in claimed]


async def ends(sim: SimulatedHost) -> list[Claimed]:
    """Return what has followed since it was asked last; it is done then."""
    claimed = await sim.jobs.claim("end", max=100, wait=0)
    for one in claimed:
        await sim.jobs.complete(one.id, one.lease)
    return claimed


async def group(sim: SimulatedHost, name: str = "g") -> GroupRecord:
    found = await sim.jobs.groups.get(name)
    assert found is not None
    return found


def counts(one: GroupRecord) -> dict[str, int]:
    return {name: count for name in model.COUNTS if (count := getattr(one, name))}


# ---- Complete ------------------------------------------------------------------------------------


@on_simulated_host()
async def test_what_follows_starts_when_the_last_member_of_a_sealed_group_is_done(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g", then=THEN, on_dead=ON_DEAD)
    for n in range(3):
        await member(sim, f"m{n}")
    await work(sim)
    assert await ends(sim) == [] and counts(await group(sim)) == {"members": 3, "done": 3}
    await member(sim, "m3")
    sealed = await sim.jobs.groups.seal("g")
    assert (sealed.state, sealed.sealed, sealed.open) == ("open", True, 1) and await ends(sim) == []
    await work(sim)
    [one] = await ends(sim)

    assert one.function_path == "all:done" and one.parent is not None and one.parent.group and one.parent.id == "g"
    assert one.parent.result == {"members": 4, "done": 4, "dead": 0, "cancelled": 0, "expired": 0}
    record = await group(sim)
    assert (record.state, record.ended_at, counts(record)) == ("done", sim.now, {"members": 4, "done": 4})
    assert (await sim.jobs.groups.members("g")).records == []


@on_simulated_host()
async def test_a_group_of_a_size_is_made_by_its_first_job_and_needs_no_seal(sim: SimulatedHost) -> None:
    made = Group("g", then=THEN, size=3)
    for n in range(3):
        await member(sim, f"m{n}", made)
        await work(sim)
    [one] = await ends(sim)

    assert one.function_path == "all:done" and (await group(sim)).state == "done"
    with pytest.raises(ConflictError, match="group 'g' is complete"):
        await member(sim, "late", "g")


@on_simulated_host()
async def test_some_dead_members_start_the_other_jobs_once_and_a_retry_that_succeeds_completes_it(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.groups.open("g", then=THEN, on_dead=ON_DEAD)
    for id in ("m0", "m1"):
        await member(sim, id)
    await sim.jobs.groups.seal("g")
    await work(sim, ok=False)
    [one] = await ends(sim)
    assert one.function_path == "some:died" and one.parent is not None and one.parent.result["dead"] == 2
    assert (await group(sim)).state == "dead" and len((await sim.jobs.groups.members("g")).records) == 2

    await sim.jobs.dead_retry("m0")
    assert ((await group(sim)).state, counts(await group(sim))) == ("open", {"members": 2, "open": 1, "dead": 1})
    await work(sim)
    assert await ends(sim) == [] and (await group(sim)).state == "dead"
    await sim.jobs.dead_retry("m1")
    await work(sim, ok=False)
    assert await ends(sim) == []
    await sim.jobs.dead_retry("m1")
    await work(sim)
    [one] = await ends(sim)
    assert one.function_path == "all:done" and (await group(sim)).state == "done"


@on_simulated_host()
async def test_cancelled_expired_and_replaced_members_end_too(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g", then=THEN, on_dead=ON_DEAD)
    await member(sim, "m0")
    await sim.jobs.run_after(3600, "a:run", id="m1", group="g")
    await sim.jobs.run_after(3600, "a:run", id="m2", queue="q", group="g", on_conflict="replace")
    await sim.jobs.run_after(7200, "a:run", id="m2", queue="q", group="g", on_conflict="replace")
    await sim.jobs.run_after(0, "a:run", id="m3", queue="q", group="g", expires_at=sim.now + 1_000)
    await sim.jobs.groups.seal("g")
    assert counts(await group(sim)) == {"members": 4, "open": 4}
    [one] = await sim.jobs.claim("q", wait=0, max=1)
    for id in ("m0", "m1", "m2"):
        await sim.jobs.cancel(id)
    if one.id == "m3":
        await sim.jobs.complete(one.id, one.lease, ok=False, retryable=True, delay=5)
    await sim.sleep(10)
    [end] = await ends(sim)

    assert end.function_path == "all:done"
    assert counts(await group(sim)) in (
        {"members": 4, "cancelled": 3, "expired": 1},
        {"members": 4, "cancelled": 3, "dead": 1},
    )


@on_simulated_host()
async def test_a_member_that_starts_another_as_it_ends_never_leaves_the_group_complete(sim: SimulatedHost) -> None:
    """Also in a sealed group: what was to follow a member was known when it joined."""
    await sim.jobs.groups.open("g", then=THEN)
    second = Job(path="b:run", options={"queue": "q", "group": "g"})
    await member(sim, "m0", then=[second, second])
    await sim.jobs.groups.seal("g")
    await work(sim, most=1)
    assert await ends(sim) == [] and counts(await group(sim)) == {"members": 3, "open": 2, "done": 1}
    await work(sim)

    assert [one.function_path for one in await ends(sim)] == ["all:done"]


@on_simulated_host()
async def test_an_empty_group_is_complete_when_it_is_sealed(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g", then=THEN)
    assert (await sim.jobs.pending("all:")).count == 1
    assert (await sim.jobs.groups.seal("g")).state == "done" == (await sim.jobs.groups.seal("g")).state

    assert len(await ends(sim)) == 1 and not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_what_follows_may_call_back_and_join_another_group(sim: SimulatedHost) -> None:
    sim.reply = lambda one: OK
    await sim.jobs.groups.open("outer", then=[Job(path="outer:done")])
    await sim.jobs.groups.open("inner", then=[Job(path="inner:done", options={"group": "outer"})])
    await member(sim, "m0", "inner")
    await sim.jobs.groups.seal("inner")
    await work(sim)
    await sim.jobs.groups.seal("outer")
    await sim.sleep(1)

    assert [one.body["functionPath"] for one in sim.deliveries] == ["inner:done", "outer:done"]
    assert sim.deliveries[-1].body["parent"]["group"] is True


# ---- Over crashes --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_what_follows_starts_once_after_the_last_over_crashes_retries_and_undos(seed: int) -> None:
    """Callbacks that fail, deaths, retries, cancels that are undone, and hosts that die between."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        random = Random(seed)
        failing = True
        sim.reply = lambda one: (
            Answer(500, {}, b"") if failing and one.body["functionPath"] == "a:run" and random.random() < 0.4 else OK
        )
        await sim.jobs.groups.open("g", then=[Job(path="all:done")], on_dead=[Job(path="some:died")])
        for n in range(24):
            await sim.jobs.run_after(
                n % 5, "a:run", id=f"m{n}", group="g", labels=["l"], retry=Retry(max_retries=1, base_ms=500)
            )
        await sim.jobs.groups.seal("g")
        for _ in range(12):
            match random.randrange(5):
                case 0:
                    await sim.crash()
                    await sim.open()
                case 1:
                    done = await sim.jobs.cancel_all(label="l")
                    if done.action_id is not None:
                        await sim.jobs.undo(done.action_id)
                case 2:
                    await sim.jobs.dead_retry_all(all=True, rate_per_second=1000)
                case _:
                    await sim.sleep(random.random() * 3)
        failing = False
        await sim.sleep(200)
        await sim.jobs.dead_retry_all(all=True, rate_per_second=1000)
        await sim.sleep(200)
        ran = [one.body["functionPath"] for one in sim.deliveries]
        record = await group(sim)
        assert record.open == record.dead == 0 and record.members == 24 and record.state == "done"
        assert ran.count("all:done") >= 1 and len({one.body["id"] for one in sim.deliveries if _is(one, "all:")}) == 1
        assert len({one.body["id"] for one in sim.deliveries if _is(one, "some:")}) <= 1
        first = ran.index("all:done")
        assert "a:run" not in ran[first:] or record.cancelled  # one that was put back may run after the end

    run()


def _is(one: Any, path: str) -> bool:
    return bool(one.body["functionPath"].startswith(path))


@pytest.fixture
def one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group that is complete fills its turn."""
    monkeypatch.setattr(groups, "BYTES_PER_TURN", 1)


@pytest.mark.usefixtures("one_a_turn")
@on_simulated_host()
async def test_many_groups_that_are_complete_at_once_start_what_follows_in_several_turns(sim: SimulatedHost) -> None:
    for n in range(9):
        await member(sim, f"m{n}", Group(f"g{n}", then=THEN, size=1))
    await work(sim)
    await sim.crash()
    await sim.open()
    await sim.sleep(1)

    assert sorted(one.parent.id for one in await ends(sim) if one.parent is not None) == [f"g{n}" for n in range(9)]


# ---- Cancelled, dropped --------------------------------------------------------------------------


@on_simulated_host()
async def test_a_group_is_cancelled_page_after_page_over_a_crash_and_nothing_follows(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g", then=THEN, on_dead=ON_DEAD)
    at = sim.now + 3_600_000
    for k in range(2):
        jobs = [Job(path="a:run", at=at, options={"id": f"m{k}-{n}", "group": "g"}) for n in range(500)]
        assert not [one for one in await sim.jobs.submit_many(jobs) if isinstance(one, Exception)]
    await sim.jobs.run_at(at, "a:run", id="other")
    stopped = await sim.jobs.groups.cancel("g")
    assert stopped.stopping and stopped.open == 1000
    await sim.crash()
    await sim.open()
    await sim.sleep(5)

    assert (await group(sim)).state == "cancelled" and counts(await group(sim)) == {"members": 1000, "cancelled": 1000}
    assert await ends(sim) == [] and (await sim.jobs.pending("")).count == 1
    [noted] = (await sim.jobs.audit(action="groups.cancel")).actions
    assert (noted.about, noted.changed) == ("g", 1000)
    with pytest.raises(ConflictError, match="nothing to cancel"):
        await sim.jobs.groups.cancel("g")


@on_simulated_host()
async def test_what_follows_members_that_end_while_their_group_is_cancelled_is_cancelled_too(
    sim: SimulatedHost,
) -> None:
    """They join behind the page that was looked at last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stopping, "PAGE", 2)
        await sim.jobs.groups.open("g", then=THEN)
        for n in range(40):
            await member(sim, f"m{n:02}", then=[Job(path="b:run", options={"queue": "q", "group": "g"})])
        claimed = await sim.jobs.claim("q", max=40, wait=0)
        stopped = asyncio.ensure_future(sim.jobs.groups.cancel("g"))
        for one in reversed(claimed):  # some are cancelled by then
            await sim.jobs.complete(one.id, one.lease)
        await stopped
        await sim.sleep(10)

    record = await group(sim)
    assert (record.state, record.open, record.members) == ("cancelled", 0, 40 + record.done) and record.done
    assert not (await sim.jobs.pending("")).pending


@on_simulated_host(look_again_s=86_400.0)
async def test_groups_are_dropped_by_age_and_their_names_are_free(sim: SimulatedHost) -> None:
    for name in ("g", "h"):
        await member(sim, f"m-{name}", Group(name, then=THEN, size=1))
        await work(sim, ok=name == "g")
    await ends(sim)
    await sim.sleep(8 * 86_400)
    assert [one.name for one in (await sim.jobs.groups.list()).groups] == ["h"]  # its dead member may be retried
    await sim.sleep(23 * 86_400)
    assert not (await sim.jobs.groups.list()).groups
    await member(sim, "again", Group("g", then=THEN, size=1))
    assert counts(await group(sim)) == {"members": 1, "open": 1}


# ---- Refused -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_what_cannot_be_is_refused_and_changes_nothing(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g", then=THEN, size=1)
    assert (await sim.jobs.groups.open("g", then=THEN, size=1)).members == 0
    for other in ({"size": 1}, {"then": THEN, "size": 2}, {"then": THEN, "on_dead": ON_DEAD, "size": 1}):
        with pytest.raises(ConflictError, match="there is a group 'g' with another size"):
            await sim.jobs.groups.open("g", **other)
    with pytest.raises(NotFoundError, match="there is no group 'x': open it first"):
        await member(sim, "m", "x")
    for ask in (sim.jobs.groups.seal, sim.jobs.groups.cancel):
        with pytest.raises(NotFoundError, match="there is no group 'x'"):
            await ask("x")
    await member(sim, "m0")
    with pytest.raises(ConflictError, match="group 'g' has 1 members"):
        await member(sim, "m1")
    for wrong, words in (("", "group must be 1 to 128"), (7, "group must be"), (Group("a b"), "group: name must be")):
        with pytest.raises(InvalidInputError, match=words):
            await member(sim, "m2", wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"then\[0\]: group cannot be defined in then"):
        await member(sim, "m2", None, then=[Job(path="b:run", options={"queue": "q", "group": Group("new")})])
    with pytest.raises(PayloadTooLargeError, match="what follows group 'big'"):
        await sim.jobs.groups.open("big", then=[Job(path="a:b", args="x" * 70_000)])
    assert await sim.jobs.groups.get("big") is None and (await group(sim)).members == 1
    answers = await sim.jobs.submit_many([
        Job(path="a:run", after=60, options={"id": "m3", "group": "x"}), Job(path="a:run", after=60),
    ])  # fmt: skip
    assert [type(one).__name__ for one in answers] == ["NotFoundError", "Scheduled"]


@on_simulated_host()
async def test_a_member_that_waits_is_shown_with_its_group(sim: SimulatedHost) -> None:
    await sim.jobs.groups.open("g")
    for n in range(5):
        await member(sim, f"m{n}")
    first = await sim.jobs.groups.members("g", limit=3)
    rest = await sim.jobs.groups.members("g", limit=3, cursor=first.cursor)

    assert [one.id for one in (*first.records, *rest.records)] == [f"m{n}" for n in range(5)]
    assert {one.group for one in first.records} == {"g"} and (first.truncated, rest.truncated) == (True, False)
