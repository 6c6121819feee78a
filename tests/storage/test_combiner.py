"""Group commit: what travels together, what is merged, and who fails with whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tocsin.errors import RolledBack, StoreCorrupt, StoreError, StoreTooLarge, StoreUnavailable
from tocsin.storage.api import UNSET, Batch, Capabilities, Unset
from tocsin.storage.combiner import ActorWrites, Combiner, Handle

Written = dict[str, tuple[dict[bytes, bytes | None], int | Unset | None]]


class Disk:
    """Remembers every transaction; waits while it is held; refuses what `refuse` says."""

    def __init__(self, refuse: Callable[[Written], Exception | None] = lambda _: None) -> None:
        self.transactions: list[Written] = []
        self.tries = 0
        self.free, self.busy = asyncio.Event(), asyncio.Event()
        self.free.set()
        self._refuse = refuse

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        self.tries += 1
        self.busy.set()
        await self.free.wait()
        written = {one.name: (one.rows, one.wake_at) for one in writes}
        assert len(written) == len(writes)
        if (error := self._refuse(written)) is not None:
            raise error
        self.transactions.append(written)


def combiner_on(disk: Disk, **limits: int) -> Combiner:
    return Combiner(disk.write, Capabilities(durable=True, shared=False, **limits))


def put(key: bytes, value: bytes = b"") -> Batch:
    return Batch(puts={key: value})


@pytest.mark.anyio
async def test_batches_submitted_together_travel_in_one_write() -> None:
    disk = Disk()
    combiner = combiner_on(disk)
    await asyncio.gather(*(combiner.submit(Handle(f"{n}"), put(b"k")) for n in range(100)))

    assert [set(written) for written in disk.transactions] == [{f"{n}" for n in range(100)}]
    assert (combiner.stats().commits, combiner.stats().batches, combiner.stats().rows_put) == (1, 100, 100)


@pytest.mark.anyio
async def test_what_comes_during_a_write_forms_the_next() -> None:
    disk = Disk()
    combiner = combiner_on(disk)
    disk.free.clear()
    first = combiner.submit(Handle("first"), put(b"k"))
    await disk.busy.wait()
    rest = [combiner.submit(Handle(f"{n}"), put(b"k")) for n in range(10)]
    assert not first.done()
    disk.free.set()
    await asyncio.gather(first, *rest)

    assert [len(written) for written in disk.transactions] == [1, 10]


@pytest.mark.anyio
async def test_a_row_rewritten_by_fifty_batches_is_written_once() -> None:
    disk, handle = Disk(), Handle("a")
    combiner = combiner_on(disk)
    batches = [Batch(puts={b"k": b"%d" % n}, wake_at=n if n < 40 else UNSET) for n in range(50)]
    await asyncio.gather(*(combiner.submit(handle, batch) for batch in batches))

    assert disk.transactions == [{"a": ({b"k": b"49"}, 39)}]
    assert (combiner.stats().batches, combiner.stats().rows_put) == (50, 1)


@pytest.mark.anyio
async def test_the_last_word_on_a_key_counts() -> None:
    disk, handle = Disk(), Handle("a")
    combiner = combiner_on(disk)
    await asyncio.gather(
        combiner.submit(handle, Batch(puts={b"put": b"1", b"deleted": b"1"}, wake_at=1)),
        combiner.submit(handle, Batch(puts={b"deleted": b"2"}, deletes={b"put"}, wake_at=None)),
        combiner.submit(handle, Batch(puts={b"put": b"3"}, deletes={b"deleted"})),
    )

    assert disk.transactions == [{"a": ({b"put": b"3", b"deleted": None}, None)}]


@pytest.mark.anyio
async def test_a_write_holds_no_more_than_a_batch_may() -> None:
    disk = Disk()
    combiner = combiner_on(disk, max_batch_keys=10, max_batch_bytes=100)
    many = [Batch(puts={b"1": b"", b"2": b""}, deletes={b"3", b"4"}) for _ in range(5)]
    large = [put(b"k", b"v" * 59) for _ in range(3)]
    await asyncio.gather(*(combiner.submit(Handle(f"{n}"), batch) for n, batch in enumerate([*many, *large])))

    assert [sorted(written) for written in disk.transactions] == [["0", "1"], ["2", "3"], ["4", "5"], ["6"], ["7"]]


@pytest.mark.anyio
async def test_a_failed_group_is_retried_batch_by_batch() -> None:
    disk = Disk(lambda written: StoreCorrupt("a bad page") if "bad" in written else None)
    combiner = combiner_on(disk)
    good = [Handle(f"{n}") for n in range(3)]
    bad = Handle("bad")
    answers = await asyncio.gather(
        combiner.submit(good[0], put(b"1")),
        combiner.submit(bad, put(b"1")),
        combiner.submit(good[1], put(b"1")),
        combiner.submit(bad, put(b"2")),
        combiner.submit(good[0], put(b"2")),
        combiner.submit(good[2], put(b"1")),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [
        type(None),
        StoreCorrupt,
        type(None),
        StoreCorrupt,
        *[type(None)] * 2,
    ]
    assert answers[1] is answers[3]
    assert [list(written) for written in disk.transactions] == [["0"], ["1"], ["0"], ["2"]]
    assert disk.tries == 1 + 5, "the second batch of the bad one is not even tried"
    assert combiner.stats().failed == 2


@pytest.mark.anyio
@pytest.mark.parametrize("error", [StoreUnavailable("busy"), RolledBack("replaced")])
async def test_a_store_that_refuses_everybody_is_not_asked_for_each(error: StoreError) -> None:
    """Each question may cost a timeout: 256 of them would hold every actor for minutes."""
    disk = Disk(lambda _: error)
    combiner = combiner_on(disk)
    done = [combiner.submit(Handle(f"{n}"), put(b"k")) for n in range(256)]

    assert await asyncio.gather(*done, return_exceptions=True) == [error] * 256
    assert disk.tries == 2


@pytest.mark.anyio
async def test_whatever_an_engine_raises_is_an_error_of_the_store() -> None:
    disk = Disk(lambda _: ZeroDivisionError("engine"))
    with pytest.raises(StoreError, match="ZeroDivisionError") as caught:
        await combiner_on(disk).submit(Handle("a"), put(b"k"))

    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.anyio
async def test_answers_come_in_call_order_also_of_refused_batches() -> None:
    disk = Disk()
    combiner = combiner_on(disk)
    a, b = Handle("a"), Handle("b")
    order: list[str] = []
    batches = [(a, put(b"1")), (b, put(b"1")), (a, put(b"")), (b, put(b"2")), (a, put(b"2")), (b, put(b"3"))]
    done = [combiner.submit(handle, batch) for handle, batch in batches]
    for at, one in enumerate(done):
        one.add_done_callback(lambda one, at=at: order.append(f"{at}{'!' if one.exception() else ''}"))  # type: ignore[misc]
    assert not any(one.done() for one in done)
    await asyncio.gather(*done, return_exceptions=True)

    for name, expected in (("a", ["0", "2!", "4!"]), ("b", ["1", "3", "5"])):
        at = 0 if name == "a" else 1
        assert [one for one in order if int(one[0]) % 2 == at] == expected
    assert [written["a"] for written in disk.transactions] == [({b"1": b""}, UNSET)]


@pytest.mark.anyio
async def test_a_refused_batch_does_not_overtake_one_whose_caller_was_cancelled() -> None:
    disk, handle = Disk(), Handle("a")
    combiner = combiner_on(disk)
    combiner.submit(handle, put(b"1")).cancel()
    with pytest.raises(StoreTooLarge):
        await combiner.submit(handle, put(b""))

    assert disk.transactions == [{"a": ({b"1": b""}, UNSET)}]


@pytest.mark.anyio
async def test_a_handle_is_settled_when_the_write_is_done_not_when_the_caller_gives_up() -> None:
    disk, handle = Disk(), Handle("a")
    combiner = combiner_on(disk)
    disk.free.clear()
    done = combiner.submit(handle, put(b"1"))
    await disk.busy.wait()
    done.cancel()
    settled = asyncio.ensure_future(handle.settled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not settled.done()
    disk.free.set()
    await settled

    assert disk.transactions == [{"a": ({b"1": b""}, UNSET)}]


def test_nobody_waits_for_ever_when_the_loop_ends() -> None:
    """`asyncio.run` cancels every task at its end, the writer's too; who tidies up then must come to an end."""
    answers: list[asyncio.Future[None]] = []

    async def tidy(*handles: Handle) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.gather(*(handle.settled() for handle in handles))

    async def main() -> asyncio.Task[None]:
        disk, handles = Disk(), [Handle("under way"), Handle("waiting")]
        combiner = combiner_on(disk)
        disk.free.clear()
        answers.append(combiner.submit(handles[0], put(b"1")))
        await disk.busy.wait()
        answers.append(combiner.submit(handles[1], put(b"1")))
        tidying = asyncio.create_task(tidy(*handles))
        await asyncio.sleep(0)
        return tidying

    assert asyncio.run(main()).done()
    assert [answer.cancelled() for answer in answers] == [True, True]
