"""Addresses of this machine: how they can be written, who listens at them, and names that lead to them."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence

import pytest

from tests.dispatch.scripted_server import PATIENCE_S
from tocsin.dispatch.names import AddressInfo, names

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


def leads_to(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Let every name lead to the first of these, then to the next, and at last always to the last. Returned are the
    names that are looked up."""
    asked: list[str] = []

    async def look_up(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[AddressInfo]:
        asked.append(host)
        addresses = answers[min(asked.count(host), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, port)) for one in addresses]

    monkeypatch.setattr(names, "look_up", look_up)
    return asked
