"""A bare HTTP/1.1 receiver in its own process: answers 200 and notes what arrived when.

`GET /stats` answers JSON: count, unique ids, seconds from first to last, lateness percentiles; `?prefix` looks at
the ids that start so. `GET /reset` forgets.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from typing import cast

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nok"
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
JOB = re.compile(rb'"id":"([^"]+)".*"scheduledFor":(\d+)', re.DOTALL)


class Tally:
    """What has arrived since the last reset."""

    def __init__(self) -> None:
        self.ids: Counter[bytes] = Counter()
        self.late_ms: list[tuple[bytes, float]] = []
        self.first = self.last = 0.0

    def note(self, body: bytes) -> None:
        now = time.time()
        self.first = self.first or now
        self.last = now
        if (found := JOB.search(body)) is not None:
            self.ids[found[1]] += 1
            self.late_ms.append((found[1], now * 1000 - int(found[2])))

    def stats(self, prefix: bytes) -> dict[str, float]:
        late = sorted(ms for job_id, ms in self.late_ms if job_id.startswith(prefix))
        counts = [count for job_id, count in self.ids.items() if job_id.startswith(prefix)]
        return {
            "count": sum(counts),
            "unique": len(counts),
            "seconds": self.last - self.first,
            "late_p50_ms": percentile(late, 0.50),
            "late_p99_ms": percentile(late, 0.99),
            "late_max_ms": late[-1] if late else 0.0,
        }


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


class Receiver(asyncio.Protocol):
    """One connection; requests may arrive in pieces and one behind the other."""

    tally = Tally()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class, only by shape
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = int(found[1]) if (found := LENGTH.search(head)) else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._transport.write(self._answer(head, body))

    def _answer(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"POST"):
            Receiver.tally.note(body)
            return ANSWER
        if head.startswith(b"GET /reset"):
            Receiver.tally = Tally()
        prefix = head.split(b" ", 2)[1].partition(b"?")[2]
        content = json.dumps(Receiver.tally.stats(prefix)).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(int(sys.argv[1])))
    else:
        uvloop.run(main(int(sys.argv[1])))
