"""The contract of the seam, first half: commits and reads."""

from __future__ import annotations

import asyncio

from tocsin.errors import StoreTooLarge
from tocsin.storage.api import MAX_SCAN_ROWS, Batch
from tocsin.storage.checks import HIGH, Place, check, filled, keys, refusal, rows, started

# ---- Commits -------------------------------------------------------------------------------------


@check
async def a_batch_is_applied_whole(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")
        await store.commit(Batch(puts={b"gone": b"1", b"kept": b"1"}))
        await store.commit(Batch(puts={b"new": b"2", b"kept": b"2"}, deletes={b"gone", b"never there"}))

        assert await rows(store) == [(b"kept", b"2"), (b"new", b"2")]


@check
async def commits_apply_in_call_order_though_none_is_awaited(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")
        answered: list[int] = []
        for n in range(50):
            puts = {b"n": b"%d" % n} if n != 48 else {}
            deletes = {b"n"} if n == 48 else set()
            done = store.commit(Batch(puts=puts, deletes=deletes))
            done.add_done_callback(lambda _, n=n: answered.append(n))  # type: ignore[misc]
        await done
        await asyncio.sleep(0)

        assert await rows(store) == [(b"n", b"49")]
        assert answered == list(range(50))


@check
async def reads_see_what_was_committed_before(place: Place) -> None:
    async with started(place) as provider:
        store, view = await provider.open("a"), provider.view("a")
        for n in range(20):
            await store.commit(Batch(puts={b"n": b"%d" % n}))

            assert await store.get([b"n"]) == {b"n": b"%d" % n}
            assert await view.scan(b"n", b"o", limit=1) == [(b"n", b"%d" % n)]


@check
async def a_cancelled_caller_does_not_cancel_the_commit(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")
        store.commit(Batch(puts={b"cancelled": b"1"})).cancel()
        await store.commit(Batch(puts={b"next": b"1"}))

        assert keys(await rows(store)) == [b"cancelled", b"next"]


@check
async def a_failed_batch_fails_the_later_ones_with_the_same_error_until_reopened(place: Place) -> None:
    async with started(place) as provider:
        store = await provider.open("a")
        before = store.commit(Batch(puts={b"before": b"1"}))
        before.cancel()
        first = store.commit(Batch(puts={b"": b"no key"}))
        later = store.commit(Batch(puts={b"later": b"1"}))
        error = await refusal(first)

        assert isinstance(error, StoreTooLarge)
        assert await refusal(later) is error
        assert await refusal(store.commit(Batch(puts={b"much later": b"1"}))) is error
        assert keys(await rows(store)) == [b"before"]

        again = await provider.open("a")
        await again.commit(Batch(puts={b"later": b"2"}))

        assert keys(await rows(again)) == [b"before", b"later"]


@check
async def what_is_over_a_limit_fails_its_own_actor_only(place: Place) -> None:
    async with started(place) as provider:
        limits = provider.capabilities
        value, short = b"v" * limits.max_value, range(limits.max_batch_bytes // limits.max_value + 1)
        over = [
            Batch(puts={b"k" * (limits.max_key + 1): b""}),
            Batch(deletes={b"k" * (limits.max_key + 1)}),
            Batch(deletes={b""}),
            Batch(puts={b"k": value + b"v"}),
            Batch(puts={b"%d" % n: b"" for n in range(limits.max_batch_keys)}, deletes={b"one more"}),
            Batch(puts={b"%d" % n: value for n in short}),
            Batch(puts={b"k": b""}, deletes={b"k"}),
            Batch(puts={b"k": b""}, wake_at=2**63),
        ]
        neighbours = [await provider.open(f"neighbour-{n}") for n in range(len(over))]
        bad = [await provider.open(f"bad-{n}") for n in range(len(over))]
        fine = [store.commit(Batch(puts={b"k": b"1"})) for store in neighbours]
        refused = [store.commit(batch) for store, batch in zip(bad, over, strict=True)]
        fine += [store.commit(Batch(puts={b"k": b"2"})) for store in neighbours]

        assert {type(await refusal(done)) for done in refused} == {StoreTooLarge}
        await asyncio.gather(*fine)
        for n, store in enumerate(neighbours):
            assert await rows(store) == [(b"k", b"2")]
            assert not await provider.exists(f"bad-{n}")


@check
async def what_is_at_a_limit_is_taken(place: Place) -> None:
    async with started(place) as provider:
        limits, store = provider.capabilities, await provider.open("a")
        await store.commit(Batch(puts={b"k" * limits.max_key: b"v" * limits.max_value}, wake_at=2**63 - 1))
        await store.commit(Batch(puts={b"%05d" % n: b"" for n in range(limits.max_batch_keys)}))

        found = 0
        start = b"0"
        while page := await store.scan(start, b"9", limit=MAX_SCAN_ROWS):
            found, start = found + len(page), page[-1][0] + b"\x00"
        assert found == limits.max_batch_keys
        assert await store.get([b"k" * limits.max_key]) == {b"k" * limits.max_key: b"v" * limits.max_value}


# ---- Reads ---------------------------------------------------------------------------------------


@check
async def keys_compare_as_unsigned_bytes(place: Place) -> None:
    odd = [b"\x00", b"\x00\x00", b"\x01", b"A", b"B", b"a", b"a\x00", b"a\x00b", b"aa", b"b", b"\x7f", b"\x80", b"\xff"]
    async with started(place) as provider:
        store = await provider.open("a")
        await store.commit(Batch(puts={key: b"%d" % at for at, key in enumerate(reversed(odd))}))

        assert keys(await store.scan(b"", HIGH, limit=100)) == odd
        assert keys(await store.scan(b"a", b"aa", limit=100)) == [b"a", b"a\x00", b"a\x00b"]
        assert keys(await store.scan(b"\x80", HIGH, limit=100, reverse=True)) == [b"\xff", b"\x80"]


@check
async def a_scan_keeps_to_its_range_and_limit(place: Place) -> None:
    async with started(place) as provider:
        store = await filled(provider)
        for view in (store, provider.view("a")):
            assert keys(await view.scan(b"k3", b"k6", limit=100)) == [b"k3", b"k4", b"k5"]
            assert keys(await view.scan(b"k3", b"k6", limit=2)) == [b"k3", b"k4"]
            assert keys(await view.scan(b"k3", b"k6", limit=2, reverse=True)) == [b"k5", b"k4"]
            assert await view.scan(b"k3", b"k6", limit=0) == []
            assert await view.scan(b"k6", b"k3", limit=9) == []
            assert await view.scan(b"k6", b"k3", limit=9, reverse=True) == []
            assert await view.scan(b"k3", b"k3", limit=9) == []


@check
async def several_ranges_are_answered_in_the_order_asked(place: Place) -> None:
    async with started(place) as provider:
        store = await filled(provider)
        found = await store.scan_many([(b"k8", b"k9", 5), (b"x", b"y", 5), (b"k1", b"k4", 2)])

        assert list(map(keys, found)) == [[b"k8"], [], [b"k1", b"k2"]]
        assert await store.scan_many([]) == []


@check
async def max_bytes_cuts_the_tail_but_leaves_a_row(place: Place) -> None:
    ranges = [(b"x", b"y", 9), (b"k1", b"k4", 9), (b"k4", b"k6", 9), (b"k6", b"k9", 9)]
    async with started(place) as provider:
        store = await filled(provider)
        for max_bytes in range(25):
            found = list(map(keys, await store.scan_many(ranges, max_bytes=max_bytes)))

            assert found == [[], [b"k1", b"k2", b"k3"][: max(1, -(-max_bytes // 10))], [], []], max_bytes
        over = list(map(keys, await store.scan_many(ranges, max_bytes=45)))
        back = list(map(keys, await store.scan_many(ranges, max_bytes=11, reverse=True)))

        assert over == [[], [b"k1", b"k2", b"k3"], [b"k4", b"k5"], []]
        assert back == [[], [b"k3", b"k2"], [], []]
        assert keys(await store.scan(b"k1", b"k9", limit=9, max_bytes=1)) == [b"k1"]


@check
async def get_answers_the_keys_that_exist(place: Place) -> None:
    async with started(place) as provider:
        store = await filled(provider)
        wanted = [b"k1", b"k0", b"k9", b"k1", b""]

        assert await store.get(wanted) == {b"k1": b"value-01", b"k9": b"value-09"}
        assert await provider.view("a").get(wanted) == {b"k1": b"value-01", b"k9": b"value-09"}
        assert await store.get([]) == {}
        assert keys(sorted((await store.get([b"k%d" % n for n in range(1_000)])).items())) == keys(await rows(store))


@check
async def actors_do_not_see_each_other(place: Place) -> None:
    async with started(place) as provider:
        a, b = await provider.open("a"), await provider.open("b")
        await asyncio.gather(a.commit(Batch(puts={b"k": b"a"})), b.commit(Batch(puts={b"k": b"b"})))
        await a.commit(Batch(deletes={b"k"}))

        assert (await rows(a), await rows(b)) == ([], [(b"k", b"b")])
