"""`SyncClient`: one background thread, shared by threads, new in a child process, gone at the interpreter's exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import anyio.from_thread
import pytest

from scripts import sync_client
from tests.actors.client.doors import House, house
from tocsin import SyncClient
from tocsin.errors import SettingsError, UnreachableError


@contextmanager
def served() -> Iterator[tuple[House, Any]]:
    """A server in another thread, and what calls its coroutines."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(house("server")) as found,
    ):
        yield found, portal


def process(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(one: subprocess.Popen[str]) -> list[str]:
    out, err = one.communicate(timeout=20)
    assert one.returncode == 0, err
    assert err == ""
    return out.split()


@pytest.mark.parametrize("one", sync_client.CLASSES, ids=lambda one: one.file)
def test_the_blocking_classes_are_those_that_the_script_writes(one: sync_client.Blocking) -> None:
    assert (sync_client.WHERE / one.file).read_text() == sync_client.written(one), "run scripts/sync_client.py"


def test_threads_share_a_client() -> None:
    with served() as (found, _), SyncClient(found.url, token="secret-ops") as client:
        jobs = client.scheduler("t")
        with ThreadPoolExecutor(8) as threads:
            ids = list(threads.map(lambda n: jobs.run_after("1h", "a:b", {"n": n}, queue="q"), range(64)))
        assert len(set(ids)) == 64 == jobs.status().backlog
        assert {one.id for one in jobs.list_all()} == set(ids)
        stripe = jobs.pools("stripe")
        assert stripe.pause().paused
        remind = jobs.task("invoices:remind", lambda number: None, pool=stripe)
        record = jobs.get(remind.after("5m", number=42))
        assert record is not None and (record.args, record.pool) == ({"number": 42}, "stripe")
        with jobs.deferred() as later:
            id = later.run_after("1h", "a:b", queue="q")
        assert jobs.get(id) is not None
        assert [one.name for one in client.instances().instances] == ["t"]
        assert client.health().ready and client.catalog().checked is False
        assert "/schedule" in client.openapi()["paths"]


def test_a_closed_client_refuses_and_shows_no_token() -> None:
    client = SyncClient("http://127.0.0.1:9", token="secret-ops", patience_s=0, timeout_s=1)
    assert "secret" not in repr(client)
    with pytest.raises(UnreachableError):
        client.scheduler().status()
    client.close()
    client.close()
    with pytest.raises(SettingsError, match="is closed"):
        client.scheduler().status()
    with pytest.raises(SettingsError, match="url"):
        SyncClient("ftp://x")


def test_a_call_that_waits_ends_when_the_client_is_closed() -> None:
    with served() as (found, portal), ThreadPoolExecutor(1) as thread:
        client = SyncClient(found.url, token="secret-ops")
        claiming = thread.submit(client.scheduler("t").claim, "q", wait=60)
        while not waits(found, portal):
            pass
        client.close()
        with pytest.raises(UnreachableError, match="was closed"):
            claiming.result(timeout=10)


FORKING = """
import os, sys
from tocsin import SyncClient
jobs = SyncClient(sys.argv[1], token="secret-ops").scheduler("t")
print(jobs.run_after("1h", "a:b", queue="q"), flush=True)
child = os.fork()
if not child:
    print(jobs.run_after("1h", "a:b", queue="q"), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(jobs.run_after("1h", "a:b", queue="q"), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_has_connections_of_its_own() -> None:
    with served() as (found, portal):
        ids = said(process(FORKING, found.url))
        assert len(set(ids)) == 3
        assert portal.call(found.jobs.status).backlog == 3


LEAVING = """
import sys
from tocsin import SyncClient
jobs = SyncClient(sys.argv[1], token="secret-ops").scheduler("t")
print(jobs.run_after("1h", "a:b", queue="q"))
"""


def test_the_interpreter_ends_though_nobody_closed_it() -> None:
    with served() as (found, _):
        assert len(said(process(LEAVING, found.url))) == 1


CLAIMING = """
import sys
from tocsin import SyncClient
jobs = SyncClient(sys.argv[1], token="secret-ops").scheduler("t")
jobs.status()
print("claims", flush=True)
try:
    print(jobs.claim("q", wait=60))
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
"""


def test_a_claim_that_is_interrupted_takes_no_job_with_it() -> None:
    with served() as (found, portal):
        one = process(CLAIMING, found.url)
        assert one.stdout is not None and one.stdout.readline() == "claims\n"
        while not waits(found, portal):
            pass
        one.send_signal(signal.SIGINT)
        assert one.stdout.readline() == "interrupted\n"
        portal.call(lambda: found.jobs.run_after(0, "a:b", id="a", queue="q"))
        [job] = portal.call(lambda: found.jobs.claim("q", wait=5))
        assert (job.id, job.attempt, job.attempts) == ("a", 1, 0)
        assert said(one) == []


def waits(found: House, portal: Any) -> bool:
    return bool(portal.call(lambda: found.host._service.inflight("t").waiting_claims.waiting_for("q")))
