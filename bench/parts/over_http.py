"""Jobs a second that a server accepts from 32 keep-alive clients, one a request and 500 a request."""

from __future__ import annotations

import json
from typing import Any

from bench.cpu import spent
from bench.figures import Row
from bench.lease import FAR_MS, PAYLOAD, now_ms
from bench.served import TOKEN, Served, served
from bench.setting import Part, Setting
from bench.wire import Answer, ok, post, posted

CLIENTS, BATCH = 32, 500
ROWS = (
    Row("http/one", "over HTTP: 32 clients, one job a request", least=2_500, limits=("bare/32", "commit/32")),
    Row("http/batch", "over HTTP: 4 clients, 500 jobs a request", least=20_000, limits=("commit/1000",)),
)


def job(number: int) -> dict[str, Any]:
    return {"functionPath": "bench:far", "args": PAYLOAD, "scheduledFor": now_ms() + FAR_MS + number}


def all_accepted(answer: Answer) -> None:
    ok(answer)
    results = json.loads(answer[1])["results"]
    if refused := [one for one in results if "id" not in one]:
        raise RuntimeError(f"{len(refused)} of {len(results)} were refused: {refused[0]}")


async def measure(bench: Setting) -> None:
    """CPU is the server's."""
    folder = bench.folder / f"http{bench.store().stem}"
    folder.mkdir()
    with served(folder) as server:
        count = bench.count(5_000)
        ones = [post("/schedule", json.dumps(job(n)).encode(), TOKEN) for n in range(count)]
        await posted(server.url, ones[: CLIENTS * 2], CLIENTS, ok)  # a server that has just begun imports things
        await _timed(bench, server, "http/one", ones[CLIENTS * 2 :] or ones, CLIENTS, 1)
        batches = [{"jobs": [job(n) for n in range(BATCH)]} for _ in range(max(bench.count(40, 4), 4))]
        bodies = [post("/schedule/batch", json.dumps(batch).encode(), TOKEN) for batch in batches]
        await _timed(bench, server, "http/batch", bodies, 4, BATCH)


async def _timed(bench: Setting, server: Served, name: str, requests: list[bytes], lanes: int, each: int) -> None:
    count = len(requests) * each
    with spent(server.pid) as cost:
        await posted(server.url, requests, lanes, ok if each == 1 else all_accepted)
    bench.book.note(name, count / cost.seconds, cost.per(count))


PART = Part("http", "Over HTTP", ROWS, measure)
