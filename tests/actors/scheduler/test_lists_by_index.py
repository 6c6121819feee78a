"""Lists with filters are full and exact, and cost what they find, however many other jobs there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.integrity.check import repair
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.scheduler.model.rows import META_LAYOUT
from tocsin.actors.scheduler.queries import listing
from tocsin.actors.scheduler.state.labels import META_LABELS
from tocsin.actors.scheduler.state.path_counts import path_key
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, PayloadTooLargeError
from tocsin.storage.api import StoreView, after
from tocsin.storage.memory import MemoryProvider

GONE = Answer(410, {}, b"")
ROWS = "scheduler/t"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each look at the store has loaded."""
    counts: list[int] = []
    original = listing.load

    async def counted(view: StoreView, ids: Sequence[str]) -> Any:
        counts.append(len(ids))
        return await original(view, ids)

    monkeypatch.setattr(listing, "load", counted)
    return counts


async def fill(sim: SimulatedHost, count: int, **options: Any) -> None:
    ids = range(count)
    for first in range(0, count, 1_000):
        await sim.jobs.submit_many(
            [Job(path="work:run", after=3_600 + n % 7, options=options) for n in ids[first : first + 1_000]]
        )


# ---- What a list costs ---------------------------------------------------------------------------


def test_a_page_by_label_is_full_and_loads_only_jobs_of_that_label(loaded: list[int]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await fill(sim, 3_000, labels=["other"])
        await fill(sim, 150, labels=["mine", "more"])
        await fill(sim, 3_000, labels=["other"])
        for order in ("id", "due"):
            loaded.clear()
            page = await sim.jobs.list(label="mine", order=order)
            assert (len(page.records), page.truncated) == (100, True)
            rest = await sim.jobs.list(label="mine", order=order, cursor=page.cursor)
            assert (len(rest.records), rest.truncated) == (50, False)
            assert sum(loaded) <= 300
            loaded.clear()
            none = await sim.jobs.list(label="none", order=order)
            assert (none.records, none.truncated, loaded) == ([], False, [])
        assert (await sim.jobs.cancel_all(label="mine", dry_run=True)).matched == 150
        loaded.clear()
        assert (await sim.jobs.cancel_all(label="mine")).cancelled == 150
        assert sum(loaded) <= 200
        assert (await sim.jobs.list(label="more")).records == []

    run()


@pytest.mark.parametrize("wanted", [{"pool": "p"}, {"queue": "q"}, {"state": "waiting"}, {"state": "running"}])
def test_a_page_by_pool_queue_or_state_loads_what_it_shows(wanted: dict[str, str], loaded: list[int]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await fill(sim, 3_000)
        await fill(sim, 20, pool="p")
        await fill(sim, 20, queue="q")
        await sim.jobs.submit_many([Job(path="work:run", after=0, options={"queue": "now"}) for _ in range(40)])
        await fill(sim, 3_000)
        claimed = await sim.jobs.claim("now", max=20, wait=0)
        assert len(claimed) == 20
        for order in ("id", "due"):
            loaded.clear()
            page = await sim.jobs.list(order=order, **wanted)  # type: ignore[arg-type]
            assert (len(page.records), page.truncated) == (20, False)
            assert sum(loaded) <= 20
        for one in claimed:
            await sim.jobs.complete(one.id, one.lease)

    run()


def test_dead_jobs_by_label_pool_and_reason_are_found_without_loading_the_others(loaded: list[int]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.reply = lambda one: GONE
        for count, options in ((600, {"labels": ["other"]}), (5, {"labels": ["mine"], "pool": "p"})):
            await sim.jobs.submit_many([Job(path="w:r", after=0, options=options) for _ in range(count)])
        await sim.sleep(20)
        assert (await sim.jobs.status()).dead == 605
        for wanted in ({"label": "mine"}, {"pool": "p"}, {"label": "mine", "pool": "p", "reason": "refused"}):
            loaded.clear()
            page = await sim.jobs.dead(**wanted)  # type: ignore[arg-type]
            assert (len(page.records), page.truncated) == (5, False)
            assert sum(loaded) == 5
        loaded.clear()
        assert (await sim.jobs.dead(label="mine", reason="lost")).records == []
        assert (await sim.jobs.dead(label="none")).records == []
        assert loaded == []
        await sim.jobs.dead_retry_all(pool="p")
        await sim.sleep(3)
        assert len((await sim.jobs.dead(label="mine")).records) == 5  # dead again, and found again

    run()


# ---- What a list holds ---------------------------------------------------------------------------

LABELS, POOLS, QUEUES = ("a", "b", "a-b", "a.b"), ("p", "q"), ("", "mail")


async def everything(sim: SimulatedHost) -> list[Record]:
    found = [record async for record in sim.jobs.list_all(order="id")]
    assert len(found) == (await sim.jobs.status()).backlog + (await sim.jobs.status()).in_flight
    return found


async def pages(call: Callable[..., Any], limit: int, **wanted: Any) -> list[Record]:
    found: list[Record] = []
    cursor: str | None = None
    while True:
        page = await call(limit=limit, cursor=cursor, **wanted)
        assert page.truncated == (page.cursor is not None)
        found += page.records
        if not page.truncated:
            return found
        cursor = page.cursor


def fits(record: Record, wanted: dict[str, Any]) -> bool:
    if (label := wanted.get("label")) is not None and label not in record.labels:
        return False
    return all(
        getattr(record, name) == value for name, value in wanted.items() if name != "label" and value is not None
    )


def by_due(record: Record) -> tuple[int, str]:
    assert record.next_attempt_at is not None
    return record.next_attempt_at, record.id


async def change(sim: SimulatedHost, random: Random, n: int) -> None:
    """Some jobs come, others start, end, die, move or go."""
    options = {
        "labels": random.sample(LABELS, random.randrange(4)),
        "pool": random.choice((None, *POOLS)),
        "priority": random.randrange(-2, 3),
    }
    queue = random.choice(QUEUES)
    given = {name: value for name, value in options.items() if value is not None} | ({"queue": queue} if queue else {})
    id = f"j{random.randrange(60)}"
    match random.randrange(8):
        case 0 | 1 | 2:
            delay = random.choice((0, 5, 600))
            given["on_conflict"] = "replace"
            await sim.jobs.submit_many([Job(path=f"w:{n % 4}", after=delay, options={"id": id, **given})])
        case 3:
            for one in await sim.jobs.claim("mail", max=3, lease_ms=20_000, wait=0):
                match random.randrange(3):
                    case 0:
                        await sim.jobs.complete(one.id, one.lease, ok=random.random() < 0.5)
                    case 1:
                        await sim.jobs.complete(one.id, one.lease, ok=False, retryable=False, error="no")
        case 4:
            await sim.jobs.cancel(id)
        case 5:
            await sim.jobs.reschedule(id, after=random.choice((0, 60)))
        case 6:
            await sim.jobs.dead_retry(id)
        case 7:
            await sim.jobs.dead_cancel(id)


@pytest.mark.parametrize("seed", range(3))
def test_every_list_is_what_a_walk_over_all_jobs_would_give(seed: int) -> None:
    @on_simulated_host(lanes=3)
    async def run(sim: SimulatedHost) -> None:
        random = Random(seed)
        sim.reply = lambda one: Answer(random.choice((200, 410, 500, 500)), {}, b"")
        await sim.jobs.set_pool("p", max_concurrency=2)
        for n in range(150):
            await change(sim, random, n)
            if n % 5 == 0:
                await sim.sleep(random.choice((0.5, 3, 31)))
            if n % 30 == 29:
                await sim.sleep(0.25)  # nothing is on its way
                await agree(sim, random)
                assert await sim.faults() == []

    run()


async def agree(sim: SimulatedHost, random: Random) -> None:
    live = await everything(sim)
    names = ("pool", "state", "label", "queue")
    values: tuple[tuple[str | None, ...], ...] = (
        (None, "p"), (None, "pending", "waiting", "running"), (None, "a", "a-b", "none"), (None, "mail"),
    )  # fmt: skip
    for each in product(*values):
        wanted = dict(zip(names, each, strict=True))
        limit = random.choice((1, 3, 1_000))
        right = [record for record in live if fits(record, wanted)]
        assert await pages(sim.jobs.list, limit, order="id", **wanted) == right, wanted
        assert await pages(sim.jobs.list, limit, order="due", **wanted) == sorted(right, key=by_due), wanted
    for path, state in product(("w:0", "w:3", "w:none"), (None, "pending", "running")):
        right = [one for one in live if one.function_path == path and state in (None, one.state)]
        for limit, order in product((1, 1_000), ("id", "due")):
            found = await pages(sim.jobs.list, limit, order=order, path=path, state=state)
            assert sorted(found, key=by_due) == sorted(right, key=by_due), (path, state, limit, order)
    dead = await pages(sim.jobs.dead, 1_000)
    assert await pages(sim.jobs.dead, 2, path="w:1") == [one for one in dead if one.function_path == "w:1"]
    for each in product((None, "p"), (None, "a", "a-b", "none"), (None, "refused", "exhausted")):
        wanted = dict(zip(("pool", "label", "reason"), each, strict=True))
        right = [record for record in dead if fits(record, wanted)]
        assert await pages(sim.jobs.dead, random.choice((1, 3, 1_000)), **wanted) == right, wanted


# ---- Older stores --------------------------------------------------------------------------------


async def of_layout_two(sim: SimulatedHost) -> None:
    """The host stops, and its store is as the version before left it."""
    await sim.close()
    rows = sim.disk.maps[ROWS]
    old: list[bytes] = []
    for prefix in (b"label/", b"deadlabel/"):
        old += [key for key, _ in rows.range(prefix, after(prefix), 100_000, False)]
    assert old
    rows.apply({**dict.fromkeys(old), META_LAYOUT: b"2"})


@on_simulated_host()
async def test_a_store_without_rows_of_labels_is_filled_while_it_is_used(sim: SimulatedHost) -> None:
    sim.reply = lambda one: GONE
    await sim.jobs.submit_many([Job(path="w:r", after=0, options={"labels": ["mine"]}) for _ in range(150)])
    await sim.sleep(5)
    for count, label in ((500, "other"), (150, "mine")):
        await fill(sim, count, labels=[label])
    claimed = await _running_job(sim)
    await of_layout_two(sim)
    assert await sim.faults() == []  # it is sound as it is
    await sim.open()
    right = {
        order: [one.id for one in await pages(sim.jobs.list, 100, order=order, label="mine")] for order in ("id", "due")
    }
    dead = [one.id for one in await pages(sim.jobs.dead, 100, label="mine")]
    assert (len(right["id"]), len(right["due"]), len(dead)) == (151, 151, 150)
    new = await sim.jobs.run_after(3_600, "w:r", labels=["mine"])
    await sim.crash()
    await sim.open()
    await sim.jobs.cancel(new)
    await sim.sleep(1)
    assert sim.disk.maps[ROWS].get(META_LABELS) is None
    assert sim.disk.maps[ROWS].get(META_LAYOUT) == b"3"
    assert await sim.faults() == []
    for order, ids in right.items():
        assert [one.id for one in await pages(sim.jobs.list, 100, order=order, label="mine")] == ids
    assert [one.id for one in await pages(sim.jobs.dead, 100, label="mine")] == dead
    await sim.jobs.complete(claimed.id, claimed.lease)
    assert len(await pages(sim.jobs.list, 100, label="mine")) == 150


async def _running_job(sim: SimulatedHost) -> Any:
    """For the second time: its lease alone knows when that was due."""
    await sim.jobs.run_after(0, "w:r", queue="q", labels=["mine"])
    [claimed] = await sim.jobs.claim("q", wait=0)
    await sim.jobs.complete(claimed.id, claimed.lease, ok=False, delay="3s")
    [claimed] = await sim.jobs.claim("q", lease_ms=600_000, wait=10)
    return claimed


@on_simulated_host()
async def test_a_list_by_label_begins_to_fill_an_idle_store(sim: SimulatedHost) -> None:
    await fill(sim, 10, labels=["mine"])
    await of_layout_two(sim)
    await sim.open()
    await sim.jobs.list(label="mine")
    await sim.sleep(1)

    assert sim.disk.maps[ROWS].get(META_LAYOUT) == b"3"
    assert sim.disk.maps[ROWS].get(META_LABELS) is None


@on_simulated_host()
async def test_a_store_whose_layout_was_not_written_is_filled_as_the_oldest(sim: SimulatedHost) -> None:
    """Earlier versions wrote none if an instance was removed, and used again before its next activation."""
    await fill(sim, 150, labels=["mine"])
    await of_layout_two(sim)
    sim.disk.maps[ROWS].apply({META_LAYOUT: None, path_key("work:run"): None})
    assert await sim.faults() == []
    await sim.open()
    assert len((await sim.jobs.list(label="mine", limit=1_000)).records) == 150
    assert (await sim.jobs.pending("work:")).count == 150
    await sim.sleep(1)
    assert sim.disk.maps[ROWS].get(META_LAYOUT) == b"3"
    assert len((await sim.jobs.list(label="mine", limit=1_000)).records) == 150


@on_simulated_host()
async def test_an_instance_that_is_used_again_after_its_removal_says_its_layout(sim: SimulatedHost) -> None:
    await fill(sim, 10, labels=["mine"])
    await sim.jobs.remove()
    assert not (await sim.jobs.cancel("unknown")).cancelled
    assert (await sim.host.instances()).instances == []  # nothing is left of it, nor comes of a question
    await fill(sim, 10, labels=["mine"])

    assert sim.disk.maps[ROWS].get(META_LAYOUT) == b"3"


@on_simulated_host()
async def test_a_repair_of_an_older_store_writes_all_rows_of_labels(sim: SimulatedHost) -> None:
    await fill(sim, 250, labels=["mine"])
    await of_layout_two(sim)
    provider = MemoryProvider(sim.disk)
    await provider.start()
    await repair(provider, "t")
    await provider.stop()
    assert len(sim.disk.maps[ROWS].range(b"label/mine/", after(b"label/mine/"), 1_000, False)) == 250
    assert sim.disk.maps[ROWS].get(META_LABELS) is None
    assert await sim.faults() == []
    await sim.open()


@on_simulated_host()
async def test_rows_of_a_job_that_was_set_aside_go_at_the_next_start(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(60, "w:r", id="bad", labels=["mine"])
    await sim.jobs.run_after(60, "w:r", id="good", labels=["mine"])
    sim.disk.maps[ROWS].apply({b"job/bad": b"\xc1"})
    await sim.host.runtime.evict()  # the first jobs are in memory as well
    await sim.sleep(61)
    assert [one.id for one in (await sim.jobs.list(label="mine")).records] == []
    assert [one.body["id"] for one in sim.deliveries] == ["good"]
    await sim.close()
    await sim.open()
    await sim.jobs.run_after(60, "w:r", id="later", labels=["mine"])
    rows = sim.disk.maps[ROWS]
    assert [key for key, _ in rows.range(b"label/", after(b"label/"), 10, False)] == [b"label/mine/later"]
    aside = [key for key, _ in rows.range(b"bad/", after(b"bad/"), 10, False)]
    assert b"bad/job/bad" in aside
    rows.apply(dict.fromkeys(aside))


# ---- Bounds --------------------------------------------------------------------------------------


@on_simulated_host()
async def test_jobs_with_more_labels_than_a_commit_holds_are_refused_together(sim: SimulatedHost) -> None:
    many = [Job(path="w:r", after=60, options={"labels": [f"l{n}" for n in range(20)]}) for _ in range(251)]
    with pytest.raises(PayloadTooLargeError, match="5020 labels together, at most 5000"):
        await sim.jobs.submit_many(many)
    named = [Job(path="w:r", after=60, options={**one.options, "id": f"j{n}"}) for n, one in enumerate(many[:250])]
    await sim.jobs.submit_many(named)
    other = [
        Job(
            path="w:r",
            after=0,
            options={"labels": [f"m{n}" for n in range(20)], "id": f"j{n}", "on_conflict": "replace"},
        )
        for n in range(250)
    ]
    await sim.jobs.submit_many(other)
    await sim.sleep(5)
    assert len(sim.deliveries) == 250


def test_a_job_without_labels_has_no_rows_of_them_and_a_label_given_twice_counts_once() -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after(60, "w:r", id="plain")
        rows = sim.disk.maps[ROWS]
        assert not rows.range(b"label/", after(b"label/"), 10, False)
        await sim.jobs.run_after(60, "w:r", id="twice", labels=["a", "a"])
        assert len(rows.range(b"label/", after(b"label/"), 10, False)) == 1
        with pytest.raises(InvalidInputError, match="label"):
            await sim.jobs.dead(label="not a label")

    run()
