"""The promises of the runtime: turns, gates, failed turns, broken activations, alarms, eviction, drain."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.counter import ONE, Counter, call, running, turns, until
from tests.actors.held_provider import HeldProvider
from tocsin.actors.runtime.events import Call
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.errors import (
    ActorBrokenError,
    HostClosedError,
    InvalidInputError,
    NotFoundError,
    OverloadedError,
    StoreFull,
    StoreTooLarge,
    StoreUnavailable,
    TurnError,
)
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio


async def test_a_turn_sees_the_turns_before_it_though_they_are_not_durable() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        answers = [asyncio.ensure_future(call(host, ONE, "add", 1)) for _ in range(3)]
        await provider.until_held(3)

        assert not any(answer.done() for answer in answers)
        provider.holding = False
        provider.release()
        assert await asyncio.gather(*answers) == [2, 3, 4]


async def test_an_answer_that_wrote_nothing_waits_for_the_writes_it_may_have_seen() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        write = asyncio.ensure_future(call(host, ONE, "add", 1))
        await provider.until_held(1)
        read = asyncio.ensure_future(call(host, ONE, "value"))
        refused = asyncio.ensure_future(call(host, ONE, "refuse"))
        await turns(host)

        assert not read.done()
        assert not refused.done()
        provider.holding = False
        provider.release()
        assert (await write, await read) == (2, 2)
        with pytest.raises(LookupError):
            await refused


async def test_a_failed_turn_leaves_no_trace_in_store_or_memory() -> None:
    async with running() as host:
        await call(host, ONE, "add", 1)
        with pytest.raises(ZeroDivisionError):
            await call(host, ONE, "add_and_fail", 10)

        assert await call(host, ONE, "memory") == []
        assert await call(host, ONE, "value") == 1


async def test_a_failed_turn_that_wrote_nothing_is_forgotten_all_the_same() -> None:
    async with running() as host:
        await call(host, ONE, "add", 1)
        with pytest.raises(LookupError):
            await call(host, ONE, "refuse")

        assert await call(host, ONE, "memory") == []


async def test_a_lost_commit_fails_those_who_saw_it_and_nobody_else() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        lost = [asyncio.ensure_future(call(host, ONE, "add", 5)) for _ in range(2)]
        await provider.until_held(2)
        provider.fail(StoreFull("no space"))
        provider.holding = False

        for answer in lost:
            with pytest.raises(StoreFull):
                await answer
        assert await call(host, ONE, "value") == 1


async def test_events_in_line_when_an_activation_breaks_go_to_the_next_one() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        flying = asyncio.ensure_future(call(host, ONE, "add", 5))
        await provider.until_held(1)
        door = asyncio.Event()
        in_turn = asyncio.ensure_future(call(host, ONE, "hold_turn", door))
        in_line = asyncio.ensure_future(call(host, ONE, "add", 7))
        await turns(host)
        provider.fail(StoreUnavailable("gone"))
        provider.holding = False
        await turns(host)
        door.set()

        for hit in (flying, in_turn):
            with pytest.raises(StoreUnavailable):
                await hit
        assert await in_line == 8


async def test_others_run_while_a_handler_is_outside_and_it_comes_back_in_line() -> None:
    async with running() as host:
        outside = asyncio.ensure_future(call(host, ONE, "add_outside", 10))
        await until(lambda: call(host, ONE, "value"), 10)
        assert await call(host, ONE, "add", 1) == 11
        await call(host, ONE, "open_door")

        assert await outside == 21


async def test_storage_is_closed_outside_a_turn() -> None:
    async with running() as host:
        with pytest.raises(TurnError, match="outside a turn"):
            await call(host, ONE, "touch_outside")


async def test_work_after_a_commit_belongs_to_a_turn() -> None:
    async with running() as host:
        with pytest.raises(TurnError, match="after_commit"):
            await call(host, ONE, "tell_outside")


async def test_the_last_write_of_a_key_in_a_turn_counts_before_and_after_the_commit() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "swap", b"b", b"a")
        provider.holding = True
        swapped = asyncio.ensure_future(call(host, ONE, "swap", b"a", b"b"))
        await provider.until_held(1)
        seen = asyncio.ensure_future(call(host, ONE, "rows", b"a", b"b"))
        await turns(host)
        provider.holding = False
        provider.release()
        await swapped

        assert await seen == ([b"b"], [b"b"])
        assert await call(host, ONE, "rows", b"a", b"b") == ([b"b"], [b"b"])


async def test_a_call_that_cannot_be_delivered_fails_when_it_is_awaited() -> None:
    host = Host(MemoryProvider(), {"Counter": Kind(Counter)})
    asked = [host.call(ONE, Call("value")), host.call(ONE, Call("value"), create=False)]
    for one in asked:
        with pytest.raises(HostClosedError):
            await one


async def test_a_call_inside_a_turn_is_refused() -> None:
    async with running() as host:
        with pytest.raises(TurnError, match="wait for itself"):
            await call(host, ONE, "call_inside")


async def test_work_after_commit_waits_for_it_and_is_dropped_with_it() -> None:
    provider = HeldProvider(MemoryProvider())
    heard: list[int] = []
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        told = asyncio.ensure_future(call(host, ONE, "tell_after", heard, 1))
        await provider.until_held(1)
        assert heard == []
        provider.release()
        await told
        assert heard == [2]

        with pytest.raises(ZeroDivisionError):
            await call(host, ONE, "tell_and_fail", heard, 1)
        assert heard == [2, -3]

        lost = asyncio.ensure_future(call(host, ONE, "tell_after", heard, 1))
        await provider.until_held(1)
        provider.fail(StoreFull("no space"))
        provider.holding = False
        with pytest.raises(StoreFull):
            await lost
        assert heard == [2, -3, -3]


async def test_a_cancelled_caller_does_not_cancel_its_turn() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        answer = asyncio.ensure_future(call(host, ONE, "add", 1))
        await provider.until_held(1)
        answer.cancel()
        provider.holding = False
        provider.release()

        assert await call(host, ONE, "value") == 2


async def test_a_full_mailbox_refuses_before_anything_ran() -> None:
    async with running(mailbox_limit=3) as host:
        results = await asyncio.gather(*(call(host, ONE, "add", 1) for _ in range(10)), return_exceptions=True)
        refused = [one for one in results if isinstance(one, OverloadedError)]

        assert len(refused) == 7
        assert await call(host, ONE, "value") == 3


async def test_reading_an_actor_that_was_never_written_does_not_create_it() -> None:
    provider = MemoryProvider()
    async with running(provider) as host:
        with pytest.raises(NotFoundError):
            await call(host, ONE, "add", 1, create=False)

        assert await provider.names("", 10) == []


async def test_unknown_kinds_and_private_methods_are_refused() -> None:
    async with running() as host:
        with pytest.raises(InvalidInputError, match="no actors of kind 'Nobody'"):
            await call(host, ActorId("Nobody", "x"), "add", 1)
        with pytest.raises(InvalidInputError, match="private"):
            await call(host, ONE, "_ring")


async def test_idle_actors_leave_memory_and_come_back_with_a_higher_epoch() -> None:
    async with running() as host:
        await call(host, ONE, "add", 1)
        before = host.active(ONE)
        await turns(host)
        assert await host.evict() == 1
        assert host.active(ONE) is None
        assert await call(host, ONE, "add", 1) == 2
        after = host.active(ONE)

        assert before is not None and after is not None
        assert after.storage.epoch > before.storage.epoch


async def test_a_busy_actor_is_not_evicted() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        await call(host, ONE, "add", 1)
        provider.holding = True
        answer = asyncio.ensure_future(call(host, ONE, "add", 1))
        await provider.until_held(1)
        await turns(host)
        assert await host.evict() == 0
        provider.holding = False
        provider.release()
        await answer


async def test_a_stopping_host_serves_who_waits_and_refuses_who_comes() -> None:
    provider = HeldProvider(MemoryProvider())
    host = Host(provider, {"Counter": Kind(Counter)})
    await host.start()
    await call(host, ONE, "add", 1)
    provider.holding = True
    waiting = asyncio.ensure_future(call(host, ONE, "add", 1))
    await provider.until_held(1)
    stop = asyncio.ensure_future(host.stop())
    await asyncio.sleep(0)
    with pytest.raises(HostClosedError):
        await call(host, ONE, "add", 1)
    assert not stop.done()
    provider.holding = False
    provider.release()

    assert await waiting == 2
    await stop


async def test_a_handler_that_cancels_itself_fails_alone_and_the_actor_lives_on() -> None:
    async with running() as host:
        with pytest.raises(ActorBrokenError, match="cancelled from inside"):
            await call(host, ONE, "cancel_itself")

        assert await call(host, ONE, "add", 1) == 1


async def test_a_write_outside_the_turn_is_refused_though_another_event_has_one() -> None:
    async with running() as host:
        door = asyncio.Event()
        slipping = asyncio.ensure_future(call(host, ONE, "put_outside", door))
        await turns(host)
        holding = asyncio.ensure_future(call(host, ONE, "hold_turn", door))
        await turns(host)
        door.set()
        await holding

        with pytest.raises(TurnError, match="outside a turn"):
            await slipping


@pytest.mark.parametrize("swallow", [True, False], ids=["returns", "raises"])
@pytest.mark.parametrize("method", ["put_around", "hold_turn"])
async def test_a_handler_that_is_cancelled_on_its_way_back_leaves_the_turn_to_whoever_has_it(
    swallow: bool, method: str
) -> None:
    async with running() as host:
        tasks: list[asyncio.Task[object]] = []
        back, door = asyncio.Event(), asyncio.Event()
        lost = host.call(ONE, Call("lose_way", (tasks, back, swallow)))
        await turns(host)
        having = host.call(ONE, Call(method, (door,)))
        await turns(host)
        behind = host.call(ONE, Call("rows", ()))
        back.set()
        await turns(host)
        tasks[0].cancel()
        await turns(host)

        with pytest.raises(ActorBrokenError if swallow else TimeoutError):
            await lost
        assert not behind.done()
        door.set()
        await having
        written = [b"before", b"behind"] if method == "put_around" else []
        assert (await behind)[1] == written
        assert await call(host, ONE, "add", 1) == 1


async def test_a_handler_that_is_cancelled_before_it_is_outside_keeps_no_actor_in_memory() -> None:
    provider = HeldProvider(MemoryProvider())
    async with running(provider) as host:
        tasks: list[asyncio.Task[object]] = []
        await call(host, ONE, "add", 1)
        provider.holding = True
        writing = host.call(ONE, Call("add", (1,)))
        await provider.until_held(1)
        lost = host.call(ONE, Call("lose_way", (tasks, asyncio.Event(), False)))
        await turns(host)
        (task,) = [each for each in host.tasks if "_work" in repr(each)]
        task.cancel()
        await turns(host)
        provider.holding = False
        provider.release()

        with pytest.raises(TimeoutError):
            await lost
        assert await writing == 2
        assert await host.evict() == 1


async def test_what_is_stored_must_be_bytes() -> None:
    async with running() as host:
        with pytest.raises(InvalidInputError, match="must be bytes, not str"):
            await call(host, ONE, "put_text")


async def test_a_turn_over_the_stores_limits_fails_alone() -> None:
    async with running() as host:
        adding = [call(host, ONE, "add", 1) for _ in range(3)]
        results = await asyncio.gather(
            *adding, call(host, ONE, "put_much"), call(host, ONE, "add", 1), return_exceptions=True
        )

        assert [one for one in results if isinstance(one, int)] == [1, 2, 3, 4]
        assert isinstance(results[3], StoreTooLarge)
