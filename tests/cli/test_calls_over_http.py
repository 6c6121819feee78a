"""How many Python calls a request and a job over HTTP may take: counts, which no busy machine changes."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cli.wire import connection
from tests.dispatch.worker.claim_sources import host_and_source
from tocsin import ActorHost, Job, Worker

pytestmark = pytest.mark.anyio

TOKEN = "secret-of-the-operator"
BODY = json.dumps({"functionPath": "p", "scheduledFor": 4_102_444_800_000, "args": {"n": 1}}).encode()
REQUEST = (
    b"POST /schedule HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\ncontent-type: application/json\r\n"
    b"accept: */*\r\nuser-agent: test\r\ncontent-length: %d\r\n\r\n%b" % (TOKEN.encode(), len(BODY), BODY)
)
COUNTED = ("tocsin.", "starlette.", "uvicorn.", "h11.", "httpx.", "httpcore.", "anyio.")
"""Modules whose calls count: an event loop's own depend on its version."""
COUNT = 50
PER_REQUEST, PER_JOB = 225, 330


async def calls(work: Callable[[], Awaitable[None]]) -> int:
    """Python functions, ours and of libraries, that were called in this thread; coroutines that go on included."""
    found = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event == "call" and str(frame.f_globals.get("__name__")).startswith(COUNTED)

    gc.disable()
    sys.setprofile(note)
    try:
        await work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


async def test_a_request_that_schedules() -> None:
    async with (
        ActorHost.open("memory:", origin="http://127.0.0.1:9", secrets=["whsec_" + "A" * 32]) as host,
        connection(host.asgi(tokens=[f"ops:admin:{TOKEN}"])) as (made, wire),
    ):

        async def schedule() -> None:
            for _ in range(COUNT):
                made.data_received(REQUEST)
                while made.tasks:
                    await asyncio.wait(made.tasks)

        await schedule()
        each = await calls(schedule) / COUNT
        assert wire.sent.count(b"HTTP/1.1 200 OK") == made.at_once == 2 * COUNT
    assert 100 < each < PER_REQUEST


async def test_a_job_that_a_worker_pulls() -> None:
    """The server, its scheduler, the client and the worker together."""
    left, all_done = 0, asyncio.Event()

    async def handle(args: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.set()

    async with host_and_source("socket") as found:

        async def work() -> None:
            nonlocal left
            left = COUNT
            all_done.clear()
            async with Worker(found.source, {"p": handle}, "q", concurrency=COUNT):
                await found.jobs.submit_many([Job("p", n, after=0, options={"queue": "q"}) for n in range(COUNT)])
                await all_done.wait()

        await work()
        each = await calls(work) / COUNT
    assert 200 < each < PER_JOB
