"""A call that comes again under its operation id is answered as it was, and changes nothing more."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tocsin.actors.runtime.actor import Actor
from tocsin.actors.runtime.done import DONE, KEPT_MS, LONGEST, operation_id
from tocsin.actors.runtime.events import Call, Once
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.errors import HolderLostError, InvalidInputError
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.testing import VirtualClock, simulate

ONE = ActorId("Tally", "one")


class Tally(Actor):
    async def add(self, n: int, length: int = 0) -> Any:
        value = int(await self.ctx.storage.get(b"n") or b"0") + n
        self.ctx.storage.put(b"n", b"%d" % value)
        if n < 0:
            raise InvalidInputError("below")
        return "x" * length if length else value

    async def read(self) -> int:
        return int(await self.ctx.storage.get(b"n") or b"0")

    async def add_later(self, n: int) -> int:
        async with self.ctx.outside():
            await asyncio.sleep(0)
        return int(await self.add(n))

    async def pay(self, paid: list[str], fails: bool) -> int:
        async with self.ctx.outside():
            paid.append("paid")
            await asyncio.sleep(1)
        if fails:
            raise InvalidInputError("after it was paid")
        return len(paid)


def once(op: str, method: str, *args: Any) -> Once[Any]:
    return Once(op, Call(method, args), Any)


def test_a_call_that_comes_again_changes_nothing_also_in_another_activation() -> None:
    async def main(random: Random) -> None:
        disk, clock = MemoryDisk(), VirtualClock()
        ops = [operation_id(clock.now_ms(), random) for _ in range(3)]
        for _ in range(2):
            async with Host(MemoryProvider(disk), {"Tally": Kind(Tally)}, clock=clock, random=random) as host:
                assert await host.call(ONE, once(ops[0], "add", 1)) == 1
                assert await host.call(ONE, once(ops[1], "add", 1)) == 2
                assert await host.call(ONE, once(ops[0], "add", 1)) == 1
                assert await host.call(ONE, once(ops[2], "add_later", 5)) == 7
                assert await host.call(ONE, Call("read")) == 7

    simulate(1, main)


def test_what_failed_or_changed_nothing_is_done_again() -> None:
    async def main(random: Random) -> None:
        disk, clock = MemoryDisk(), VirtualClock()
        op, reads = operation_id(clock.now_ms(), random), operation_id(clock.now_ms(), random)
        async with Host(MemoryProvider(disk), {"Tally": Kind(Tally)}, clock=clock, random=random) as host:
            for _ in range(2):
                with pytest.raises(InvalidInputError, match="below"):
                    await host.call(ONE, once(op, "add", -1))
            assert await host.call(ONE, once(reads, "read")) == 0
            assert await host.call(ONE, once(op, "add", 4)) == 4
            assert await host.call(ONE, once(reads, "read")) == 4

    simulate(1, main)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_handler_does_outside_of_its_turn_is_not_done_again(fails: bool) -> None:
    async def main(random: Random) -> None:
        disk, clock, paid = MemoryDisk(), VirtualClock(), list[str]()
        op = operation_id(clock.now_ms(), random)
        async with Host(MemoryProvider(disk), {"Tally": Kind(Tally)}, clock=clock, random=random) as host:
            first = host.call(ONE, once(op, "pay", paid, fails))
            await asyncio.sleep(0.5)
            with pytest.raises(HolderLostError, match="was begun") as begun:
                await host.call(ONE, once(op, "pay", paid, fails))
            assert begun.value.details == {"mayRepeat": False}
            if fails:
                with pytest.raises(InvalidInputError):
                    await first
                with pytest.raises(HolderLostError):
                    await host.call(ONE, once(op, "pay", paid, fails))
            else:
                assert await first == 1 == await host.call(ONE, once(op, "pay", paid, fails))
        assert paid == ["paid"]

    simulate(1, main)


def test_an_answer_too_long_to_be_kept_is_not_given_twice_and_not_done_twice() -> None:
    async def main(random: Random) -> None:
        clock = VirtualClock()
        op = operation_id(clock.now_ms(), random)
        async with Host(MemoryProvider(), {"Tally": Kind(Tally)}, clock=clock, random=random) as host:
            assert len(await host.call(ONE, once(op, "add", 1, LONGEST))) == LONGEST
            with pytest.raises(HolderLostError, match="was done"):
                await host.call(ONE, once(op, "add", 1, LONGEST))
            assert await host.call(ONE, Call("read")) == 1

    simulate(1, main)


def test_calls_are_forgotten_after_a_day_and_refused_from_then_on() -> None:
    async def main(random: Random) -> None:
        disk, clock = MemoryDisk(), VirtualClock()
        first = operation_id(clock.now_ms(), random)
        async with Host(MemoryProvider(disk), {"Tally": Kind(Tally)}, clock=clock, random=random) as host:
            await host.call(ONE, once(first, "add", 1))
            for _ in range(30):
                await host.call(ONE, once(operation_id(clock.now_ms(), random), "add", 1))
            await clock.sleep(KEPT_MS / 1000 + 1)
            with pytest.raises(InvalidInputError, match="24 hours"):
                await host.call(ONE, once(first, "add", 1))
            for _ in range(2):
                await host.call(ONE, once(operation_id(clock.now_ms(), random), "add", 1))
        notes = [key for key, _ in disk.maps[str(ONE)].range(DONE, DONE + b"g", 100, False)]
        assert len(notes) == 2

    simulate(1, main)
