"""The audit log: who did what, when and how much, in the commit of what it changed; everyday work of apps is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.actors.scheduler.captured_logs import captured_logs
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Scheduler, port_of
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import AUDIT_MS
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.rows import DAY_MS
from tocsin.actors.scheduler.transitions import events
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError
from tocsin.storage.combiner import ActorWrites

GONE = Answer(410, {}, b"")


async def log(jobs: Scheduler, **filters: Any) -> list[tuple[Any, ...]]:
    return [(one.action, one.about, one.changed) for one in (await jobs.audit(**filters)).actions]


async def bury(sim: SimulatedHost, *ids: str, pool: str | None = None) -> None:
    sim.reply = lambda _: GONE
    for id in ids:
        await sim.jobs.run_after(0, "work:run", id=id, pool=pool)
    await sim.sleep(30)
    assert {one.id for one in (await sim.jobs.dead()).records} >= set(ids)


@on_simulated_host()
async def test_each_action_of_an_operator_is_noted_with_who_when_and_how_much(sim: SimulatedHost) -> None:
    await bury(sim, "a", "b", "c")
    ops = sim.host.scheduler("t", by="alice")
    await ops.dead_retry("a")
    await ops.dead_cancel("b")
    await ops.set_pool("stripe", max_concurrency=2, paused=True)
    await ops.delete_pool("stripe")
    await ops.pause()
    await sim.sleep(1)
    started = await ops.dead_retry_all(all=True, rate_per_second=5)
    await ops.run_after("1h", "work:run", id="later", labels=["x"])
    await sim.sleep(1)
    await ops.cancel_all(label="x")
    await sim.sleep(2)

    page = await ops.audit()
    assert [(one.action, one.about, one.changed, one.matched) for one in reversed(page.actions)] == [
        ("dead_retry", "a", 1, None),
        ("dead_cancel", "b", 1, None),
        ("set_pool", "stripe", 1, None),
        ("delete_pool", "stripe", 1, None),
        ("pause", None, 1, None),
        ("dead_retry_all", None, 2, 2),
        ("cancel_all", None, 1, 1),
    ]
    assert {(one.by.via, one.by.token, one.by.user) for one in page.actions} == {("python", None, "alice")}
    assert [one.given for one in page.actions][::-1][2] == {"maxConcurrency": 2, "paused": True}
    assert page.actions[0].given == {"label": "x"}
    assert page.actions[1].id == started.redrive_id
    assert all(sim.now - 60_000 < one.at <= sim.now for one in page.actions)


@on_simulated_host()
async def test_what_changes_nothing_or_is_refused_leaves_no_row(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.run_after("1h", "work:run", id="a", pool="p")
    await ops.set_pool("p", max_concurrency=3)
    before = await log(ops)
    await ops.set_pool("p", max_concurrency=3)
    await ops.cancel("nobody")
    await ops.dead_retry("nobody")
    await ops.dead_cancel("nobody")
    await ops.cancel_all(label="nobody")
    await ops.cancel_all(all=True, dry_run=True)
    await ops.dead_retry_all(all=True)
    await ops.redrive_stop("01m4cw2n8j6t0q7v9xk3d5r1zb")
    await ops.pause(False)
    with pytest.raises(ConflictError):
        await ops.delete_pool("p")
    with pytest.raises(NotFoundError):
        await ops.schedules.pause("nobody")
    assert await log(ops) == before == [("set_pool", "p", 1)]


@on_simulated_host()
async def test_an_app_cancels_and_moves_its_jobs_unnoted_and_a_person_does_not(sim: SimulatedHost) -> None:
    for jobs in (sim.jobs, sim.host.scheduler("t", by="alice")):
        for id in ("a", "b"):
            await jobs.run_after("1h", "work:run", id=id)
        await jobs.reschedule("a", after="2h")
        await jobs.cancel("b")
        await jobs.cancel("a")
    assert await log(sim.jobs) == [("cancel", "a", 1), ("cancel", "b", 1), ("reschedule", "a", 1)]
    with pytest.raises(InvalidInputError, match="by must be"):
        sim.host.scheduler("t", by="")


@on_simulated_host()
async def test_schedules_are_noted_as_they_are_paused_run_and_removed(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.schedules.put("s", "work:run", every="1h")
    await ops.schedules.pause("s")
    await ops.schedules.pause("s")
    held = await ops.schedules.get("s")
    await ops.schedules.trigger("s", "k")
    await ops.schedules.trigger("s", "k")
    await ops.schedules.resume("s")
    running = await ops.schedules.get("s")
    await ops.schedules.delete("s", cancel_pending=True)
    assert [action for action, _, _ in await log(ops)][::-1] == [
        "schedules.put", "schedules.pause", "schedules.trigger", "schedules.resume", "schedules.delete",
    ]  # fmt: skip
    assert held is not None and held.paused_at == sim.now and held.paused_by is not None
    assert held.paused_by.user == "alice"
    assert running is not None and (running.paused_at, running.paused_by) == (None, None)


@on_simulated_host()
async def test_whoever_changes_a_definition_is_noted_and_the_same_again_is_not(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    for schedules in (sim.jobs.schedules, ops.schedules, ops.schedules):
        await schedules.put("s", "work:run", {"secret": 1}, cron="0 9 * * *")
    await ops.schedules.put("s", "work:run", {"secret": 2}, cron="0 9 * * *")  # other args are another definition
    await sim.jobs.schedules.put("s", "work:run", {"secret": 2}, cron="0 9 * * *", timezone="Europe/Berlin")
    with pytest.raises(ConflictError):
        await ops.schedules.put("s", "other", every="1h", revision=1)
    await ops.schedules.put("s", "work:run", {"secret": 2}, every="90s", paused=True)

    entries = (await ops.audit(action="schedules.put")).actions[::-1]
    assert [(one.about, one.by.user, one.given["revision"]) for one in entries] == [
        ("s", None, 1), ("s", "alice", 2), ("s", None, 3), ("s", "alice", 4),
    ]  # fmt: skip
    assert entries[0].given == {"revision": 1, "functionPath": "work:run", "cron": "0 9 * * *"}
    assert entries[3].given == {"revision": 4, "functionPath": "work:run", "everyMs": 90_000, "paused": True}
    assert "secret" not in repr(entries)


@on_simulated_host()
async def test_a_registration_is_noted_if_it_changed_something(sim: SimulatedHost) -> None:
    every = {"path": "work:run", "every": "1h"}
    mine = [(f"s{n:02d}", every) for n in range(12)]
    for _ in range(3):  # as at each start of an app
        await sim.jobs.schedules.register("app", mine)
    ops = sim.host.scheduler("t", by="alice")
    await ops.schedules.register("app", [*mine[:10], ("s10", {**every, "every": "2h"})])
    await ops.schedules.register("app", mine[:10], prune=True)
    await ops.schedules.register("app", mine[:10], prune=True)

    entries = (await ops.audit()).actions[::-1]
    assert [(one.action, one.about, one.by.user, one.changed) for one in entries] == [
        ("schedules.register", "app", None, 12),
        ("schedules.register", "app", "alice", 1),
        ("schedules.delete", "app:s10", "alice", 1),
        ("schedules.delete", "app:s11", "alice", 1),
    ]
    names = [one.given.get("names") for one in entries]
    assert names == [", ".join(f"app:s{n:02d}" for n in range(10)) + ", …", "app:s10", None, None]


@on_simulated_host()
async def test_who_paused_a_pool_and_an_instance_and_since_when(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.set_pool("p", paused=True)
    since = sim.now
    await sim.sleep(60)
    await sim.jobs.set_pool("p", max_concurrency=9, paused=True)
    pool = await ops.pool("p")
    assert (pool.paused_at, pool.paused_by and pool.paused_by.user) == (since, "alice")
    state = await ops.set_instance(paused=True)
    assert (state.paused_at, state.paused_by and state.paused_by.user) == (sim.now, "alice")
    status = await ops.status()
    assert (status.paused_at, status.paused_by) == (state.paused_at, state.paused_by)
    assert (await sim.jobs.set_instance(timeout_ms=5_000)).paused_by == state.paused_by
    await sim.crash()
    await sim.open()
    await sim.jobs.set_pool("p", paused=False)
    state = await sim.jobs.set_instance(paused=False)
    assert (await sim.jobs.pool("p")).paused_by is None and (state.paused_at, state.paused_by) == (None, None)


@on_simulated_host()
async def test_the_log_is_read_in_pages_the_newest_first_and_by_filters(sim: SimulatedHost) -> None:
    alice, bob = (sim.host.scheduler("t", by=who) for who in ("alice", "bob"))
    for n in range(7):
        await (alice if n % 2 else bob).set_pool(f"p{n}", max_concurrency=1 + n)
    await sim.sleep(DAY_MS // 1000)
    noon = sim.now
    await bob.delete_pool("p0")
    seen: list[str | None] = []
    cursor: str | None = None
    while True:
        page = await alice.audit(limit=3, cursor=cursor)
        seen += [one.about for one in page.actions]
        cursor = page.cursor
        if not page.truncated:
            break
    assert seen == ["p0", "p6", "p5", "p4", "p3", "p2", "p1", "p0"]
    assert [about for _, about, _ in await log(alice, who="alice")] == ["p5", "p3", "p1"]
    assert [about for _, about, _ in await log(alice, action="delete_pool")] == ["p0"]
    assert [about for _, about, _ in await log(alice, since=noon)] == ["p0"]
    first = (await alice.audit(limit=2)).cursor
    with pytest.raises(InvalidInputError, match="cursor belongs to another list"):
        await alice.audit(limit=2, cursor=first, who="bob")


@on_simulated_host()
async def test_whole_days_are_dropped_and_the_rest_stays(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    for n in range(1_200):  # more than one turn drops
        await sim.host.runtime.call(
            actor_of("t"), events.SetPool(f"p{n}", PoolSettings(max_concurrency=1), AskedBy(user="alice"))
        )
    sim.clock.step(30 * DAY_MS)
    await ops.set_pool("young", max_concurrency=2)
    sim.clock.step(AUDIT_MS - 29 * DAY_MS)
    await sim.sleep(180)
    assert await log(ops) == [("set_pool", "young", 1)]


@on_simulated_host()
async def test_the_row_is_in_the_batch_of_what_it_tells_of(sim: SimulatedHost) -> None:
    batches: list[set[bytes]] = []
    write = sim.disk.apply

    def noted(writes: Sequence[ActorWrites]) -> None:
        batches.extend(set(one.rows) for one in writes)
        write(writes)

    sim.disk.apply = noted  # type: ignore[method-assign]
    await sim.host.scheduler("t", by="alice").set_pool("p", max_concurrency=2)
    (batch,) = [keys for keys in batches if b"pool/p" in keys]
    assert any(key.startswith(b"audit/") for key in batch)


@on_simulated_host()
async def test_a_port_that_was_given_to_one_caller_says_nothing_of_another(sim: SimulatedHost) -> None:
    port = port_of(sim.jobs)
    web = port.asked_by(AskedBy("http", "ops", person=True))
    page = web.asked_by(AskedBy("dashboard", "ops", "carol", person=True))
    await port.changes.set_pool("a", PoolSettings(max_concurrency=2))
    await web.changes.set_pool("b", PoolSettings(max_concurrency=2))
    await page.changes.set_pool("c", PoolSettings(max_concurrency=2))
    found = {one.about: (one.by.via, one.by.token, one.by.user) for one in (await sim.jobs.audit()).actions}
    assert found == {
        "a": ("python", None, None), "b": ("http", "ops", None), "c": ("dashboard", "ops", "carol"),
    }  # fmt: skip


@on_simulated_host()
async def test_the_removal_of_an_instance_takes_its_log_with_it_and_is_logged(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.set_pool("p", max_concurrency=2)
    with captured_logs() as lines:
        await ops.remove()
    assert await log(ops) == []
    (line,) = lines.of("'t' was removed")
    assert "user alice" in line


def test_a_name_that_somebody_chose_is_no_line_of_a_log() -> None:
    asked = str(AskedBy("http", "ops", "eve\n2026 WARNING root did it\x1b[31m\u202e"))
    assert asked.isprintable() and asked.startswith("asked for by http, token ops, user eve\\n2026")
    assert str(AskedBy("http", user="zoë 日本")) == "asked for by http, user zoë 日本"
