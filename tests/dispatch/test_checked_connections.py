"""Each transport, told which addresses are permitted: however an address is written, whatever a name leads to and when,
nothing else is connected to. A socket that listens at every address of this machine must stay alone."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.dispatch.event_loops import anyio_backend as anyio_backend
from tests.dispatch.scripted_server import (
    PATIENCE_S,
    ScriptedServer,
    always_ok,
    answering,
    scripted_server,
    trusting_tls,
)
from tests.dispatch.test_transports import post
from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.names import AddressInfo, names
from tocsin.dispatch.transport import NeverConnected, Transport
from tocsin.dispatch.transports import default_transport

pytestmark = pytest.mark.anyio

HERE = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "0.0.0.0",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "localhost",
    "localhost.",
    "LOCALHOST",
]
PERMITTED, TRAP = "127.0.0.2", "127.0.0.1"


class Listener:
    """Listens at every address of this machine, and accepts nobody until it is asked who has come."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        if self._socket.family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind(("", 0))
        self._socket.listen(64)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def connections(self) -> int:
        """How many have connected since this was asked before."""
        count = 0
        while True:
            try:
                self._socket.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1

    def wait(self) -> bool:
        """Wait until somebody has connected; False: nobody has for a long time."""
        return bool(select.select([self._socket], [], [], PATIENCE_S)[0])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.close()


@pytest.fixture
async def checked(name: str) -> AsyncIterator[Transport]:
    """A transport that may go to public addresses and, in the place of one of those, to one of this machine."""
    transport = default_transport(name, ssl_context=trusting_tls(), addresses=Addresses([PERMITTED]))
    yield transport
    await transport.aclose()


@asynccontextmanager
async def good_and_trap() -> AsyncIterator[tuple[ScriptedServer, ScriptedServer]]:
    """Two servers on one port: at the permitted address, and at one that is not."""
    async with (
        scripted_server(always_ok, address=PERMITTED) as good,
        scripted_server(always_ok, address=TRAP, port=good.port) as trap,
    ):
        yield good, trap


def leads_to(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Let every name lead to the first of these, then to the next, and at last always to the last. Returned are the
    names that are looked up."""
    asked: list[str] = []

    async def look_up(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[AddressInfo]:
        asked.append(host)
        addresses = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, port)) for one in addresses]

    monkeypatch.setattr(names, "look_up", look_up)
    return asked


@pytest.mark.parametrize("host", HERE)
async def test_no_spelling_of_this_machine_is_connected_to(checked: Transport, listener: Listener, host: str) -> None:
    with pytest.raises(NeverConnected):
        await post(checked, f"http://{host}:{listener.port}/", timeout=2)

    assert listener.connections() == 0


async def test_without_the_check_those_spellings_do_connect(transport: Transport, listener: Listener) -> None:
    """Or the test above would show nothing."""
    for host in ("127.0.0.1", "0x7f.1", "0.0.0.0", "localhost"):
        calling = asyncio.ensure_future(post(transport, f"http://{host}:{listener.port}/"))
        assert await asyncio.to_thread(listener.wait), host
        assert listener.connections()
        calling.cancel()
        await asyncio.wait([calling])


@pytest.mark.parametrize("addresses", [[TRAP, PERMITTED], [PERMITTED, TRAP], ["169.254.169.254"], ["10.0.0.1"]])
async def test_a_name_with_one_bad_address_is_called_at_none(
    checked: Transport, listener: Listener, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to(monkeypatch, addresses)

    with pytest.raises(NeverConnected, match=r"hooks\.example has the address .*only public addresses"):
        await post(checked, f"http://hooks.example:{listener.port}/", timeout=2)

    assert listener.connections() == 0


async def test_a_name_that_changes_after_the_check_is_called_where_it_was_checked(
    checked: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = leads_to(monkeypatch, [PERMITTED], [TRAP])
    async with (
        scripted_server(always_ok, address=PERMITTED) as good,
        scripted_server(always_ok, port=good.port) as trap,
    ):
        answer = await post(checked, f"http://hooks.example:{good.port}/in")
        await checked.aclose()

    assert (answer.status, good.accepted, trap.accepted) == (200, 1, 0)
    assert asked == ["hooks.example"], "looked up once, so nothing can come between check and connection"
    assert b"host: hooks.example" in good.requests[0].lower()


async def test_each_new_connection_is_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, [PERMITTED], [TRAP])
    async with (
        scripted_server(always_ok, address=PERMITTED) as good,
        scripted_server(always_ok, port=good.port) as trap,
    ):
        for refused in (False, True):
            transport = default_transport(name, addresses=Addresses([PERMITTED]))
            if refused:
                with pytest.raises(NeverConnected, match="loopback"):
                    await post(transport, f"http://hooks.example:{good.port}/")
            else:
                await post(transport, f"http://hooks.example:{good.port}/")
            await transport.aclose()

    assert (good.accepted, trap.accepted) == (1, 0)


async def test_a_redirect_to_this_machine_is_not_followed(
    checked: Transport, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to(monkeypatch, [PERMITTED], [TRAP])
    to_trap = b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:%d/\r\ncontent-length: 0\r\n\r\n" % listener.port
    async with scripted_server(answering(to_trap), address=PERMITTED) as good:
        answer = await post(checked, f"http://hooks.example:{good.port}/")
        await checked.aclose()

    assert (answer.status, listener.connections()) == (307, 0)


async def test_tls_is_with_the_name_though_the_address_was_checked(
    checked: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to(monkeypatch, [PERMITTED])
    async with scripted_server(always_ok, tls=True, address=PERMITTED) as server:
        answer = await post(checked, f"https://localhost:{server.port}/")
        with pytest.raises(NeverConnected, match="certificate"):
            await post(checked, f"https://other.example:{server.port}/")
        await checked.aclose()

    assert answer.status == 200
