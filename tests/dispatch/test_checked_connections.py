"""Each transport, told which addresses are permitted: however an address is written, whatever a name leads to and when,
nothing else is connected to. A socket that listens at every address of this machine must stay alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.dispatch.addresses_here import HERE, PERMITTED, TRAP, Listener, leads_to
from tests.dispatch.event_loops import anyio_backend as anyio_backend
from tests.dispatch.scripted_server import (
    ScriptedServer,
    always_ok,
    answering,
    scripted_server,
    trusting_tls,
)
from tests.dispatch.test_transports import post
from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.transport import NeverConnected, Transport
from tocsin.dispatch.transports import default_transport

pytestmark = pytest.mark.anyio


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

    with pytest.raises(NeverConnected, match=r"^hooks\.example has the address .*only public addresses"):
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
