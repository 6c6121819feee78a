"""Who closes the descriptor of a connection that was reset at once: nobody twice, on either loop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohappyeyeballs
import pytest

from tests.dispatch.event_loops import anyio_backend as anyio_backend
from tests.dispatch.test_transports import post, trusting
from tocsin.dispatch import builtin_transport
from tocsin.dispatch.connection import connected
from tocsin.dispatch.lent_sockets import LentSocket, lent
from tocsin.dispatch.transport import TransportError

pytestmark = pytest.mark.anyio

RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)


@contextmanager
def resetting(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, list[socket.socket]]]:
    """Give the port of a receiver that resets each connection before a byte of it was sent, and our sides of them."""
    ours: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def then_reset(connect: Any) -> Any:
            async def connect_and_be_reset(*args: Any, **options: Any) -> socket.socket:
                made: socket.socket = await connect(*args, **options)
                ours.append(made)
                peer, _ = listener.accept()
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
                peer.close()
                return made

            return connect_and_be_reset

        monkeypatch.setattr(builtin_transport, "connected", then_reset(connected))
        monkeypatch.setattr(aiohappyeyeballs, "start_connection", then_reset(aiohappyeyeballs.start_connection))
        yield listener.getsockname()[1], ours


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("name", ["builtin", "aiohttp"])
async def test_a_connection_that_was_reset_at_once_has_no_descriptor_left(
    name: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = trusting(name)
    with resetting(monkeypatch) as (port, ours):
        for _ in range(3):
            with pytest.raises(TransportError):
                await post(transport, f"{scheme}://127.0.0.1:{port}/")
        for _ in range(5):
            await asyncio.sleep(0)
        await transport.aclose()
    assert [each.fileno() for each in ours] == [-1, -1, -1]


def test_a_number_that_was_closed_elsewhere_and_used_again_stays_open() -> None:
    made = socket.socket()
    number = made.fileno()
    with lent(made):
        os.close(number)
        other = os.dup(0)
    assert (made.fileno(), other) == (-1, number)
    os.close(other)


def test_a_number_that_nobody_has_is_taken_from_its_socket() -> None:
    made = socket.socket()
    with pytest.raises(ConnectionResetError), lent(made):
        os.close(made.fileno())
        raise ConnectionResetError
    assert made.fileno() == -1


def test_a_socket_that_is_still_connected_keeps_its_number() -> None:
    made, other = socket.socketpair()
    with made, other:
        mine = LentSocket(made)
        mine.disown_what_is_closed()
        assert made.fileno() != -1
        made.close()
        mine.disown_what_is_closed()
