"""What a drain does about refusals and outages, when it looks, and what it says."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from pathlib import Path

import pytest

from tests.actors.outbox.app import App, SteppedTarget, Steps, target, told
from tests.actors.scheduler.simulated_host import SimulatedHost
from tocsin.actors.outbox.drain import Drain
from tocsin.actors.outbox.table import ParkedRow
from tocsin.actors.outbox.target import Refused
from tocsin.errors import (
    HostClosedError,
    InvalidInputError,
    OverloadedError,
    SettingsError,
    StoreUnavailable,
    UnreachableError,
)

# ---- Refusals ------------------------------------------------------------------------------------


def test_a_refused_row_is_parked_at_its_eighth_try_and_keeps_nobody_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        await sim.jobs.run_after("1d", "other:run", id="taken")
        parked: list[ParkedRow] = []
        async with app.drain(on_parked=parked.append, poll=4) as drain:
            entry = app.write(1, id="taken")
            app.write(2)
            await sim.sleep(5)
            assert app.fired() == {2: 1}

            tried = [app.rows("tries")[0][0]]
            while not parked:
                await sim.sleep(4)
                if (now := app.rows("tries")[0][0]) != tried[-1]:
                    tried.append(now)
            assert tried == [1, 2, 3, 4, 5, 6, 7, 8]
            assert 600 <= sim.clock.monotonic() <= 700
            assert await drain.parked() == parked
            [row] = parked
            assert (row.instance, row.tries, row.job) == ("t", 8, entry.statement.values["job"])
            assert row.error == (
                "DUPLICATE_SCHEDULE_ID: id 'taken' is taken by a pending job: cancel it, choose another id, or say "
                "what to do on conflict: keep or replace"
            )
            assert f"outbox row {row.id} was parked after 8 tries: DUPLICATE_SCHEDULE_ID" in caplog.text

            await sim.sleep(900)
            assert app.rows("tries") == [(8,)]
            await sim.jobs.cancel("taken")
            assert await drain.retry(row.id) is True
            await sim.sleep(1)
            assert app.fired() == {1: 1, 2: 1}
            assert (await drain.parked(), await drain.retry(row.id)) == ([], False)


def test_a_parked_row_can_be_discarded_and_a_waiting_one_not(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        app.write(1)
        drain = app.drain()
        [(row,)] = app.rows("id")
        assert await drain.discard(row) is False
        with app.db() as db:
            db.execute("UPDATE tocsin_outbox SET parked_at = 1, error = 'x'")
        assert await drain.discard(row) is True
        assert app.rows("id") == []


def test_an_app_that_fails_to_hear_of_a_parked_row_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        async def fails(row: ParkedRow) -> None:
            raise ValueError("of the app")

        await sim.jobs.run_after("1d", "other:run", id="taken")
        async with app.drain(on_parked=fails, poll=10):
            app.write(1, id="taken")
            await sim.sleep(900)
            app.write(2)
            await sim.sleep(11)
            assert app.fired() == {2: 1}
        assert "on_parked failed" in caplog.text


def test_a_row_that_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        jobs = [
            "{",
            "[]",
            '{"functionPath":"a:b"}',
            '{"functionPath":"a:b","scheduledFor":1,"id":"x"}',
            "\ud7ff",
            b"\xff",
        ]
        for n, job in enumerate(jobs):
            with app.db() as db:
                db.execute("INSERT INTO tocsin_outbox (id, instance, job, created_at) VALUES (?, 't', ?, 0)", (n, job))
        app.write(1)
        await app.drain().run_once()
        await sim.sleep(1)

        assert app.fired() == {1: 1}
        assert [(tries, error.partition(":")[0]) for tries, error in app.rows("tries, error")] == [
            (1, "INVALID_JSON"),
            (1, "INVALID_INPUT"),
            (1, "INVALID_INPUT"),
            (1, "INVALID_INPUT"),
            (1, "INVALID_JSON"),
            (1, "INVALID_JSON"),
        ]


def test_no_room_in_the_scheduler_is_not_the_fault_of_a_row(tmp_path: Path) -> None:
    @told(tmp_path, max_jobs=1)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        await sim.jobs.run_after("1h", "other:run", id="one")
        async with app.drain():
            app.write(1)
            await sim.sleep(300)
            [(tries, error)] = app.rows("tries, error")
            assert (tries, error[:14]) == (0, "QUOTA_EXCEEDED")

            await sim.jobs.cancel("one")
            await sim.sleep(31)
            assert app.fired() == {1: 1}


def test_an_id_of_ones_own_follows_on_conflict(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        await sim.jobs.run_after("1h", "other:run", id="kept")
        await sim.jobs.run_after("1h", "other:run", id="swapped")
        app.write(1, id="kept", on_conflict="keep")
        app.write(2, id="swapped", on_conflict="replace")
        assert await app.drain().run_once() == 2
        await sim.sleep(1)
        assert app.fired() == {2: 1}
        assert (await sim.jobs.get("kept")) is not None


# ---- Outages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), OverloadedError("full"), UnreachableError("away"), OSError("a stranger's"), KeyError(1)],
    ids=lambda error: type(error).__name__,
)
def test_an_outage_is_no_try_and_the_same_is_submitted_when_it_is_over(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        caplog.set_level(logging.INFO)
        async with app.drain() as drain:
            failed = []

            def fails() -> Exception:
                failed.append(sim.clock.monotonic())
                return error

            target(drain).fails = fails
            app.write(1)
            await sim.sleep(300)
            app.write(2)
            pauses = [round(after - before) for before, after in pairwise(failed)]
            assert pauses[:6] == [1, 2, 4, 8, 16, 30]
            assert len(pauses) < 20
            assert app.rows("tries, parked_at, error") == [(0, None, None)] * 2

            target(drain).fails = lambda: None
            await sim.sleep(31)
            assert app.fired() == {1: 1, 2: 1}
        assert "takes jobs again" in caplog.text


def test_one_scheduler_in_trouble_does_not_keep_others_back(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        class Hosts:
            def scheduler(self, name: str = "default") -> SteppedTarget:
                found = SteppedTarget(sim, steps)
                found.fails = lambda: StoreUnavailable("away") if name == "bad" else None
                return found

        steps = Steps()
        drain = app.drain()
        drain._jobs, drain._only = Hosts(), None
        with app.db() as db:
            for n in range(3):
                app.write(n)
            db.execute("UPDATE tocsin_outbox SET instance = 'bad' WHERE rowid = 1")
        assert await drain.run_once() == 2
        assert app.rows("instance, tries") == [("bad", 0)]


def test_a_scheduler_gets_the_rows_of_its_instance_only(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        app.write(1)
        app.write(2)
        with app.db() as db:
            db.execute("UPDATE tocsin_outbox SET instance = 'other' WHERE rowid = 1")
        only = Drain(app.drain()._database, sim.jobs, clock=sim.clock, random=sim.random)
        assert await only.run_once() == 1
        whole = Drain(app.drain()._database, sim.host, clock=sim.clock, random=sim.random)
        assert await whole.run_once() == 1
        await sim.sleep(1)
        assert {one.body["instanceName"]: one.body["args"] for one in sim.deliveries} == {"t": 2, "other": 1}


def test_a_database_that_fails_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        async with app.drain():
            with app.db() as db:
                db.execute("ALTER TABLE tocsin_outbox RENAME TO elsewhere")
            await sim.sleep(60)
            with app.db() as db:
                db.execute("ALTER TABLE elsewhere RENAME TO tocsin_outbox")
            app.write(1)
            await sim.sleep(31)
            assert app.fired() == {1: 1}
        assert "no such table: tocsin_outbox" in caplog.text
        assert len(caplog.records) < 10


# ---- When it looks -------------------------------------------------------------------------------


def test_it_looks_at_once_when_told_and_now_and_then_when_not(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        async with app.drain(poll="60s") as drain:
            await sim.sleep(1)
            app.write(1)
            drain.notify()
            await sim.sleep(0.5)
            assert app.fired() == {1: 1}
            app.write(2)
            await sim.sleep(50)
            assert app.fired() == {1: 1}
            await sim.sleep(10)
            assert app.fired() == {1: 1, 2: 1}
        drain.notify()  # later than its end: nothing


def test_a_clock_that_steps_back_keeps_no_row_waiting_for_long(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        async with app.drain() as drain:
            await sim.jobs.run_after("1d", "other:run", id="taken")
            app.write(1, id="taken")
            target(drain).fails = lambda: StoreUnavailable("away")
            app.write(2)
            await sim.sleep(5)
            sim.clock.step(-3 * 3_600_000)
            target(drain).fails = lambda: None
            await sim.sleep(120)
            await sim.jobs.cancel("taken")
            await sim.sleep(100)
            assert app.rows("id") == []
            assert (await sim.jobs.status()).backlog == 2  # due when the clock is there again


def test_closing_lets_the_batch_at_hand_end_and_begins_no_other(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        steps = Steps()
        steps.gates["after the submission"] = gate = asyncio.Event()
        drain = app.drain(steps)
        await drain.__aenter__()
        app.write(1)
        await sim.sleep(2)
        app.write(2)
        closing = asyncio.create_task(drain.aclose())
        await sim.sleep(1)
        gate.set()
        await closing
        assert app.rows("batch") == [(None,)]
        await sim.sleep(60)
        assert app.fired() == {1: 1}


def test_settings_that_could_never_work_are_refused(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        for options in (
            {"poll": 0},
            {"poll": -1},
            {"poll": "soon"},
            {"hold": 0.09},
            {"table": "a; DROP TABLE b"},
            {"table": ""},
        ):
            with pytest.raises((SettingsError, InvalidInputError), match=r"poll|table|hold"):
                app.drain(**options)
        with pytest.raises(SettingsError, match="retry must be"):
            app.drain(retry=8)
        with pytest.raises(SettingsError, match="on_parked must be"):
            app.drain(on_parked=8)
        with pytest.raises(SettingsError, match=r"jobs must be a Scheduler, an ActorHost, .*, not str"):
            Drain(app.drain()._database, "tenant-a")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="limit"):
            await app.drain().parked(0)


def test_a_drain_is_used_once(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        async with app.drain() as drain:
            with pytest.raises(HostClosedError):
                await drain.__aenter__()
        with pytest.raises(HostClosedError, match="is closed"):
            await drain.run_once()


def test_reasons_are_what_a_column_of_text_can_hold(tmp_path: Path) -> None:
    assert Refused.by(InvalidInputError("a\0b\ud800" + "c" * 999)).message == "a b?" + "c" * 296
