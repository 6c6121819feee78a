"""Calls that are kept in the store until the owner of their actor has done them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.storage.ownership.members import TIMING, Member, World, in_world, names, until
from tocsin.errors import OverloadedError
from tocsin.storage.disk_connection import Fate
from tocsin.storage.ownership.engine import Mail, slot_of
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.shared import Arrived

SLOW = Timing(ttl_s=40.0, beat_s=12.0, margin_s=4.0, look_s=10.0)


class Reader:
    """Does the mail of a host: answers each call with its body, backwards."""

    def __init__(self, member: Member, *, ends: bool = True) -> None:
        self.seen: list[str] = []
        self._member, self._ends = member, ends
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for arrived in self._member.provider.mailbox.arrivals():
            self.seen += [one.op for one in arrived]
            if self._ends:
                await self._member.provider.mailbox.end([(one, one.body[::-1]) for one in arrived])


async def two_with_mail(world: World, timing: Timing = TIMING) -> tuple[Member, Member, str]:
    """Two hosts, and an actor of the second one."""
    one, two = await world.join(timing=timing), await world.join(timing=timing)
    await until(lambda: world.shared_out(one, two))
    await until(lambda: one.provider.locate(names(1)[0]) is not None)
    return one, two, next(name for name in names(50) if two.has(name))


def test_a_call_by_mail_is_done_by_its_owner_and_answered_soon() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        reader = Reader(two)
        began = asyncio.get_running_loop().time()
        await one.provider.mailbox.send(name, "1" * 32, b"abc")
        assert await one.provider.mailbox.answer("1" * 32, 5.0) == b"cba"

        assert asyncio.get_running_loop().time() - began < 0.1
        assert reader.seen == ["1" * 32]
        assert (await two.provider.facts()).mail == 0
        assert (one.provider.counts.mail_sent, two.provider.counts.mail_done) == (1, 1)
        reader.task.cancel()

    in_world(main)


def test_mail_that_stays_holds_up_none_behind_it_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.storage.ownership.mailbox.MAIL_AT_ONCE", 3)

    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        rows = [Mail(slot_of(name), 0, f"{n:032x}", name, b"stays", "") for n in range(8)]
        assert all(await one.engine.put_mail(rows, 10, 10_000))
        reader = Reader(two, ends=False)
        await one.provider.mailbox.send(name, "f" * 32, b"abc")
        took = await until(lambda: "f" * 32 in reader.seen)

        assert took < 3.5 * TIMING.ttl_s
        reader.task.cancel()

    in_world(main)


def test_all_who_wait_for_answers_look_together() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        looks: list[int] = []
        answers = one.engine.answers

        async def counted(ops: Sequence[str]) -> dict[str, bytes]:
            looks.append(len(ops))
            return await answers(ops)

        one.engine.answers = counted  # type: ignore[method-assign]
        mailbox, ops = one.provider.mailbox, [f"{n:032x}" for n in range(300)]
        await asyncio.gather(*(mailbox.send(name, op, op.encode()) for op in ops))
        waiting = [asyncio.create_task(mailbox.answer(op, 10.0)) for op in ops]
        twice = asyncio.create_task(mailbox.answer(ops[0], 10.0))
        nobody = asyncio.create_task(mailbox.answer("f" * 32, 1.0))
        await asyncio.sleep(0.3)
        waiting[7].cancel()
        reader = Reader(two)

        assert await asyncio.gather(*waiting[:7], *waiting[8:]) == [op.encode()[::-1] for op in ops if op != ops[7]]
        assert await twice == ops[0].encode()[::-1]
        assert len(looks) < 20
        assert await nobody is None
        before = len(looks)
        await asyncio.sleep(5)
        assert len(looks) == before  # nobody waits any more
        reader.task.cancel()

    in_world(main)


def test_who_waits_for_an_answer_hears_that_the_host_stops() -> None:
    async def main(world: World) -> None:
        one, _, name = await two_with_mail(world)
        await one.provider.mailbox.send(name, "1" * 32, b"abc")
        waiting = asyncio.create_task(one.provider.mailbox.answer("1" * 32, 600.0))
        await asyncio.sleep(1)
        await world.stop(one)

        assert await asyncio.wait_for(waiting, 1.0) is None
        assert await one.provider.mailbox.answer("1" * 32, 600.0) is None

    in_world(main)


def test_a_call_that_is_sent_twice_is_done_once() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        reader = Reader(two)
        for _ in range(2):
            await one.provider.mailbox.send(name, "1" * 32, b"abc")
            assert await one.provider.mailbox.answer("1" * 32, 5.0) == b"cba"
        coming = iter([Fate.UNHEARD])
        one.engine.faults.fate = lambda: next(coming, Fate.DONE)  # type: ignore[method-assign]
        await one.provider.mailbox.send(name, "2" * 32, b"xy")
        assert await one.provider.mailbox.answer("2" * 32, 5.0) == b"yx"

        assert reader.seen == ["1" * 32, "2" * 32]
        reader.task.cancel()

    in_world(main)


def test_mail_for_a_slot_without_an_owner_waits_for_the_next_one() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        await asyncio.sleep(TIMING.ttl_s)
        await world.kill(two)
        await one.provider.mailbox.send(name, "1" * 32, b"abc")
        assert await one.provider.mailbox.answer("1" * 32, 0.1) is None
        reader = Reader(one)

        assert await one.provider.mailbox.answer("1" * 32, 5.0) == b"cba"
        reader.task.cancel()

    in_world(main)


def test_mail_is_found_although_no_hint_comes() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        reader = Reader(two)
        await asyncio.sleep(0.5)
        two.engine.hinted = lambda: None  # type: ignore[method-assign]  # it is lost
        await one.provider.mailbox.send(name, "1" * 32, b"abc")
        await until(lambda: reader.seen)
        reader.task.cancel()

    in_world(main)


def test_mail_that_is_not_ended_comes_again_and_not_at_every_look() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        reader = Reader(two, ends=False)
        await one.provider.mailbox.send(name, "1" * 32, b"")
        for n in range(5):
            await one.provider.mailbox.send(name, f"{n}" * 31 + "a", b"")
            await asyncio.sleep(0.1)
        assert len(reader.seen) == 6
        await asyncio.sleep(TIMING.ttl_s * 1.5)

        assert sorted(set(reader.seen)) == sorted(reader.seen[:6])
        assert len(reader.seen) == 12
        reader.task.cancel()

    in_world(main)


def test_mail_whose_actor_has_gone_is_left_to_its_new_owner() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world)
        arrived: list[Sequence[Arrived]] = []

        async def read() -> None:
            async for some in two.provider.mailbox.arrivals():
                arrived.append(some)

        reading = asyncio.create_task(read())
        await one.provider.mailbox.send(name, "1" * 32, b"abc")
        await until(lambda: arrived)
        await two.provider.hand_over()
        await until(lambda: one.has(name))
        await two.provider.mailbox.end([(arrived[0][0], b"too late")])
        reader = Reader(one)

        assert await one.provider.mailbox.answer("1" * 32, 5.0) == b"cba"
        reading.cancel()
        reader.task.cancel()

    in_world(main)


def test_a_slot_with_too_much_mail_takes_no_more_and_says_when_to_try_again() -> None:
    async def main(world: World) -> None:
        one, _, name = await two_with_mail(world)
        one.provider.mailbox.most = 3
        for n in range(3):
            await one.provider.mailbox.send(name, f"{n}" * 32, b"")
        with pytest.raises(OverloadedError) as refused:
            await one.provider.mailbox.send(name, "9" * 32, b"")
        assert refused.value.details["retryAfterMs"] == 1000
        await one.provider.mailbox.send(name, "0" * 32, b"")  # it is kept already

        one.provider.mailbox.most, one.provider.mailbox.oldest_ms = 100, 1_000
        await asyncio.sleep(1.5)
        with pytest.raises(OverloadedError):
            await one.provider.mailbox.send(name, "9" * 32, b"")
        assert (await one.provider.facts()).mail == 3
        assert (await one.provider.facts()).oldest_mail_ms >= 1_500

    in_world(main)


def test_much_mail_at_once_takes_few_statements_and_few_hints() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world, SLOW)
        puts: list[int] = []
        hints: list[Sequence[str]] = []
        put, hint = one.engine.put_mail, one.engine.hint

        async def counted(mail: Sequence[object], most: int, oldest_ms: int) -> list[bool]:
            puts.append(len(mail))
            return await put(mail, most, oldest_ms)  # type: ignore[arg-type]

        async def noted(hosts: Sequence[str]) -> None:
            hints.append(hosts)
            await hint(hosts)

        one.engine.put_mail, one.engine.hint = counted, noted  # type: ignore[method-assign]
        await asyncio.gather(*(one.provider.mailbox.send(name, f"{n:032x}", b"") for n in range(300)))
        await asyncio.sleep(0.1)

        assert sum(puts) == 300
        assert len(puts) <= 3
        assert len(hints) <= 2
        assert set(map(tuple, hints)) == {(two.provider.owner,)}

    in_world(main)


def test_mail_for_a_slot_whose_owner_is_not_known_wakes_all() -> None:
    async def main(world: World) -> None:
        one, two, name = await two_with_mail(world, SLOW)
        reader = Reader(two)
        await asyncio.sleep(0.1)
        one.provider._where.note(range(4096), None)
        began = asyncio.get_running_loop().time()
        await one.provider.mailbox.send(name, "1" * 32, b"abc")
        assert await one.provider.mailbox.answer("1" * 32, 5.0) == b"cba"

        assert asyncio.get_running_loop().time() - began < 0.1
        reader.task.cancel()

    in_world(main)
