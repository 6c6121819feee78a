"""The story that every example of a framework tells, read through its routes: the example runs in its own process."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.examples.example_process import DEADLINE_S, EXAMPLES, Program, running
from tocsin.cli.keys import new_secret
from tocsin.dispatch.signing import Signer

PYTHON: Final = (sys.executable, "-m")
FORGED: Final = {
    "id": "x", "functionPath": "reminders:send", "args": {"text": "forged"}, "scheduledFor": 1_800_000_000_000,
    "attempt": 1, "lease": "1.1.a", "instanceName": "ada",
}  # fmt: skip


@dataclass(frozen=True)
class App:
    """A running example: where it is, and what it prints."""

    http: httpx.Client
    program: Program

    def remind(self, user: str, text: str, after: str) -> str:
        answer = self.http.post(f"/users/{user}/reminders", json={"text": text, "after": after})
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def ahead(self, user: str) -> list[str]:
        page: dict[str, Any] = self.http.get(f"/users/{user}/reminders").raise_for_status().json()
        return [job["args"]["text"] for job in page["records"]]

    def forget(self, user: str, id: str) -> bool:
        return bool(self.http.delete(f"/users/{user}/reminders/{id}").raise_for_status().json()["cancelled"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def app(
    command: Sequence[str], *, cwd: Path, port: int, secret: str, server: str = "", token: str = ""
) -> Iterator[App]:
    """Run an example until it answers; `{port}` in its command stands for its port, `server` is the tocsin server."""
    origin = f"http://127.0.0.1:{port}"
    words = [word.replace("{port}", str(port)) for word in command]
    with (
        running(
            words,
            cwd=cwd,
            TOCSIN_SECRETS=secret,
            ORIGIN=origin,
            PORT=str(port),
            PYTHONPATH=str(EXAMPLES),
            TOCSIN_URL=server,
            TOCSIN_TOKEN=token,
        ) as program,
        httpx.Client(base_url=origin, trust_env=False, timeout=DEADLINE_S) as http,
    ):
        until_it_answers(http, program)
        yield App(http, program)


def until_it_answers(http: httpx.Client, program: Program) -> None:
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            http.get("/")
            return
        except httpx.TransportError:
            assert time.monotonic() < end and program.process.poll() is None, program.lines_so_far()
            time.sleep(0.02)


def tell(running: App) -> None:
    """Schedule, list, cancel, be called back; be refused what is forged and what is wrong; end."""
    later = running.remind("ada", "tea", "1h")
    assert (running.ahead("ada"), running.ahead("grace")) == (["tea"], [])
    assert running.forget("ada", later) is True
    assert running.ahead("ada") == []
    assert running.forget("ada", later) is False

    running.remind("ada", "water the plants", "0s")
    running.program.line_with("to ada: water the plants")

    forged = json.dumps(FORGED).encode()
    stamp = int(time.time())
    signed_by_another = Signer([new_secret()]).sign("x:1", stamp, forged)
    headers = {"webhook-id": "x:1", "webhook-timestamp": str(stamp), "webhook-signature": signed_by_another}
    refused = running.http.post("/_tocsin/callback", content=forged, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHENTICATED")

    wrong = running.http.post("/users/ada/reminders", json={"text": "tea", "after": "soon"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "INVALID_INPUT")
    assert "soon" in wrong.json()["error"]["message"]
    nobody = running.http.get("/users/not%20a%20name/reminders")
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (400, "INVALID_INPUT")

    running.http.close()
    printed = running.program.stop()
    assert running.program.process.returncode in (0, -signal.SIGTERM), printed
    assert not [line for line in printed if "Traceback" in line or "forged" in line or "ERROR" in line], printed
