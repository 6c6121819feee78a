"""What the tests of the command line share: a runner with a clean environment, and a server that answers as told."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click.testing
import pytest

from tocsin.cli import main

from .damaged_stores import fill

Run = Callable[..., click.testing.Result]


@dataclass
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Canned:
    """A server on loopback: answers what was put in `answers`, in order (the last one again), remembers requests."""

    url: str = ""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def answer(self, value: Any, status: int = 200) -> None:
        self.answers.append((status, value))

    def refuse(self, status: int, code: str, message: str) -> None:
        self.answer({"error": {"code": code, "message": message}}, status)


@pytest.fixture
def canned() -> Iterator[Canned]:
    told = Canned()

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(size)
            body = json.loads(raw) if raw else None
            told.requests.append(Request(self.command, self.path, dict(self.headers.items()), body))
            status, value = told.answers.pop(0) if len(told.answers) > 1 else told.answers[0]
            text = isinstance(value, str)
            data = value.encode() if text else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "text/html" if text else "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _reply

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        server.shutdown()
        thread.join()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, canned: Canned) -> Run:
    """`tocsin ...` against the canned server, with nothing of the tester's environment."""
    import os

    for name in [name for name in os.environ if name.startswith("TOCSIN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TOCSIN_URL", canned.url)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str, **more: Any) -> click.testing.Result:
        return click.testing.CliRunner().invoke(main, args, **more)

    return call


@pytest.fixture(scope="session")
def filled_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a job of every kind. Never changed: tests take a copy."""
    path = tmp_path_factory.mktemp("filled") / "jobs.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def store(filled_store: Path, tmp_path: Path) -> Path:
    """A copy of the filled store."""
    return Path(shutil.copy(filled_store, tmp_path / "jobs.db"))
