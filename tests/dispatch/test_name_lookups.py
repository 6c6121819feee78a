"""Whatever an app does with its loop's default executor: names are looked up, callbacks connect, leases are renewed."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import pytest

from tests.dispatch.event_loops import anyio_backend as anyio_backend
from tests.dispatch.name_lookups import full_executor, wait_for_lookups
from tests.dispatch.scripted_server import always_ok, answering, scripted_server, unresponsive_port
from tests.dispatch.test_transports import post
from tocsin import ActorHost, LeaseClient, RemoteScheduler, Worker
from tocsin.actors.client import server as of_clients
from tocsin.actors.outbox.remote import OutboxClient
from tocsin.cli.http_server import Server, bind
from tocsin.dispatch.names import Connecting, Names
from tocsin.dispatch.server_client import ServerClient
from tocsin.dispatch.transport import NeverConnected, Transport

pytestmark = pytest.mark.anyio


async def test_a_callback_reaches_an_origin_by_name(transport: Transport) -> None:
    async with scripted_server(always_ok) as server, full_executor(), asyncio.timeout(5):
        answer = await post(transport, server.url.replace("127.0.0.1", "localhost"))
        await transport.aclose()

    assert answer.body == b"ok"


@pytest.mark.parametrize("kind", [of_clients.Server, LeaseClient, OutboxClient])
async def test_every_client_of_a_server_reaches_it_by_name(kind: type[ServerClient]) -> None:
    empty = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    async with (
        scripted_server(answering(empty)) as server,
        full_executor(),
        asyncio.timeout(5),
        kind(f"http://localhost:{server.port}") as client,
    ):
        answer = await client._request("GET", "default", "get")

    assert answer.status == 200


async def test_a_worker_far_from_its_host_keeps_its_leases(tmp_path: Path) -> None:
    """Longer than its leases, and than a connection is kept: it has to look the server up again and again."""
    runs: list[tuple[str, int]] = []

    async def patient(args: Any, context: Any) -> None:
        runs.append(("patient", context.attempt))
        await asyncio.sleep(3)

    def plain(args: Any, context: Any) -> None:
        runs.append(("plain", context.attempt))

    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with ActorHost.open(f"sqlite:///{tmp_path}/s.db") as host:
        server = Server(host.asgi(insecure=True))
        scripted_server = asyncio.create_task(server.serve(sockets=[listener]))
        jobs = host.scheduler()
        for n in range(3):
            await jobs.run_after(0, "patient", id=f"a{n}", queue="q", keep_result="1h")
            await jobs.run_after(0, "plain", id=f"b{n}", queue="q", keep_result="1h")
        async with full_executor(), asyncio.timeout(20), RemoteScheduler(f"http://localhost:{port}") as remote:
            worker = Worker(remote, {"patient": patient, "plain": plain}, lease_ms=1_000)
            running = asyncio.create_task(worker.run())
            for n in range(3):
                await jobs.result(f"a{n}", timeout=15)
                await jobs.result(f"b{n}", timeout=15)
            await worker.stop_and_drain()
            await running
        server.should_exit = True
        await scripted_server
    listener.close()

    assert sorted(runs) == [("patient", 1)] * 3 + [("plain", 1)] * 3


async def test_a_store_opens_closes_and_begins_while_the_app_keeps_all_threads_busy(tmp_path: Path) -> None:
    async with full_executor():
        for _ in range(2):
            async with asyncio.timeout(10), ActorHost.open(f"sqlite:///{tmp_path}/s.db") as host:
                await host.scheduler().run_after("1h", "x", queue="q")


# ---- The lookups themselves ------------------------------------------------------------------------


class Book:
    """`socket.getaddrinfo` for a test: what each name has, and who asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go, self.entered = threading.Event(), threading.Semaphore(0)
        self.most = self._now = 0
        self._lock = threading.Lock()

    def look_up(self, host: str, port: int, **options: Any) -> list[Any]:
        with self._lock:
            self.asked.append(host)
            self._now += 1
            self.most = max(self.most, self._now)
        self.entered.release()
        self.go.wait()
        with self._lock:
            self._now -= 1
        if host == "none.example":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    book = Book()
    monkeypatch.setattr("tocsin.dispatch.names.socket.getaddrinfo", book.look_up)
    yield book
    book.go.set()


async def some_rounds() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_name_is_looked_up_once_for_all_who_wait(book: Book) -> None:
    lookups = Names()
    asking = [asyncio.create_task(lookups.look_up("a.example", 80)) for _ in range(50)]
    await some_rounds()
    asking[0].cancel()
    book.go.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("a.example", 80))]] * 49
    assert book.asked == ["a.example"]


