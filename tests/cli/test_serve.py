"""`tocsin serve` as a process: what it refuses, what it says, and how it stops."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tocsin.cli.http_server import GRACE_S
from tocsin.cli.keys import new_secret
from tocsin.dispatch.signing import Signer

from .processes import DEADLINE_S, tocsin, tocsin_serve

ORIGIN = "http://127.0.0.1:9"
"""The discard port: nobody listens there."""


class Receiver:
    """A receiver on loopback whose answers wait for `answering`."""

    def __init__(self) -> None:
        self.url = ""
        self.callbacks: list[tuple[dict[str, str], bytes]] = []
        self.arrived = threading.Event()
        self.answering = threading.Event()
        self.answering.set()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told.callbacks.append(({name.lower(): value for name, value in self.headers.items()}, body))
            told.arrived.set()
            told.answering.wait(DEADLINE_S)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        told.answering.set()
        server.shutdown()
        thread.join()


# ---- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        (
            ["--origin-url", "https://app.example"],
            {},
            "Error: callbacks would go out unsigned: set TOCSIN_SECRETS (`tocsin keys new` makes one), or give "
            "--insecure for a loopback origin\n",
        ),
        (["--origin-url", ORIGIN], {}, "--insecure"),
        (
            ["--origin-url", "https://app.example", "--insecure"],
            {},
            "Error: --insecure is for loopback origins only, and https://app.example/_tocsin/callback is not one: set "
            "TOCSIN_SECRETS (`tocsin keys new` makes one)\n",
        ),
        (["--host", "0.0.0.0"], {}, "TOCSIN_TOKENS"),
        (["--insecure", "--host", "0.0.0.0", "--origin-url", ORIGIN], {}, "TOCSIN_TOKENS"),
        ([], {"TOCSIN_SECRETS": "hush"}, "TOCSIN_SECRETS: a secret has 4 bytes"),
        ([], {"TOCSIN_TOKENS": "a:everything:hush"}, "everything"),
        (["--port", "http"], {}, "--port must be a whole number"),
        (["--config", "absent.toml"], {}, "there is no file absent.toml"),
        (["--store", "oracle://x"], {}, "oracle"),
    ],
)
def test_wrong_settings_are_refused_with_exit_2(
    tmp_path: Path, words: list[str], env: dict[str, str], message: str
) -> None:
    done = tocsin("serve", "--port", "0", *words, cwd=tmp_path, **env)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "hush" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "=[...]" not in done.stderr and "=True" not in done.stderr, "it speaks Python"


def test_a_port_in_use_is_refused_with_exit_5(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tocsin("serve", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 5
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert not (tmp_path / "tocsin.db").exists()


def test_an_address_that_is_not_ours_is_refused_with_exit_5(tmp_path: Path) -> None:
    done = tocsin("serve", "--host", "192.0.2.1", cwd=tmp_path, TOCSIN_TOKENS="ops:admin:" + "x" * 32)
    assert done.returncode == 5
    assert "192.0.2.1 is no address of this machine" in done.stderr


def test_a_locked_store_is_refused_with_exit_4(tmp_path: Path) -> None:
    with tocsin_serve(cwd=tmp_path) as holder:
        holder.url()
        done = tocsin("serve", "--port", "0", cwd=tmp_path)
        assert done.returncode == 4
        assert "sqlite:///tocsin.db" in done.stderr
        assert str(holder.process.pid) in done.stderr
        assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_opened_is_refused_with_exit_4(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, but long enough to be taken for one " * 20)
    for store in ("sqlite:///absent/folder/x.db", "sqlite:///text.db"):
        done = tocsin("serve", "--port", "0", "--store", store, cwd=tmp_path)
        assert done.returncode == 4, done.stderr
        assert store in done.stderr
        assert "Traceback" not in done.stderr


# ---- Serving -------------------------------------------------------------------------------------


def test_one_line_says_where_what_and_whom_it_calls(tmp_path: Path) -> None:
    with tocsin_serve("--insecure", "--origin-url", ORIGIN, cwd=tmp_path) as server:
        line = server.line_with("serving")
        assert "http://127.0.0.1:" in line
        assert "store sqlite:///tocsin.db" in line
        assert f"UNSIGNED callbacks to {ORIGIN}/_tocsin/callback" in line


def test_without_an_origin_it_says_that_jobs_are_refused(tmp_path: Path) -> None:
    with tocsin_serve(cwd=tmp_path) as server:
        url = server.url()
        assert "TOCSIN_ORIGIN_URL" in server.lines[-1]
        done = tocsin("schedule", "p", "--url", url, cwd=tmp_path)
        assert done.returncode == 1
        assert "ORIGIN_NOT_CONFIGURED" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with tocsin_serve(cwd=tmp_path) as server:
        assert httpx.get(server.url() + "/readyz").status_code == 200
        assert server.stop(number) == 0
        server.line_with("tocsin: stopping")
        server.line_with("tocsin: stopped")
        assert not any("Traceback" in line for line in server.lines)


def test_settings_come_from_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text(
        f'store = "sqlite:///other.db"\norigin_url = "{ORIGIN}"\ncallback_path = "/hook"\ninsecure = true\n'
    )
    with tocsin_serve(cwd=tmp_path) as server:
        line = server.line_with("serving")
        assert "store sqlite:///other.db" in line
        assert f"{ORIGIN}/hook" in line
    assert (tmp_path / "other.db").exists()


def test_tokens_are_asked_for_and_taken(tmp_path: Path) -> None:
    secret = "t" * 32
    with tocsin_serve(cwd=tmp_path, TOCSIN_TOKENS=f"eye:read:{secret}") as server:
        url = server.url()
        refused = tocsin("status", "--url", url, cwd=tmp_path)
        assert refused.returncode == 1
        assert "[UNAUTHENTICATED]" in refused.stderr
        assert "TOCSIN_TOKEN" in refused.stderr
        assert tocsin("status", "--url", url, cwd=tmp_path, TOCSIN_TOKEN=secret).returncode == 0
        forbidden = tocsin("cancel", "x", "--url", url, cwd=tmp_path, TOCSIN_TOKEN=secret)
        assert forbidden.returncode == 1
        assert "[FORBIDDEN]" in forbidden.stderr


def test_a_scheduled_job_is_called_back_signed(tmp_path: Path, receiver: Receiver) -> None:
    secret = new_secret()
    with tocsin_serve("--origin-url", receiver.url, cwd=tmp_path, TOCSIN_SECRETS=secret) as server:
        env = {"TOCSIN_URL": server.url(), "TOCSIN_INSTANCE": "tenant-a"}
        done = tocsin("schedule", "invoices:send", "--args", '{"n": 1}', "--id", "one", cwd=tmp_path, **env)
        assert (done.returncode, done.stdout) == (0, "one\n")
        assert receiver.arrived.wait(DEADLINE_S)
        headers, body = receiver.callbacks[0]
        assert Signer([secret]).verify(headers, body, now_s=int(headers["webhook-timestamp"])).startswith("one:")
        assert json.loads(body)["args"] == {"n": 1}
        assert json.loads(body)["instanceName"] == "tenant-a"


def test_a_stop_waits_for_the_callback_under_way_and_settles_it(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answering.clear()
    words = ("--insecure", "--origin-url", receiver.url)
    with tocsin_serve(*words, cwd=tmp_path) as server:
        assert tocsin("schedule", "p", "--url", server.url(), cwd=tmp_path).returncode == 0
        assert receiver.arrived.wait(DEADLINE_S)
        server.process.send_signal(signal.SIGTERM)
        server.line_with("tocsin: stopping")
        receiver.answering.set()
        assert server.process.wait(DEADLINE_S) == 0
    with tocsin_serve(*words, cwd=tmp_path) as server:
        done = tocsin("status", "--json", "--url", server.url(), cwd=tmp_path)
        answer = json.loads(done.stdout)
        assert (answer["backlog"], answer["inFlight"], answer["dead"]) == (0, 0, 0)
    assert len(receiver.callbacks) == 1


def test_a_stop_answers_claims_that_wait(tmp_path: Path) -> None:
    with tocsin_serve("--insecure", cwd=tmp_path) as server, ThreadPoolExecutor() as pool:
        url = server.url()
        job = {"functionPath": "p", "queue": "q", "delayMs": 3_600_000}
        assert httpx.post(f"{url}/schedule", json=job).status_code == 200

        def waiting() -> int:
            (queue,) = httpx.get(f"{url}/queues").json()["queues"]
            return int(queue["workersWaiting"])

        claim = pool.submit(httpx.post, f"{url}/queues/q/claim", json={"waitMs": 60_000}, timeout=DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while not waiting() and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
        assert server.stop() == 0
        assert claim.result().json() == {"jobs": []}
        assert time.monotonic() - began < GRACE_S
        assert not any("Traceback" in line for line in server.lines)


def test_a_second_signal_ends_the_waiting(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answering.clear()
    with tocsin_serve("--insecure", "--origin-url", receiver.url, cwd=tmp_path) as server:
        assert tocsin("schedule", "p", "--url", server.url(), cwd=tmp_path).returncode == 0
        assert receiver.arrived.wait(DEADLINE_S)
        server.process.send_signal(signal.SIGINT)
        server.line_with("tocsin: stopping")
        assert server.stop(signal.SIGINT) == 130
        assert not any("Traceback" in line for line in server.lines)


def test_commands_work_against_a_real_server(tmp_path: Path) -> None:
    with tocsin_serve("--insecure", "--origin-url", ORIGIN, cwd=tmp_path) as server:
        env = {"TOCSIN_URL": server.url()}

        def run(*words: str) -> tuple[int, str, str]:
            done = tocsin(*words, cwd=tmp_path, **env)
            return done.returncode, done.stdout, done.stderr

        options = ("--in", "1h", "--pool", "stripe", "--max-retries", "2", "--timeout", "90s", "--label", "x")
        for id in ("a", "b", "c"):
            assert run("schedule", "invoices:send", "--id", id, *options)[0] == 0
        code, _, words = run("schedule", "p", "--id", "a")
        assert (code, "DUPLICATE_SCHEDULE_ID" in words) == (1, True)
        code, out, words = run("schedule", "p", "--id", "a", "--on-conflict", "keep")
        assert (code, out, "kept the pending job" in words) == (0, "a\n", True)
        listed = run("ls", "--json", "--order", "id", "--pool", "stripe", "--state", "pending", "--label", "x")
        assert [json.loads(line)["id"] for line in listed[1].splitlines()] == ["a", "b", "c"]
        assert "there are more" in run("ls", "--limit", "2")[2]
        assert "invoices:send" in run("get", "a")[1]
        assert run("cancel", "b")[0] == 0
        assert run("cancel", "b")[0] == 1
        assert json.loads(run("status", "--json")[1])["backlog"] == 2
        assert run("get", "no/id")[0] == 1
        assert run("dead", "ls") == (0, "", "no dead jobs in default\n")
        assert run("dead", "retry", "a")[0] == 1
