"""Handlers for worker processes of tests: what they do is seen in files of the current folder."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from tocsin import Context, Handlers, Worker

handlers = Handlers()


@handlers.handler("sleep")
async def sleep(args: dict[str, Any]) -> None:
    Path(f"began-{args['n']}").touch()  # noqa: ASYNC240
    await asyncio.sleep(args["s"])


@handlers.handler("thread")
def thread(args: dict[str, Any], context: Context) -> str:
    """Says which process it is, and works on until there is a file of the name that it is given."""
    Path(f"attempt-{context.attempt}.new").write_text(str(os.getpid()))
    Path(f"attempt-{context.attempt}.new").rename(f"attempt-{context.attempt}")
    while not Path(args["until"]).exists():
        time.sleep(0.01)
    return f"by {os.getpid()}"


def factory(jobs: Any) -> Worker:
    return Worker(jobs, handlers, queues="mail", concurrency=2, drain=None)


def wrong_factory(jobs: Any) -> int:
    return 5


number = 5
