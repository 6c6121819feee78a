"""What `tocsin serve` tells the service manager that started it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tocsin.cli.service_manager import tell

from .processes import DEADLINE_S, tocsin_serve


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The address that a service is given, and the socket that listens there."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + path if request.param == "abstract" else path)
        channel.settimeout(DEADLINE_S)
        yield ("@" + path if request.param == "abstract" else path), channel


def test_it_is_told_that_the_server_serves_and_that_it_stops(
    tmp_path: Path, manager: tuple[str, socket.socket]
) -> None:
    address, channel = manager
    with tocsin_serve(cwd=tmp_path, NOTIFY_SOCKET=address) as server:
        ready, status = channel.recv(1000).decode().split("\n")
        url = status.removeprefix("STATUS=serving ")
        answer = httpx.get(f"{url}/readyz", trust_env=False)
        assert server.stop() == 0

    assert (ready, answer.status_code) == ("READY=1", 200)
    assert channel.recv(1000) == b"STOPPING=1"


def test_a_manager_that_is_gone_is_a_warning(tmp_path: Path) -> None:
    """In a shell that was opened inside a service the variable is that service's."""
    with tocsin_serve(cwd=tmp_path, NOTIFY_SOCKET=str(tmp_path / "nobody")) as server:
        assert "nobody cannot be told READY=1: No such file" in server.line_with("WARNING")
        assert httpx.get(f"{server.url()}/readyz", trust_env=False).status_code == 200
        assert server.stop() == 0


def test_without_a_manager_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    tell("READY=1")
