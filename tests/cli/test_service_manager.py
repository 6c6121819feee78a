"""What `tocsin serve` tells the service manager that started it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tocsin.cli.service_manager import tell

from .processes import DEADLINE_S, tocsin_serve


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """Listen where a service is told to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("\0" + address[1:] if address.startswith("@") else address)
        channel.settimeout(DEADLINE_S)
        yield channel


def test_it_is_told_that_the_server_serves_and_that_it_stops(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as channel, tocsin_serve(cwd=tmp_path, NOTIFY_SOCKET=address) as server:
        ready, status = channel.recv(1000).decode().split("\n")
        answer = httpx.get(f"{status.removeprefix('STATUS=serving ')}/readyz", trust_env=False)
        assert server.stop() == 0

        assert (ready, answer.status_code) == ("READY=1", 200)
        assert channel.recv(1000) == b"STOPPING=1"


def test_its_socket_may_be_abstract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"@{tmp_path}/notify"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with manager(address) as channel:
        channel.settimeout(1)
        tell("READY=1", "STATUS=x")

        assert channel.recv(1000) == b"READY=1\nSTATUS=x"


def test_one_that_is_gone_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a shell that was opened inside a service the variable is that service's."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    tell("READY=1")

    [record] = caplog.records
    assert record.levelno == logging.WARNING and "cannot be told READY=1: No such file" in record.getMessage()


def test_without_one_nothing_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    tell("READY=1")

    assert not caplog.records
