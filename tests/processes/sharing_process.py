"""One process of several on a store: does what it is told on stdin, a line each, and answers on stdout in JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from tocsin import ActorHost, TocsinError

ORIGIN = "http://127.0.0.1:9"


async def obey(host: ActorHost, words: list[str]) -> Any:
    t = host.scheduler()
    match words:
        case ["schedule", job_id]:
            return await t.run_after("1h", "a:b", id=job_id)
        case ["minted", number]:
            return [await t.run_after("1h", "a:b") for _ in range(int(number))]
        case ["ids"]:
            return sorted([record.id async for record in t.list_all()])
        case ["set_pool", size]:
            return (await t.set_pool("p", max_concurrency=int(size))).max_concurrency
        case ["claim", wait]:
            return [one.id for one in await t.claim("q", wait=float(wait))]
        case ["push"]:
            return await t.run_after(0, "q:w", queue="q")
        case ["block", seconds]:
            time.sleep(float(seconds))  # noqa: ASYNC251  # what is wanted: a loop that does nothing else
            return "done"
        case ["ready"]:
            return host.ready
    raise ValueError(words)


async def main(store: str) -> None:
    loop = asyncio.get_running_loop()
    async with ActorHost.open(f"sqlite:///{store}", origin=ORIGIN, insecure=True) as host:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            began = loop.time()
            try:
                said: dict[str, Any] = {"said": await obey(host, line.split())}
            except TocsinError as error:
                said = {"error": type(error).__name__, "details": error.details, "message": error.message}
            print(json.dumps({**said, "seconds": loop.time() - began}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
