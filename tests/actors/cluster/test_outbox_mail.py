"""Rows that an app put into the mail itself: nobody waits for their answers, and none of them is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.actors.cluster.city import City
from tocsin.actors.outbox.entry import Outbox, OutboxEntry
from tocsin.storage.shared import Arrived
from tocsin.testing import simulate


def in_city(main: Callable[[City], Awaitable[None]]) -> None:
    async def run(random: Random) -> None:
        await main(City(random))

    simulate(5, run)


def written(city: City, entry: OutboxEntry, body: bytes | None = None) -> str:
    """Commit a row."""
    op = str(entry.values["op"])
    city.mail[op] = Arrived(op, entry.values["actor"], body or entry.values["body"], "", 0, len(city.mail) + 1)
    return op


def outbox(city: City, instance: str = "t") -> Outbox:
    return Outbox(instance, store="tocsin", clock=city.clock, random=Random(3))


def test_a_row_is_a_job_once_however_often_it_comes_and_at_whichever_host() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            box = outbox(city)
            entries = [box.run_after("1h", "a:b", n) for n in range(3)] + [box.run_after("1h", "a:b", id="mine")]
            for entry in entries:
                written(city, entry)
            mail = dict(city.mail)
            await city.clock.sleep(1)
            assert not city.mail
            await city.give("t", "b")
            city.mail.update(mail)  # the host died before it noted that they were done
            await city.clock.sleep(1)
            assert not city.mail
            jobs = (await b.scheduler("t").list(order="id")).records
            assert {one.id for one in jobs} == {entry.id for entry in entries} and len(jobs) == 4
            await city.clock.sleep(3_601)
            assert len(city.receiver.deliveries) == 4

    in_city(main)


def test_a_row_whose_id_is_taken_is_a_dead_letter_once() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, _):
            await a.scheduler("t").run_after("1h", "a:b", id="mine")
            entry = outbox(city).run_after("1h", "a:b", id="mine")
            for _ in range(2):
                written(city, entry)
                await city.clock.sleep(1)
            (letter,) = (await a.scheduler("t").dead()).records
            assert letter.last_error is not None and "'mine' is taken" in letter.last_error.message
            assert letter.id != "mine" and not city.mail

    in_city(main)


def test_a_row_that_cannot_be_read_stays_is_told_of_once_and_holds_up_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, _):
            box = outbox(city)
            bodies = (b"not json", b'["jobs.of_later","t",false,[]]', b'["jobs.submit_once","t",false,[7]]')
            odd = [written(city, box.run_after("1h", "a:b"), body) for body in bodies]
            good = box.run_after("1h", "a:b")
            written(city, good)
            await city.clock.sleep(60)
            assert list(city.mail) == odd and not set(odd) & {*city.answers}
            assert [one.id for one in (await a.scheduler("t").list()).records] == [good.id]

    in_city(main)
    assert sum("stays in the mail" in record.getMessage() for record in caplog.records) == 3


def test_rows_wait_while_the_store_is_full() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, _):
            a.provider.full = True
            entry = outbox(city).run_after("1h", "a:b")
            op = written(city, entry)
            await city.clock.sleep(10)
            assert list(city.mail) == [op]
            a.provider.full = False
            await city.clock.sleep(10)
            assert not city.mail
            assert [one.id for one in (await a.scheduler("t").list()).records] == [entry.id]

    in_city(main)
