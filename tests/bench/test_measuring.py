"""What benchmarks measure with: CPU by thread and process, the bare client, the receiver, axes of plots."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.cpu import descendants, spent, threads_ns, used_ns
from bench.lease import receiver_process
from bench.peers.callbacks.posting import ThreadPoster, body
from bench.plot import Axis
from bench.wire import Wire, asked, ok, post, posted

pytestmark = pytest.mark.anyio
BUSY_S = 0.1


def busy(seconds: float) -> None:
    """Use so much CPU of this thread, however long that takes."""
    while time.thread_time() < seconds:
        pass


def test_cpu_of_the_loop_and_of_other_threads_is_told_apart() -> None:
    until, stop = threading.Event(), threading.Event()

    def other() -> None:
        busy(BUSY_S)
        until.set()
        stop.wait()

    with spent() as cost:
        thread = threading.Thread(target=other)
        thread.start()
        until.wait()
    stop.set()
    thread.join()

    assert cost.cpu_us["store"] >= BUSY_S * 0.9e6
    assert cost.cpu_us["loop"] < cost.cpu_us["store"] / 2
    assert cost.per(10)["all"] == pytest.approx((cost.cpu_us["store"] + cost.cpu_us["loop"]) / 10)


def test_processes_of_processes_are_found_and_their_cpu_counted() -> None:
    inner = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ntime.sleep(60)"
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = descendants(process.pid)
        used = used_ns(found)
        os.killpg(process.pid, 9)

    assert len(found) == 1
    assert used >= 0.09e9
    assert process.pid not in found
    assert threads_ns(process.pid) == {}


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server whose connections say these pieces, one after the other, to whatever is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in answers:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_answer_in_pieces_is_put_together() -> None:
    async with answering(b"HTTP/1.1 201 Cre", b"ated\r\nContent-Length: 4\r\n", b"\r\nab", b"cd") as url:
        wire = await Wire.open(url)

        assert await wire.ask(post("/", b"{}")) == (201, b"abcd")


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", ValueError), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", ConnectionError)],
    ids=["no length", "cut off"],
)
async def test_an_answer_that_is_not_whole_is_an_error(said: bytes, error: type[Exception]) -> None:
    async with answering(said) as url:
        wire = await Wire.open(url)

        with pytest.raises(error):
            await wire.ask(post("/", b"{}"))


async def test_anything_but_success_is_an_error() -> None:
    async with answering(b"HTTP/1.1 429 Slow\r\ncontent-length: 2\r\n\r\nno") as url:
        with pytest.raises(RuntimeError, match="HTTP 429: b'no'"):
            await posted(url, [post("/", b"{}")], 1, ok)


def from_a_thread(url: str, job: str, due_ms: int) -> None:
    poster = ThreadPoster()
    poster.post(url, job, due_ms)
    poster.close()


async def test_the_receiver_counts_what_came_twice_and_what_was_early() -> None:
    now = time.time_ns() // 1_000_000
    with receiver_process() as receiver:
        requests = [post("/", body(job, due)) for job, due in (("a", now), ("b", now), ("b", now), ("c", now + 60_000))]
        await posted(receiver.url, requests, 2, ok)
        await asyncio.to_thread(from_a_thread, receiver.url, "d", now)
        stats = await asked(receiver.url, "/stats")
        late = await asked(receiver.url, "/late?b")
        before, never = await asked(receiver.url, "/after?0"), await asked(receiver.url, f"/after?{now + 60}")
        await asked(receiver.url, "/reset")
        forgotten = await asked(receiver.url, "/count")

    assert (stats["count"], stats["unique"], stats["early"]) == (5, 4, 1)
    assert len(late) == 2
    assert before["at"] == stats["first"]
    assert never["at"] is None
    assert forgotten["count"] == 0


def test_axes_have_round_ticks_and_show_nothing_before_the_first_power() -> None:
    assert Axis([0.0, 23.0], 0, 100).ticks() == [
        (0.0, "0"),
        (5.0, "5"),
        (10.0, "10"),
        (15.0, "15"),
        (20.0, "20"),
        (25.0, "25"),
    ]
    powers = Axis([0.0, 10_000.0, 1_000_000.0], 0, 300, log=True)

    assert powers.ticks() == [(0.0, "0"), (10_000.0, "10,000"), (100_000.0, "100,000"), (1_000_000.0, "1,000,000")]
    assert [powers.place(at) for at, _ in powers.ticks()] == [0, 100, 200, 300]
    assert Axis([7.0], 0, 100).place(7.0) == 0, "a single value has a place"
