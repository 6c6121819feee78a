"""A server that is flooded: real sockets on loopback, a process with few descriptors, callbacks that must go out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.waiting import wait_until
from tocsin.cli import connections
from tocsin.cli.connections import LEAST, room_for

from .processes import COMMAND, DEADLINE_S, Server, environment

DESCRIPTORS: Final = 256
FLOOD: Final = 400
TOKEN: Final = {"authorization": "Bearer secret-of-the-operator"}
HEAD: Final = (
    b"POST /complete HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 580000\r\n\r\n"
)


@pytest.mark.parametrize(
    ("descriptors", "callbacks", "most"),
    [(256, 256, 64), (1_024, 256, 704), (65_536, 256, 10_000), (1_024, 5_000, 256), (40, 4, LEAST)],
)
def test_callbacks_have_their_descriptors_first(descriptors: int, callbacks: int, most: int) -> None:
    assert room_for(descriptors, callbacks) == most


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@contextlib.contextmanager
def flooded(cwd: Path, *words: str, code: str = COMMAND[-1], **env: str) -> Iterator[tuple[Server, tuple[str, int]]]:
    """A server with few descriptors, and its address."""
    process = subprocess.Popen(
        [*COMMAND[:-1], code, "serve", "--port", "0", *words], cwd=cwd, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, preexec_fn=_few_descriptors,
        env=environment(TOCSIN_TOKENS="ops:admin:secret-of-the-operator", **env),
    )  # fmt: skip
    server = Server(process)
    try:
        host, _, port = server.url().removeprefix("http://").partition(":")
        yield server, (host, int(port))
    finally:
        server.end()


@contextlib.contextmanager
def crowd(address: tuple[str, int], count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections, each of which has said so much and waits."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(address, timeout=DEADLINE_S))
            with contextlib.suppress(ConnectionError):  # cut off already
                one.sendall(sent)
            opened.append(one)
        yield opened


def still_open(sockets: list[socket.socket]) -> int:
    """How many of these the server has not closed."""
    count = 0
    for one in sockets:
        one.setblocking(False)
        try:
            while data := one.recv(65_536):
                assert data.startswith(b"HTTP/1.1 503")
        except BlockingIOError:
            count += 1
        except ConnectionError:
            pass
    return count


def get(address: tuple[str, int], path: str) -> httpx.Response:
    return httpx.get(f"http://{address[0]}:{address[1]}{path}", headers=TOKEN, timeout=DEADLINE_S)


class Receiver:
    """Answers callbacks 204 and remembers their ids."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.url = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.ids.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Listener(ThreadingHTTPServer):
        request_queue_size = 256  # callbacks come all at once

    with Listener(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        server.shutdown()
        thread.join()


WITHOUT_UVLOOP: Final = "import sys; sys.modules['uvloop'] = None; "


@pytest.mark.parametrize("loop", ["", WITHOUT_UVLOOP], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /complete HTTP/1.1\r\nx: ", HEAD + b" " * 20_000],
    ids=["half-open", "in the head", "in the body"],
)
def test_a_flood_is_bounded_and_jobs_are_scheduled_and_called_back_meanwhile(
    tmp_path: Path, receiver: Receiver, sent: bytes, loop: str
) -> None:
    with (
        flooded(tmp_path, "--insecure", "--origin-url", receiver.url, code=loop + COMMAND[-1]) as (server, address),
        crowd(address, FLOOD, sent) as sockets,
    ):
        jobs = {"jobs": [{"functionPath": "p", "delayMs": 0, "id": f"job-{n}"} for n in range(100)]}
        answer = httpx.post(
            f"http://{address[0]}:{address[1]}/schedule/batch", json=jobs, headers=TOKEN, timeout=DEADLINE_S
        )
        assert answer.status_code == 200, answer.text
        wait_until(lambda: len(receiver.ids) == 100)
        ready = get(address, "/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (200, ["CONNECTIONS_FULL"])
        server.line_with("connections are open, the limit: those that have dawdled longest are closed")
        wait_until(lambda: still_open(sockets) <= room_for(DESCRIPTORS, 256))
        assert server.stop() == 0
        said = "\n".join([*server.lines, *server.rest()])
        assert "Traceback" not in said and "Too many" not in said, said[:5000]


SOON: Final = (
    "from tocsin.cli import connections; import enum; "
    "connections.SWEEP_S = 0.05; "
    "connections.Dawdles = enum.Enum('Dawdles', {'HEAD': 0.5, 'BODY': 0.6, 'READING': 0.7}); "
)
"""A server whose patience is short."""


def drip(one: socket.socket, piece: bytes) -> bytes:
    """Send a piece every so often until the server closes; what it answered."""
    answer = b""
    one.settimeout(0.05)
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            one.sendall(piece)
            data = one.recv(65_536)
        except TimeoutError:
            continue
        except ConnectionError:
            return answer
        if not data:
            return answer
        answer += data
    raise AssertionError("never closed")


@pytest.mark.parametrize(
    ("begin", "piece", "answered"),
    [
        (b"GET /healthz HTTP/1.1\r\nx: ", b"x", b""),
        (b"", b"", b""),
        (HEAD, b" ", b""),
        (HEAD.replace(b"POST /complete", b"GET /healthz"), b" ", b"200"),
        (b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /x HTTP/1.1\r\nx: ", b"x", b"200"),
    ],
    ids=["in the head", "says nothing", "in the body", "after the answer", "in the next head"],
)
def test_who_drips_is_closed_in_time(tmp_path: Path, begin: bytes, piece: bytes, answered: bytes) -> None:
    with (
        flooded(tmp_path, code=SOON + COMMAND[-1]) as (_, address),
        socket.create_connection(address, timeout=DEADLINE_S) as one,
    ):
        one.sendall(begin)
        began = time.monotonic()
        answer = drip(one, piece)
        assert answered in answer[:20]
        assert 0.3 < time.monotonic() - began < DEADLINE_S / 2


def test_who_does_not_read_its_answer_is_closed_in_time(tmp_path: Path) -> None:
    with (
        flooded(tmp_path, code=SOON + COMMAND[-1]) as (server, address),
        socket.socket() as one,
    ):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.settimeout(DEADLINE_S)
        one.connect(address)
        request = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
        with contextlib.suppress(TimeoutError, ConnectionError):
            one.settimeout(3)
            for _ in range(400):
                one.sendall(request)
        wait_until(lambda: not _established(server.process.pid))


def _established(pid: int) -> int:
    """Sockets of a process, without the one that listens."""
    links = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return sum(row.split()[9] in inodes and row.split()[3] != "0A" for row in rows)


def test_who_waits_for_an_answer_is_not_taken_for_one_that_dawdles(tmp_path: Path) -> None:
    """A long poll outlasts both the patience of the server and a flood."""
    with flooded(tmp_path, code=SOON + COMMAND[-1]) as (_, address):
        found: list[Any] = []
        later = {"functionPath": "p", "delayMs": 3_600_000, "queue": "q"}
        url = f"http://{address[0]}:{address[1]}/schedule"
        httpx.post(url, json=later, headers=TOKEN, timeout=DEADLINE_S).raise_for_status()

        def claim() -> None:
            found.append(
                httpx.post(
                    f"http://{address[0]}:{address[1]}/queues/q/claim", json={"waitMs": 20_000}, headers=TOKEN,
                    timeout=DEADLINE_S,
                ).json()
            )  # fmt: skip

        waiting = threading.Thread(target=claim)
        waiting.start()
        wait_until(lambda: [one["workersWaiting"] for one in get(address, "/queues").json()["queues"]] == [1])
        with crowd(address, FLOOD, b"GET"):
            time.sleep(1)
            answer = httpx.post(
                f"http://{address[0]}:{address[1]}/schedule", json={"functionPath": "p", "delayMs": 0, "queue": "q"},
                headers=TOKEN, timeout=DEADLINE_S,
            )  # fmt: skip
            assert answer.status_code == 200
            waiting.join(DEADLINE_S)
        assert [len(one["jobs"]) for one in found] == [1]


def test_when_all_are_served_the_next_one_is_told_to_come_again(tmp_path: Path) -> None:
    poll = (
        b"POST /queues/q/claim HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer secret-of-the-operator\r\ncontent-length: 17\r\n\r\n"
        b'{"waitMs": 20000}'
    )
    most = room_for(DESCRIPTORS, 256)
    with flooded(tmp_path) as (server, address), crowd(address, most, poll):
        wait_until(lambda: get(address, "/readyz").status_code == 503)
        answer = get(address, "/status")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "OVERLOADED"
        server.line_with("and all are served: refused")
        assert server.stop() == 0


def test_too_few_descriptors_are_told_at_the_start(tmp_path: Path) -> None:
    with flooded(tmp_path, "--max-in-flight", "1000") as (server, _):
        assert any("256 files may be open (ulimit -n), and 1000 callbacks" in line for line in server.lines)


def test_the_patience_is_what_the_docs_say() -> None:
    page = (Path(__file__).parents[2] / "docs" / "access.md").read_text("utf-8")
    for kind in connections.Dawdles:
        assert f"{kind.value:g} s" in page


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("loop", ["", WITHOUT_UVLOOP], ids=["uvloop", "asyncio"])
def test_a_server_without_a_descriptor_left_neither_spins_nor_ends(tmp_path: Path, loop: str) -> None:
    with flooded(tmp_path, code=loop + COMMAND[-1]) as (server, address):
        pid = server.process.pid
        assert get(address, "/readyz").status_code == 200
        few = len(os.listdir(f"/proc/{pid}/fd")) + 3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, DESCRIPTORS))
        with crowd(address, 20, b"GET"):
            server.line_with("no connection can be taken up: Too many open files")
            before = _cpu_s(pid)
            time.sleep(1)
            assert _cpu_s(pid) - before < 0.5
        answer = get(address, "/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (200, ["CONNECTIONS_FULL"])
        assert server.stop() == 0
