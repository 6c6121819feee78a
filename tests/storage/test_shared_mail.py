"""Mail and hints between hosts, on every engine that they share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from tests.storage.shared_places import (
    ONE,
    TWO,
    Connect,
    opened,
    slots_of,
    taken,
    until,
)
from tocsin.storage.ownership.engine import Mail, SharedEngine, slot_of

pytestmark = pytest.mark.anyio


def letter(n: int, actor: str = "a") -> Mail:
    return Mail(slot_of(actor), 0, f"{n:032x}", actor, f"body {n}".encode(), TWO)


async def test_mail_stays_until_the_owner_ends_it(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        await taken(engine, ONE, "a")
        assert await engine.put_mail([letter(1), letter(2), letter(3, "b")], 10, 10_000) == [True] * 3

        for _ in range(2):
            first, second = await engine.take_mail(slots_of("a"), 10)
            assert [(one.op, one.actor, one.body, one.sender) for one in (first, second)] == [
                (one.op, one.actor, one.body, one.sender) for one in (letter(1), letter(2))
            ]
            assert first.seq < second.seq and 0 <= first.age_ms < 10_000
        assert await engine.take_mail(slots_of("a"), 1) and len(await engine.take_mail(slots_of("a", "b"), 10)) == 3
        assert await engine.end_mail(TWO, [(first, b"not mine")]) == []
        assert [one.op for one in await engine.end_mail(ONE, [(first, b"done")])] == [first.op]

        assert [one.op for one in await engine.take_mail(slots_of("a"), 10)] == [second.op]
        assert await engine.answers([first.op, second.op]) == {first.op: b"done"}


async def test_mail_that_was_kept_is_not_kept_again(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        await taken(engine, ONE, "a")
        assert await engine.put_mail([letter(1)], 1, 10_000) == [True]
        assert await engine.put_mail([letter(1)], 1, 10_000) == [True]
        [mail] = await engine.take_mail(slots_of("a"), 10)
        await engine.end_mail(ONE, [(mail, b"done")])

        assert await engine.put_mail([letter(1)], 1, 10_000) == [True]

        assert await engine.take_mail(slots_of("a"), 10) == []
        assert await engine.answers([mail.op]) == {mail.op: b"done"}


async def test_a_slot_with_too_much_mail_takes_no_more(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        assert await engine.put_mail([letter(1), letter(2)], 2, 10_000) == [True, True]

        assert await engine.put_mail([letter(3), letter(4, "b"), letter(1)], 2, 10_000) == [False, True, True]

        assert sorted((one.slot, one.count) for one in await engine.backlogs()) == sorted(
            [(slot_of("a"), 2), (slot_of("b"), 1)]
        )


async def test_a_slot_whose_mail_is_too_old_takes_no_more(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        await engine.put_mail([letter(1)], 10, 20)

        numbers = count(2)

        async def refused() -> bool:
            return await engine.put_mail([letter(next(numbers))], 1_000, 20) == [False]

        assert await until(refused)
        assert next(one for one in await engine.backlogs() if one.slot == slot_of("a")).oldest_ms >= 20


async def test_old_mail_of_an_app_which_may_stay_for_ever_refuses_nobody(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        assert await engine.put_mail([replace(letter(1), sender="")], 10, 20) == [True]

        async def old() -> bool:
            return any(one.oldest_ms > 20 for one in await engine.backlogs())

        assert await until(old)
        assert await engine.put_mail([letter(2)], 10, 20) == [True]


@pytest.mark.parametrize("named", [True, False])
async def test_a_hint_wakes_a_host(connect: Connect, named: bool) -> None:
    async with opened(connect, ONE) as engine, opened(connect, TWO) as other:
        woken = asyncio.ensure_future(anext(engine.hints()))

        async def hinted() -> bool:  # the other side may not listen yet
            await other.hint([ONE] if named else [])
            return woken.done()

        assert await until(hinted)
        await woken


async def test_hints_end_with_the_connection(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        listening = asyncio.ensure_future(_all(engine))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await listening


async def _all(engine: SharedEngine) -> None:
    async for _ in engine.hints():
        pass
