"""Events that wait share one turn: one batch, and everything else as if each had a turn of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.actors.counter import turns
from tests.actors.held_provider import HeldProvider
from tests.actors.ledger import (
    BOOK,
    Add,
    AddAlone,
    CancelItself,
    Fail,
    Leave,
    LeaveAndFail,
    LedgerEvent,
    Much,
    Rows,
    Wait,
    ledger,
)
from tocsin.actors.runtime.line import EVENTS_PER_TURN
from tocsin.actors.runtime.overlay import ActorStorage, Layer
from tocsin.errors import ActorBrokenError, HostClosedError, StoreFull, StoreTooLarge, StoreUnavailable, TurnError
from tocsin.storage.api import Batch
from tocsin.storage.memory import MemoryProvider, MemoryStore

pytestmark = pytest.mark.anyio


async def test_events_that_wait_share_a_turn_and_a_batch_in_their_order() -> None:
    async with ledger() as books:
        before = books.commits

        assert await books.ask(*(Add(n) for n in range(5))) == [0, 1, 3, 6, 10]
        assert books.turns == [["Add"] * 5]
        assert books.commits - before == 1
        assert books.heard == [0, 1, 3, 6, 10]


async def test_no_answer_of_a_shared_turn_is_given_before_its_batch_is_durable() -> None:
    provider = HeldProvider(MemoryProvider())
    async with ledger(provider) as books:
        provider.holding = True
        answers = books.send(Add(), Add(), Add())
        await provider.until_held(1)
        await turns(books.host)

        assert not any(answer.done() for answer in answers) and books.heard == []
        provider.holding = False
        provider.release()
        assert await asyncio.gather(*answers) == [1, 2, 3]


async def test_an_event_that_raises_costs_its_neighbours_a_turn_each_and_leaves_no_trace() -> None:
    async with ledger() as books:
        answers = await books.ask(Add(1), Add(2), Fail(), Add(4))

        assert answers[:2] + answers[3:] == [1, 3, 7]
        assert isinstance(answers[2], ZeroDivisionError)
        assert books.turns == [["Add", "Add", "Fail", "Add"], ["Add"], ["Add"], ["Fail"], ["Add"]]
        assert books.heard == [("lost", 1), ("lost", 3), 1, 3, 7]
        assert await books.ask(Rows()) == [[b"n"]]
        assert BOOK not in books.host.alarms.due


async def test_what_comes_behind_a_turn_that_raised_shares_turns_again() -> None:
    async with ledger() as books:
        first = books.send(Add(), Fail())
        await asyncio.gather(*first, return_exceptions=True)
        books.turns.clear()

        await books.ask(Add(), Add())
        # The object was made anew for the first of them, so that one tells whether it may share.
        await books.ask(Add(), Add())
        assert books.turns[-1] == ["Add", "Add"]


async def test_an_event_that_may_not_share_ends_the_group_and_keeps_its_place() -> None:
    async with ledger() as books:
        assert await books.ask(Add(1), Add(1), AddAlone(10), Add(1), Add(1)) == [1, 2, 12, 13, 14]
        assert books.turns == [["Add", "Add"], ["AddAlone"], ["Add", "Add"]]


async def test_an_event_that_waits_alone_has_an_ordinary_turn() -> None:
    async with ledger() as books:
        assert await books.ask(Add(1)) == [1]
        assert books.turns == [["Add"]]


async def test_one_turn_is_shared_by_a_bounded_number_of_events() -> None:
    async with ledger() as books:
        count = 2 * EVENTS_PER_TURN + 3

        assert await books.ask(*[Add()] * count) == list(range(1, count + 1))
        assert [len(one) for one in books.turns] == [EVENTS_PER_TURN, EVENTS_PER_TURN, 3]


async def test_events_that_a_turn_leaves_unanswered_have_the_next_one() -> None:
    async with ledger(most=2) as books:
        assert await books.ask(*[Add()] * 5) == [1, 2, 3, 4, 5]
        assert [len(one) for one in books.turns] == [5, 3, 1]
        assert books.heard == [1, 2, 3, 4, 5]


async def test_events_left_unanswered_by_a_turn_that_cannot_be_written_share_the_next_one() -> None:
    async with ledger(most=2) as books:
        answers = await books.ask(Add(), Much(100_000_000), Add(), Add())

        assert answers[:1] + answers[2:] == [1, 2, 3] and isinstance(answers[1], StoreTooLarge)
        assert [len(one) for one in books.turns][:3] == [4, 1, 1]
        assert await books.ask(Rows()) == [[b"n"]]


async def test_events_left_unanswered_by_a_turn_whose_activation_breaks_are_not_left_waiting() -> None:
    provider = HeldProvider(MemoryProvider())
    async with ledger(provider, most=2) as books:
        provider.holding = True
        flying = books.send(Add(5))
        await provider.until_held(1)
        in_turn = books.send(Add(), Wait(), Add(), Add())
        await turns(books.host)
        door = books.actor.door
        provider.fail(StoreUnavailable("gone"))
        provider.holding = False
        door.set()

        errors = await asyncio.gather(*flying, *in_turn, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 5


async def test_an_actor_that_answers_none_of_the_events_it_was_given_gets_them_one_by_one() -> None:
    async with ledger(most=0) as books:
        assert await books.ask(Add(), Add()) == [1, 2]
        assert [len(one) for one in books.turns] == [2, 1, 1]


async def test_a_caller_that_goes_away_touches_no_neighbour_and_its_event_is_done_all_the_same() -> None:
    async with ledger() as books:
        first, second, third = books.send(Add(), Add(), Add())
        second.cancel()

        assert (await first, await third) == (1, 3)
        assert await books.ask(Add()) == [4]


async def test_a_caller_that_goes_away_in_the_middle_of_the_turn_touches_no_neighbour() -> None:
    async with ledger() as books:
        first, waiting, third = books.send(Add(), Wait(), Add())
        await turns(books.host)
        waiting.cancel()
        first.cancel()
        books.actor.door.set()

        assert await third == 2
        assert books.turns == [["Add", "Wait", "Add"]]


async def test_a_handler_that_cancels_itself_fails_alone() -> None:
    async with ledger() as books:
        answers = await books.ask(Add(), CancelItself(), Add())

        assert (answers[0], answers[2]) == (1, 2)
        assert isinstance(answers[1], ActorBrokenError)
        assert await books.ask(Add(), Add()) == [3, 4]


async def test_a_handler_that_leaves_its_turn_has_one_of_its_own() -> None:
    """Behind `outside()` the first half would be durable: run again with the others it would be done twice."""
    async with ledger() as books:
        first, left, third = await books.ask(Add(), Leave(), Add())

        assert {first, third} <= {1, 2, 102} and left in (101, 102)
        assert await books.ask(Add()) == [103]


async def test_turns_that_others_share_meanwhile_change_nothing_for_a_handler_that_is_outside() -> None:
    async with ledger() as books:
        (leaving,) = books.send(LeaveAndFail())
        await turns(books.host)
        assert await books.ask(Add(), Add()) == [1, 2]
        books.actor.door.set()

        with pytest.raises(ZeroDivisionError):
            await leaving
        assert books.turns == [["LeaveAndFail"], ["Add", "Add"]]


async def test_a_turn_over_the_stores_limits_costs_the_others_nothing() -> None:
    async with ledger() as books:
        first, much, last = await books.ask(Add(), Much(100_000_000), Add())

        assert (first, last) == (1, 2)
        assert isinstance(much, StoreTooLarge)
        assert await books.ask(Rows()) == [[b"n"]]


async def test_small_turns_that_together_are_over_the_stores_limits_are_done_each() -> None:
    async with ledger() as books:
        five_mib = Much(5 * 1024 * 1024)

        assert await books.ask(five_mib, Add(), five_mib) == [None, 1, None]
        assert [len(one) for one in books.turns] == [3, 1, 1, 1]


async def test_a_lost_batch_fails_all_who_shared_its_turn_and_nobody_else() -> None:
    provider = HeldProvider(MemoryProvider())
    async with ledger(provider) as books:
        provider.holding = True
        lost = books.send(Add(), Add())
        await provider.until_held(1)
        provider.fail(StoreFull("no space"))
        provider.holding = False

        assert [type(error) for error in await asyncio.gather(*lost, return_exceptions=True)] == [StoreFull] * 2
        assert books.heard == [("lost", 1), ("lost", 2)]
        assert await books.ask(Add()) == [1]


async def test_a_batch_that_is_lost_while_a_shared_turn_runs_fails_it_and_what_stands_behind_goes_on() -> None:
    provider = HeldProvider(MemoryProvider())
    async with ledger(provider) as books:
        provider.holding = True
        flying = books.send(Add(5))
        await provider.until_held(1)
        in_turn = books.send(Add(), Wait(), Add())
        await turns(books.host)
        door = books.actor.door
        in_line = books.send(Add(7), Add(7))
        provider.fail(StoreUnavailable("gone"))
        provider.holding = False
        door.set()

        errors = await asyncio.gather(*flying, *in_turn, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 4
        assert sorted(await asyncio.gather(*in_line)) == [7, 14]
        assert await books.ask(Add()) == [15]


@pytest.mark.parametrize("raises", [Fail(), CancelItself()])
async def test_an_event_that_raises_while_the_activation_breaks_does_not_share_its_error(raises: LedgerEvent) -> None:
    provider = HeldProvider(MemoryProvider())
    async with ledger(provider) as books:
        provider.holding = True
        flying = books.send(Add(5))
        await provider.until_held(1)
        in_turn = books.send(Add(), Wait(), raises, Add())
        await turns(books.host)
        door = books.actor.door
        provider.fail(StoreUnavailable("gone"))
        provider.holding = False
        door.set()

        errors = await asyncio.gather(*flying, *in_turn, return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 5


async def test_a_host_that_is_killed_in_the_middle_of_a_shared_turn_fails_all_of_it() -> None:
    async with ledger() as books:
        shared = books.send(Add(), Wait(), Add())
        await turns(books.host)
        await books.host.abandon()

        errors = await asyncio.gather(*shared, return_exceptions=True)
        assert all(isinstance(error, HostClosedError | ActorBrokenError) for error in errors)


async def test_events_wait_for_a_turn_each_after_a_failure_even_if_the_activation_breaks_meanwhile() -> None:
    provider = HeldProvider(MemoryProvider())
    async with ledger(provider) as books:
        provider.holding = True
        flying = books.send(Add(5))
        await provider.until_held(1)
        await turns(books.host)
        answers = books.send(Add(), Fail(), Wait(), Add())
        await turns(books.host)  # they are run one by one, and the third keeps its turn
        door = books.actor.door
        provider.fail(StoreUnavailable("gone"))
        provider.holding = False
        door.set()

        results = await asyncio.gather(*flying, *answers, return_exceptions=True)
        assert [type(one) for one in results[:4]] == [StoreUnavailable] * 4  # the error told of earlier turns, too
        assert results[4] == 1


async def test_outside_is_refused_where_a_turn_is_shared() -> None:
    async with ledger() as books:
        books.actor.may_share = lambda event: True  # type: ignore[method-assign]
        refusals: list[TurnError] = []
        inner = books.actor._carry_out

        async def watched(event: object) -> object:
            try:
                return await inner(event)  # type: ignore[arg-type]
            except TurnError as refusal:
                refusals.append(refusal)
                raise

        books.actor._carry_out = watched  # type: ignore[method-assign]
        await books.ask(Leave(), Add())
        assert "several events share" in str(refusals[0])


# ---- Rows read ahead -----------------------------------------------------------------------------


class CountedStore(MemoryStore):
    """Counts its hops; the next commit stays open until it is told to end."""

    hops = 0

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        self.hops += 1
        return await super().get(keys)


@asynccontextmanager
async def storage() -> AsyncIterator[tuple[ActorStorage, CountedStore]]:
    provider = MemoryProvider()
    await provider.start()
    opened = await provider.open("ledger/book")
    assert isinstance(opened, MemoryStore)
    opened.__class__ = CountedStore
    store = cast(CountedStore, opened)
    made = ActorStorage()
    await made.open(store)
    await store.commit(Batch({b"a": b"1", b"b": b"1", b"c": b"1"}))
    made.layer = Layer(asyncio.current_task())
    store.hops = 0
    yield made, store
    await provider.stop()


async def test_rows_read_ahead_cost_one_hop_for_the_whole_turn_and_none_of_the_next() -> None:
    async with storage() as (rows, store):
        await rows.prefetch([b"a", b"none"])

        assert await rows.get_many([b"a", b"none"]) == {b"a": b"1"}
        assert await rows.get(b"a") == b"1" and await rows.get(b"none") is None
        assert store.hops == 1
        assert await rows.get_many([b"a", b"b"]) == {b"a": b"1", b"b": b"1"}
        assert store.hops == 2
        rows.layer = Layer(asyncio.current_task())
        await rows.get(b"a")
        assert store.hops == 3


async def test_what_the_turn_writes_counts_more_than_what_it_read_ahead() -> None:
    async with storage() as (rows, _):
        rows.put(b"b", b"2")
        await rows.prefetch([b"a", b"b", b"c", b"none"])
        rows.put(b"a", b"2")
        rows.delete(b"b")
        rows.put(b"none", b"2")
        rows.delete(b"c")
        rows.put(b"c", b"3")

        assert await rows.get_many([b"a", b"b", b"c", b"none"]) == {b"a": b"2", b"c": b"3", b"none": b"2"}


async def test_rows_read_ahead_are_those_of_turns_that_are_not_durable_and_stay_so_once_they_are() -> None:
    async with storage() as (rows, store):
        rows.put(b"a", b"2")
        rows.delete(b"b")
        earlier, rows.layer = rows.layer, Layer(asyncio.current_task())
        rows.sealed.append(earlier)
        await rows.prefetch([b"a", b"b", b"c"])
        for durable in (False, True):
            if durable:
                await store.commit(Batch(earlier.puts, earlier.deletes))
                rows.sealed.clear()
            assert await rows.get_many([b"a", b"b", b"c"]) == {b"a": b"2", b"c": b"1"}
        assert store.hops == 1
