"""The contract of the seam, second half: wake times, handles, actors, starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from tocsin.errors import StoreClosed
from tocsin.storage.api import Batch, Event, Owned
from tocsin.storage.checks import Place, check, filled, refusal, rows, started

# ---- Wake times ----------------------------------------------------------------------------------


@check
async def the_wake_time_is_kept_cleared_or_left(place: Place) -> None:
    async with started(place) as provider:
        for batch, expected in (
            (Batch(puts={b"k": b""}), None),
            (Batch(wake_at=1_000), 1_000),
            (Batch(puts={b"k": b"1"}), 1_000),
            (Batch(wake_at=0), 0),
            (Batch(wake_at=2_000), 2_000),
            (Batch(wake_at=None), None),
            (Batch(deletes={b"k"}), None),
            (Batch(wake_at=3_000), 3_000),
        ):
            store = await provider.open("a")
            await store.commit(batch)

            assert (await provider.open("a")).wake_at == expected
    async with started(place) as provider:
        assert (await provider.open("a")).wake_at == 3_000 or not provider.capabilities.durable


@check
async def of_wake_times_committed_together_the_last_counts(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")
        store.commit(Batch(wake_at=1))
        store.commit(Batch(wake_at=None))
        store.commit(Batch(wake_at=7))
        await store.commit(Batch(puts={b"k": b""}))

        assert (await provider.open("a")).wake_at == 7


@check
async def events_tell_who_wants_waking_and_end_at_stop(place: Place) -> None:
    provider = place()
    await provider.start()
    for name, wake_at in (("early", 1), ("late", 2**40), ("never", None)):
        await (await provider.open(name)).commit(Batch(puts={b"k": b""}, wake_at=wake_at))
    owned: dict[str, int | None] = {}
    told = asyncio.Event()

    async def listen(events: AsyncIterator[Event]) -> None:
        async for event in events:
            if isinstance(event, Owned):
                owned.update(event.actors)
                if not event.more:
                    told.set()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(listen(provider.events()))
        await told.wait()
        await provider.stop()

    assert owned == {"early": 1, "late": 2**40}


# ---- Handles -------------------------------------------------------------------------------------


@check
async def opening_waits_for_the_commits_of_an_earlier_handle(place: Place) -> None:
    async with started(place) as provider:
        for n in range(10):
            store = await provider.open("a")
            done = [store.commit(Batch(puts={b"%d" % m: b"%d" % n}, wake_at=n)) for m in range(20)]
            for one in done:
                one.cancel()  # a caller that gave up waits no more; the commit is under way all the same
            again = await provider.open("a")

            assert len(await rows(again)) == 20
            assert {value for _, value in await rows(again)} == {b"%d" % n}
            assert again.wake_at == n


@check
async def an_earlier_handle_is_closed_for_good(place: Place) -> None:
    async with started(place) as provider:
        earlier = await provider.open("a")
        store = await provider.open("a")

        assert isinstance(await refusal(earlier.commit(Batch(puts={b"k": b"earlier"}))), StoreClosed)
        await store.commit(Batch(puts={b"k": b"later"}))
        await earlier.close()
        await store.commit(Batch(puts={b"k": b"later still"}))
        assert await rows(store) == [(b"k", b"later still")]


@check
async def of_handles_opened_at_once_one_stays_open(place: Place) -> None:
    async with started(place) as provider:
        old = await provider.open("a")
        old.commit(Batch(puts={b"old": b""}))
        stores = await asyncio.gather(*(provider.open("a") for _ in range(5)))
        done = [store.commit(Batch(puts={b"%d" % n: b""})) for n, store in enumerate(stores)]
        answers = await asyncio.gather(*done, return_exceptions=True)

        assert [type(answer) for answer in answers].count(StoreClosed) == 4
        assert len(await rows(provider.view("a"))) == 2


@check
async def a_closed_handle_refuses(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")
        under_way = store.commit(Batch(puts={b"k": b"1"}))
        await store.close()

        assert under_way.done()
        assert isinstance(await refusal(store.commit(Batch(puts={b"k": b"2"}))), StoreClosed)
        await store.close()
        assert await rows(await provider.open("a")) == [(b"k", b"1")]


@check
async def a_stopped_provider_refuses(place: Place) -> None:
    provider = place()
    await provider.start()
    store, view = await provider.open("a"), provider.view("a")
    under_way = store.commit(Batch(puts={b"k": b"1"}))
    await asyncio.gather(provider.stop(), provider.stop())
    await provider.stop()

    assert under_way.done() and under_way.exception() is None
    assert isinstance(await refusal(store.commit(Batch(puts={b"k": b"2"}))), StoreClosed)
    assert isinstance(await refusal(provider.open("b")), StoreClosed)
    assert isinstance(await refusal(view.get([b"k"])), StoreClosed)
    assert isinstance(await refusal(provider.names("", 1)), StoreClosed)
    async with aclosing(provider.events()) as events:  # type: ignore[type-var]
        assert isinstance(await refusal(anext(events)), StoreClosed)


# ---- Actors --------------------------------------------------------------------------------------


@check
async def an_actor_exists_from_its_first_commit_on(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")

        assert store.wake_at is None
        assert not await provider.exists("a")
        assert await provider.names("", 10) == []
        assert (await rows(provider.view("a")), await provider.view("a").get([b"k"])) == ([], {})
        try:
            await provider.open("a", create=False)
        except KeyError:
            store = await provider.open("a")
        else:
            raise AssertionError("it was never written, and opened all the same")

        await store.commit(Batch(puts={b"k": b"1"}))
        await store.commit(Batch(deletes={b"k"}))

        assert await provider.exists("a")
        assert await provider.names("", 10) == ["a"]
        assert await rows(await provider.open("a", create=False)) == []


@check
async def names_come_in_code_point_order_behind_a_start(place: Place) -> None:
    odd = ["", "A", "Z", "a", "a b", "a/b", "ab", "z", "é", "\uffff", "\U0001f514"]
    async with started(place) as provider:
        stores = [await provider.open(name) for name in reversed(odd)]
        await asyncio.gather(*(store.commit(Batch(puts={b"k": store.name.encode()})) for store in stores))

        assert await provider.names("", 100) == odd[1:]
        assert await provider.names("a", 3) == ["a b", "a/b", "ab"]
        assert await provider.names("aa", 2) == ["ab", "z"]
        assert await provider.names(odd[-1], 9) == []
        for name in odd:
            assert await rows(provider.view(name)) == [(b"k", name.encode())]


# ---- Starts --------------------------------------------------------------------------------------


@check
async def the_epoch_rises_with_every_start(place: Place) -> None:
    epochs, owners = [], set()
    for _ in range(3):
        async with started(place) as provider:
            one, two = await provider.open("a"), await provider.open("b")
            assert one.grant == two.grant
            assert one.grant.owner == provider.owner
            epochs.append(one.grant.epoch)
            owners.add(provider.owner)

    assert epochs == sorted(set(epochs))
    assert len(owners) == 3


@check
async def what_was_committed_is_there_after_a_restart(place: Place) -> None:
    async with started(place) as provider:
        store = await filled(provider)
        await store.commit(Batch(deletes={b"k5"}, wake_at=5))
        expected, durable = await rows(store), provider.capabilities.durable
        first = store
    async with started(place) as provider:
        assert await rows(provider.view("a")) == expected or not durable
        assert isinstance(await refusal(first.commit(Batch(puts={b"k": b""}))), StoreClosed)
        assert await rows(await provider.open("a")) == expected or not durable


@check
async def it_counts_what_it_writes(place: Place) -> None:
    async with started(place) as provider:
        store = await filled(provider)
        await store.commit(Batch(deletes={b"k1", b"k2"}))
        await refusal(store.commit(Batch(puts={b"": b""})))
        stats = provider.stats()

        assert (stats.commits, stats.batches, stats.failed) == (2, 2, 1)
        assert (stats.rows_put, stats.rows_deleted) == (9, 2)