async def test_names_that_hang_take_no_more_threads_than_there_are(book: Book) -> None:
    lookups = Names(threads=3)
    asking = [asyncio.create_task(lookups.look_up(f"{n}.example", 80)) for n in range(20)]
    await some_rounds()
    for _ in range(3):
        assert book.entered.acquire(timeout=5)
    assert not book.entered.acquire(timeout=0.05)
    book.go.set()
    await asyncio.gather(*asking)

    assert (book.most, len(book.asked)) == (3, 20)


async def test_who_asks_for_a_name_that_is_none_hears_so_each_time(book: Book) -> None:
    lookups = Names()
    book.go.set()
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="no such name"):
            await lookups.look_up("none.example", 80)

    assert book.asked == ["none.example"] * 2


async def test_a_name_asked_for_while_there_was_no_thread_is_looked_up_when_there_is(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups, start = Names(threads=2), threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", none_left)
    for _ in range(5):
        with pytest.raises(OSError, match=r"no thread can be had to look up a\.example: can't start new thread"):
            await lookups.look_up("a.example", 80)

    monkeypatch.setattr(threading.Thread, "start", start)
    asking = [asyncio.create_task(lookups.look_up("a.example", 80))]
    await some_rounds()
    monkeypatch.setattr(threading.Thread, "start", none_left)
    asking.append(asyncio.create_task(lookups.look_up("b.example", 80)))  # the thread at work comes to it
    await some_rounds()
    monkeypatch.setattr(threading.Thread, "start", start)
    book.go.set()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*asking, *(lookups.look_up("c.example", 80) for _ in range(2)))
    assert [answer[0][4][0] for answer in answers] == ["a.example", "b.example", "c.example", "c.example"]


async def test_without_a_thread_to_look_up_its_origin_a_callback_has_not_connected(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("tocsin.dispatch.names.names", Names())
    monkeypatch.setattr("tocsin.dispatch.aiohttp_transport.names", Names())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises(NeverConnected, match="no thread can be had"):
            await post(transport, "http://localhost:9/")
    await transport.aclose()


def test_a_loop_that_ended_meanwhile_spoils_nothing(book: Book) -> None:
    lookups = Names()

    async def leave() -> None:
        asyncio.get_running_loop().create_task(lookups.look_up("a.example", 80))
        await some_rounds()

    async def ask() -> list[Any]:
        return await lookups.look_up("a.example", 80)

    asyncio.run(leave())
    book.go.set()

    assert asyncio.run(ask())[0][4] == ("a.example", 80)


FORKING = """
import asyncio, os, socket, threading
from tocsin.dispatch.names import names, THREADS
real, hung = socket.getaddrinfo, threading.Semaphore(0)
def hang(*args, **options):
    hung.release()
    threading.Event().wait()
async def parent():
    asking = [asyncio.ensure_future(names.look_up(f"{n}.example", 80)) for n in range(THREADS)]
    await asyncio.sleep(0)
    for _ in asking:
        hung.acquire()
    child = os.fork()
    if child == 0:
        return None
    for each in asking:
        each.cancel()
    return child
async def child():
    async with asyncio.timeout(10):
        assert await names.look_up("localhost", 80)
socket.getaddrinfo = hang
forked = asyncio.run(parent())
if forked is None:
    socket.getaddrinfo = real
    asyncio.run(child())
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], timeout=60, check=False, capture_output=True
    )

    assert ended.returncode == 0, ended.stderr.decode()


# ---- Several addresses -------------------------------------------------------------------------------


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A name with two addresses on this machine."""
    real = socket.getaddrinfo

    def look_up(host: Any, port: int, *args: Any, **options: Any) -> list[Any]:
        if host != "two.example":
            return list(real(host, port, *args, **options))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.2", "127.0.0.1")]

    wait_for_lookups()
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield
    wait_for_lookups()


async def test_an_address_that_refuses_is_passed_over(transport: Transport, two: None) -> None:
    async with scripted_server(always_ok) as server:  # on 127.0.0.1 only
        assert (await post(transport, f"http://two.example:{server.port}/")).body == b"ok"


async def test_an_address_that_never_answers_does_not_hold_up_the_next(two: None) -> None:
    async with scripted_server(always_ok) as server:
        with socket.socket() as first:
            first.bind(("127.0.0.2", server.port))
            first.listen(0)
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(first.getsockname())
            stream = await Connecting().connect_tcp("two.example", server.port, timeout=5)
            assert stream.get_extra_info("server_addr")[0] == "127.0.0.1"
            await stream.aclose()
            for filler in fillers:
                filler.close()


async def test_a_name_none_of_whose_addresses_answers_says_why(two: None) -> None:
    with unresponsive_port() as port, pytest.raises(httpcore.ConnectTimeout):
        await Connecting().connect_tcp("127.0.0.1", port, timeout=0.2)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(httpcore.ConnectError):
            await Connecting().connect_tcp("two.example", bound.getsockname()[1], timeout=5)
