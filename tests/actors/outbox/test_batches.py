"""Which rows are a batch, and what becomes of one that is refused as a whole or was changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.actors.outbox.app import App, target, told
from tests.actors.scheduler.simulated_host import SimulatedHost
from tocsin.actors.outbox.table import BATCH_BYTES
from tocsin.actors.scheduler.model.rows import IdemRow, decode, encode
from tocsin.errors import IdempotencyMismatchError, InvalidInputError, PayloadTooLargeError, TocsinError
from tocsin.storage.api import after


def test_a_batch_is_of_500_rows_and_of_no_more_bytes_than_one_call_takes(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        entries = [app.outbox.run_after("1h", "app:run", n) for n in range(501)]
        entries += [app.outbox.run_after("1h", "app:run", "ü" * 100_000) for n in range(20)]
        with app.db() as db:
            for entry in entries:
                db.execute(*entry.qmark)
        drain = app.drain()
        sizes = []
        submit = target(drain).submit_batch

        async def noted(jobs: list[tuple[str, str]], key: str) -> object:
            sizes.append((len(jobs), sum(len(job.encode()) for _, job in jobs)))
            return await submit(jobs, key)

        target(drain).submit_batch = noted  # type: ignore[method-assign,assignment]
        assert await drain.run_once() == 521
        assert [count for count, _ in sizes] == [500, 16, 5]
        assert all(size <= BATCH_BYTES for _, size in sizes)
        assert (await sim.jobs.status()).backlog == 521


@pytest.mark.parametrize("error", [PayloadTooLargeError("too large"), InvalidInputError("odd")])
def test_a_call_that_is_refused_as_a_whole_is_made_of_fewer_rows_until_one_is_at_fault(
    tmp_path: Path, error: TocsinError
) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        for n in range(9):
            app.write(n)
        drain = app.drain()
        submit = target(drain).submit_batch

        async def picky(jobs: list[tuple[str, str]], key: str) -> object:
            if any('"args":5' in job for _, job in jobs):
                raise error
            return await submit(jobs, key)

        target(drain).submit_batch = picky  # type: ignore[method-assign,assignment]
        await drain.run_once()
        await sim.sleep(1)
        assert app.fired() == {n: 1 for n in range(9) if n != 5}
        assert app.rows("tries, error") == [(1, f"{error.code}: {error.message}")]


def test_a_batch_that_somebody_has_changed_is_looked_into_job_by_job(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        app.write(1)
        drain = app.drain()
        await sim.jobs.run_after("1h", "app:run", 1, id=app.rows("id")[0][0])
        app.write(2)
        fails = iter([IdempotencyMismatchError("another")])
        target(drain).fails = lambda: next(fails, None)
        assert await drain.run_once() == 2
        await sim.sleep(1)
        assert app.fired() == {2: 1}


def test_the_answers_of_a_batch_whose_ids_are_all_taken_can_be_kept(tmp_path: Path) -> None:
    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        ids = [f"{sim.random.getrandbits(256):064x}" for _ in range(500)]
        async with sim.jobs.deferred() as later:
            for one in ids:
                later.run_after("1h", "a:b", id=one)
        with app.db() as db:
            for one in ids:
                db.execute(*app.outbox.run_after(0, "a:b", id=one).qmark)
        assert await app.drain().run_once() == 0
        assert {tries for (tries,) in app.rows("tries")} == {1}


def test_a_batch_whose_kept_answer_was_damaged_is_looked_into_job_by_job(tmp_path: Path) -> None:
    """The first answer was lost on its way; when it is asked for again, the store cannot give it any more."""

    @told(tmp_path)
    async def scenario(sim: SimulatedHost, app: App) -> None:
        for n in range(3):
            app.write(n)
        drain = app.drain()
        submit = target(drain).submit_batch

        async def unheard(jobs: list[tuple[str, str]], key: str) -> object:
            await submit(jobs, key)
            rows = sim.disk.maps["scheduler/t"]
            [(name, value)] = rows.range(b"idem/", after(b"idem/"), 10, False)
            row = decode(IdemRow, name, value)
            rows.apply({name: encode(msgspec.structs.replace(row, answer=row.answer[:-4]))})
            target(drain).submit_batch = submit  # type: ignore[method-assign]
            raise OSError("the answer was lost")

        target(drain).submit_batch = unheard  # type: ignore[method-assign,assignment]
        await drain.run_once()
        await sim.sleep(60)
        await drain.run_once()
        await sim.sleep(1)
        assert app.fired() == {0: 1, 1: 1, 2: 1}
        assert app.rows("id") == []
