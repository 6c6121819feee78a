"""Write a store with a bit of everything: `python tests/storage/layouts/write_store.py jobs.db`, then `gzip -9 -n`.

Run it with the program whose layout the store shall have (PYTHONPATH to the `src` of that version): before a change of
`LAYOUT` with the program as it was, and at a release. It uses only what there is since layout 2.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tocsin import ActorHost, Job, Retry, Scheduler

STATUSES: Final = {"gone": 410, "fails": 500, "accepted": 202, "done": 200}
FAR: Final = datetime(2100, 1, 1, tzinfo=UTC)
SECRET: Final = "whsec_" + "c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"
AT_LAST: Final = {"dead": "dead", "retrying": "pending", "running": "running", "waiting": "waiting", "done": None}


class Receiver(BaseHTTPRequestHandler):
    """Answers as the path of the job says."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind = body["functionPath"].partition(":")[2]
        status = STATUSES[kind]
        answer = b'{"n": 1}' if status < 300 else b'{"error": {"code": "x", "message": "no such thing"}}'
        self.send_response(status)
        if kind == "accepted":
            self.send_header("tocsin-accepted", "1")
            self.send_header("tocsin-lease-ms", "3600000")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


async def write(jobs: Scheduler) -> None:
    await jobs.run_at(
        FAR, "work:done", {"n": 1, "sum": Decimal("1.5")}, id="pending", pool="stripe", max_concurrency=2,
        labels=["a", "b"], retry=Retry(max_retries=2), priority=3,
    )  # fmt: skip
    await jobs.run_at(FAR, "work:done", {"long": "x" * 100_000}, id="long")
    await jobs.run_after(0, "work:gone", {"n": 2}, id="dead", labels=["a"])
    await jobs.run_after(0, "work:fails", {"n": 3}, id="retrying", retry=Retry(max_retries=5, base_ms=3_600_000))
    await jobs.run_after(0, "work:accepted", {"n": 4}, id="running", pool="held")
    await jobs.run_after(0, "work:done", {"n": 5}, id="waiting", pool="held")
    await jobs.run_after(0, "work:done", {"n": 6}, id="done")
    await jobs.run_at(FAR, "work:done", id="cancelled")
    await jobs.cancel("cancelled")
    await jobs.set_pool("paused", max_concurrency=5, paused=True)
    await jobs.schedules.put(
        "daily", "work:done", {"n": 7}, cron="0 9 * * *", timezone="Europe/Berlin", pool="stripe"
    )  # fmt: skip
    await jobs.schedules.put("paused", "work:done", every="1h", paused=True)
    then = [Job(path="work:next", args={"n": 9}, options={"queue": "mail"})]
    await jobs.run_at(FAR, "work:pulled", {"n": 8}, id="pulled", queue="mail", keep_result="7d", then=then)
    await jobs.run_after(0, "work:done", id="kept", keep_result="7d")


async def settled(jobs: Scheduler) -> None:
    """Return when each job is where it is to be in the store."""
    for _ in range(200):
        states = {id: record and record.state for id in AT_LAST for record in [await jobs.get(id)]}
        retrying = await jobs.get("retrying")
        if states == AT_LAST and retrying is not None and retrying.attempts == 1:
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"jobs did not come where they should: {states}")


async def main(path: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    async with ActorHost.open(f"sqlite:///{path}", origin=origin, secrets=[SECRET]) as host:
        await write(host.scheduler("default"))
        await settled(host.scheduler("default"))
    server.shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
