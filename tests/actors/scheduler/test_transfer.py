"""An instance as a file: what comes along, what is refused, and what runs while it comes or goes."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SECRET, SimulatedHost, SimulatedTransport, on_simulated_host
from tocsin import Job
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.row_kinds import FAMILIES, SINGLE
from tocsin.actors.scheduler.model.rows import InstanceRow
from tocsin.actors.scheduler.transitions.kept_answers import BatchAnswers
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError
from tocsin.storage.memory import MemoryProvider

GONE = Answer(410, {}, b"no such invoice \xff")
LAYOUTS = sorted((Path(__file__).parents[2] / "storage" / "layouts").glob("*.db.gz"))
NOT_IN_THE_STORY = {"bad", "clock"}
"""Set-aside rows, and those of instances that have a test clock: each has a test of its own below."""


async def exported(host: ActorHost, name: str = "t") -> bytes:
    file = io.BytesIO()
    await host.export_instance(name, file)
    return file.getvalue()


async def imported(host: ActorHost, text: bytes, name: str = "u", **options: Any) -> Any:
    return await host.import_instance(name, io.BytesIO(text), **options)


def rows_of(text: bytes) -> list[dict[str, Any]]:
    """The rows, without what an import adds."""
    found = [json.loads(line) for line in text.splitlines()[1:-1]]
    for one in found:
        if one.get("row", {}).get("kind") == "fired":  # its host has left it
            one["row"]["host"] = one["row"]["host"].removeprefix("left-")
    return [one for one in found if one.get("key") != "meta/import" and one.get("row", {}).get("action") != "import"]


def kinds_of(text: bytes) -> set[str]:
    keys = [str(one.get("key", "?")) for one in rows_of(text)]
    return {key if "/" not in key or key.startswith("meta/") else key.partition("/")[0] for key in keys}


async def story(sim: SimulatedHost) -> None:
    """An instance that holds a bit of everything."""
    jobs = sim.jobs
    sim.reply = lambda one: Answer(500, {}, b"later") if one.body["functionPath"] == "retried" else GONE
    await jobs.run_after("1h", "pay:send", {"x": [1, None]}, id="plain", labels=["a", "b"], priority=3)
    await jobs.run_after("1h", "pay:long", {"long": "é" * 70_000}, id="long", expires_at=sim.now + 7_200_000)
    await jobs.run_after(0, "bad", None, id="dead", labels=["a"])
    await jobs.run_after(0, "bad", id="dead-2", labels=["a"])
    await jobs.run_after(0, "retried", id="retried", retry=Retry(max_retries=3, base_ms=3_600_000))
    for name in ("a-held", "behind"):
        await jobs.run_after(0, "work", id=name, queue="q", pool="s")
    await jobs.run_after(0, "kept", id="kept", queue="k", keep_result="1h")
    await jobs.run_after("1h", "pay:gone", {"long": "é" * 70_000}, id="gone")
    await jobs.set_pool("s", max_concurrency=1)
    await jobs.set_instance(timeout_ms=30_000)
    await jobs.schedules.put("often", cron="*/5 * * * *", path="tick", queue="ticks", args={"long": "x" * 70_000})
    await sim.sleep(700)
    await jobs.schedules.trigger("often", request_key="once")
    past = sim.now - sim.now % 60_000
    await jobs.schedules.backfill("often", past - 3_600_000, past, rate_per_second=1)
    [kept] = await jobs.claim("k")
    await jobs.complete(kept.id, kept.lease, result={"sum": 3})
    [held] = await jobs.claim("q", lease_ms=600_000)
    sim.claimed_lease = held.lease
    await jobs.run_debounced("1h", "work", {"long": "é" * 70_000}, id=held.id, queue="q", pool="s")
    await jobs.run_after("1h", "pay:often", id="throttled", throttle="2h")
    await jobs.groups.open("together")
    await jobs.run_after("1h", "pay:often", id="member", group="together")
    await jobs.set_queue("q", fair=True, weights={"k": 2})
    await jobs.set_pool("rated", rate=Rate(1, "1h"))
    await jobs.run_after(0, "work", id="rated", queue="rated", pool="rated")
    assert await jobs.claim("rated")
    await jobs.groups.open("g", then=[Job("after", {"long": "é" * 20_000})], on_dead=[Job("mail")])
    await jobs.run_after("1h", "work", id="of-g", group="g")
    await sim.port.jobs.submit_once([], key=b"k" * 16, body=b"b" * 16, form=BatchAnswers())
    await jobs.cancel_all(path="pay:gone")
    await jobs.dead_retry_all(all=True, rate_per_second=1)


def sealed(lines: list[bytes]) -> bytes:
    """These lines with the checksum that they have."""
    text = b"".join(line + b"\n" for line in lines)
    told = {"tocsin": "end", "rows": len(lines) - 1, "sha256": hashlib.sha256(text).hexdigest()}
    return text + json.dumps(told, separators=(",", ":")).encode() + b"\n"


@asynccontextmanager
async def other_host(sim: SimulatedHost, **options: Any) -> AsyncIterator[ActorHost]:
    """Another host on a store of its own, at the same time, which by itself starts nothing."""
    given: dict[str, Any] = {"dispatch": False, "origin": "https://origin.example", "secrets": [SECRET]} | options
    async with ActorHost.open(
        MemoryProvider(), clock=sim.clock, random=sim.random, transport=SimulatedTransport(sim), **given
    ) as host:
        yield host


async def faults(host: ActorHost, name: str = "u") -> list[str]:
    return await check(host.runtime.provider.view(str(actor_of(name))), 0)


# ---- What comes along ----------------------------------------------------------------------------


@on_simulated_host()
async def test_what_comes_out_again_is_what_went_in_whatever_the_instance_holds(sim: SimulatedHost) -> None:
    await story(sim)
    text = await exported(sim.host)
    async with other_host(sim) as other:
        done = await imported(other, text, same_jobs=True)
        again = await exported(other, "u")

        assert rows_of(again) == rows_of(text)
        assert done.rows == len(rows_of(text))
        assert await faults(other) == []
    known = ({family.decode() for family in FAMILIES} | {key.decode() for key in SINGLE}) - {"meta/import"}
    assert known - kinds_of(text) <= NOT_IN_THE_STORY, "a new kind of row is to be part of the story"


@on_simulated_host()
async def test_the_jobs_of_a_copy_are_new_to_their_receivers_and_one_in_all_their_rows(sim: SimulatedHost) -> None:
    await story(sim)
    text = await exported(sim.host)
    async with other_host(sim) as other:
        await imported(other, text)
        copy = await exported(other, "u")
        assert await faults(other) == []
        history = [one.outcome for one in await other.scheduler("u").history("kept")]

    old, new = names_in(text), names_in(copy)
    assert 2 * len(old) == 2 * len(new) == len({*old.values(), *new.values()})
    for kind, by_key in named_rows(text).items():
        assert len(by_key) == len(named_rows(copy)[kind]) > 0
    assert {*named_rows(copy)["lease"].values()} <= {*new.values()}
    assert {*named_rows(copy)["result"].values()} <= {*named_rows(copy)["hist"].values()}
    assert history == ["done"]


def named_rows(text: bytes) -> dict[str, dict[str, str]]:
    """By kind, the incarnation in each row that has one."""
    found: dict[str, dict[str, str]] = {"job": {}, "lease": {}, "result": {}, "hist": {}}
    for one in rows_of(text):
        kind, _, rest = one.get("key", "").partition("/")
        if kind in found:
            found[kind][rest] = rest.split("/")[2] if kind == "hist" else one["row"]["incarnation"]
    return found


def names_in(text: bytes) -> dict[str, str]:
    return named_rows(text)["job"]


def _unpack(store: Path, path: Path) -> None:
    path.write_bytes(gzip.decompress(store.read_bytes()))


@pytest.mark.anyio
@pytest.mark.parametrize("store", LAYOUTS, ids=lambda store: store.name)
async def test_an_export_of_each_layout_is_imported(store: Path, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tocsin.cli import main

    old, new = tmp_path / "old.db", tmp_path / "new.db"
    _unpack(store, old)
    done = await asyncio.to_thread(CliRunner().invoke, main, ["export", "--store", f"sqlite:///{old}"])
    text = done.stdout_bytes
    async with ActorHost.open(f"sqlite:///{new}", dispatch=False, share=False) as host:
        await imported(host, text, "default", same_jobs=True)
        again = await exported(host, "default")
        assert await faults(host, "default") == []
    kept = {one["key"]: one for one in rows_of(again)}
    lost = [one for one in rows_of(text) if kept.get(one["key"]) != one]
    assert {one["key"].partition("/")[0] for one in lost} <= {"meta"}
    assert rows_of(text)


@on_simulated_host()
async def test_rows_that_were_set_aside_and_a_test_clock_come_along(sim: SimulatedHost) -> None:
    jobs = sim.host.scheduler("timed")
    await jobs.clock.create(1_900_000_000_000)
    await jobs.run_after("1h", "later", id="a", queue="q")
    text = await exported(sim.host, "timed")
    async with other_host(sim, dispatch=True) as other:
        await imported(other, text)
        there = other.scheduler("u")
        assert (await there.clock.get()).now == 1_900_000_000_000  # type: ignore[union-attr]
        await there.clock.advance(by="2h")
        assert [one.id for one in await there.claim("q")] == ["a"]


# ---- Attempts in flight, schedules ---------------------------------------------------------------


@on_simulated_host()
async def test_an_attempt_in_flight_holds_its_slot_there_and_is_settled_there_by_the_same_lease(
    sim: SimulatedHost,
) -> None:
    await story(sim)
    text = await exported(sim.host)
    async with other_host(sim, dispatch=True) as other:
        await imported(other, text, same_jobs=True)
        there = other.scheduler("u")
        assert await there.claim("q") == []  # `a-held` has the only slot

        assert await there.complete("a-held", sim.claimed_lease)
        [behind] = await there.claim("q", lease_ms=10_000)

        assert behind.id == "behind"
        assert int(behind.lease.partition(".")[0]) > int(sim.claimed_lease.partition(".")[0])


@on_simulated_host()
async def test_later_leases_have_later_epochs_also_if_the_clock_of_the_other_place_is_behind(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.run_after(0, "work", id="a", queue="q")
    text = await exported(sim.host)
    ahead = 10**12
    first, *rest = text.splitlines()
    told = json.loads(first) | {"epoch": ahead}
    text = sealed([json.dumps(told).encode(), *rest[:-1]])

    await imported(sim.host, text)

    [claimed] = await sim.host.scheduler("u").claim("q")
    assert int(claimed.lease.partition(".")[0]) == ahead + 1


@on_simulated_host()
async def test_a_schedule_goes_on_from_its_last_slot(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("minutely", cron="* * * * *", path="tick", queue="q", misfire="all", overlap="allow")
    await sim.sleep(200)
    text = await exported(sim.host)
    await sim.jobs.pause()
    before = [one.slot for one in (await sim.jobs.schedules.occurrences("minutely")).occurrences]
    await sim.sleep(200)

    await imported(sim.host, text)
    await sim.sleep(60)

    there = [one.slot for one in (await sim.host.scheduler("u").schedules.occurrences("minutely")).occurrences]
    assert there[::-1] == [before[-1] + 60_000 * n for n in range(len(there))]
    assert len(there) >= len(before) + 4


# ---- Nothing runs before the end -----------------------------------------------------------------


@on_simulated_host()
async def test_nothing_runs_and_nothing_changes_while_rows_come_and_what_is_left_alone_is_removed(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.run_after("1s", "send", id="a")
    text = await exported(sim.host)
    await sim.jobs.cancel("a")
    target = sim.host.transfers("u")
    from tocsin.actors.scheduler.transfer.named_rows import row_of

    rows = [row_of(line) for line in text.splitlines()[1:-1]]
    await target.begin_import("token")
    await target.import_rows("token", rows)
    await sim.sleep(50)
    there = sim.host.scheduler("u")
    for refused in (there.run_after(0, "p"), there.cancel("a"), there.pause(), there.set_pool("x", max_concurrency=1)):
        with pytest.raises(ConflictError, match="being imported"):
            await refused
    with pytest.raises(ConflictError, match="another import"):
        await target.begin_import("second")
    with pytest.raises(ConflictError, match="nothing whole to export"):
        await exported(sim.host, "u")
    assert (await target.state()).importing

    await sim.sleep(11)

    assert not (await target.state()).exists
    with pytest.raises(ConflictError, match="has ended"):
        await target.import_rows("token", rows)
    assert sim.deliveries == []
    await imported(sim.host, text)
    await sim.sleep(1)
    assert [one.body["instanceName"] for one in sim.deliveries] == ["u"]


@on_simulated_host()
async def test_a_host_that_dies_during_an_import_leaves_nothing_that_runs(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1s", "send", id="a")
    text = await exported(sim.host)

    async def dies() -> AsyncIterator[bytes]:
        half = text.splitlines(keepends=True)
        yield b"".join(half[:-1])
        await sim.sleep(3_600)

    task = asyncio.ensure_future(sim.host.load("u", dies()))
    await sim.sleep(0.5)
    await sim.host.transfers("u").import_rows((await instance_row(sim)).importing, [(b"job/x", b"x")])
    await sim.crash()
    assert task.cancelled()
    await sim.open()
    assert (await sim.host.transfers("u").state()).importing
    await sim.sleep(120)

    assert not (await sim.host.transfers("u").state()).exists
    assert {one.body["instanceName"] for one in sim.deliveries} == {"t"}


async def instance_row(sim: SimulatedHost) -> InstanceRow:
    from tocsin.actors.scheduler.model.rows import INSTANCE, decode

    found = await sim.host.runtime.provider.view(str(actor_of("u"))).get([INSTANCE])
    return decode(InstanceRow, INSTANCE, found[INSTANCE])
