"""Run a tocsin server and its receiver as processes, and ask the server over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cli.processes import Server, tocsin_serve

ROOT: Final = Path(__file__).parents[2]
SECRET: Final = "whsec_" + "a2V5" * 8
TOKEN: Final = "a-token-for-this-test"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def python_module(module: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a module as a program until the block ends; yields the process and the first line that it prints."""
    command = [sys.executable, "-m", module, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def receiver_process(module: str, *words: str) -> Iterator[str]:
    """Run a receiver that prints its port; yields its origin."""
    with python_module(module, *words) as (_, port):
        yield f"http://127.0.0.1:{int(port)}"


@contextmanager
def server_process(folder: Path, port: int, store: str, origin: str) -> Iterator[Server]:
    """Run `tocsin serve` with one secret and one token; yields when it serves."""
    settings = {
        "TOCSIN_STORE": f"sqlite:///{store}",
        "TOCSIN_ORIGIN_URL": origin,
        "TOCSIN_SECRETS": SECRET,
        "TOCSIN_TOKENS": f"test:admin:{TOKEN}",
    }
    with tocsin_serve("--port", str(port), cwd=folder, **settings) as server:
        server.url()
        yield server


def ask(url: str, route: str, body: object = None, method: str | None = None) -> Any:
    """Send a request with the token, and return the answer's JSON."""
    request = urllib.request.Request(
        url + route,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
