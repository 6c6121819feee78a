"""A bare HTTP/1.1 receiver in its own process: answers 200 and notes what arrived when.

`GET /stats` answers JSON: count, unique ids, seconds from first to last, how many were early, lateness percentiles;
`?prefix` looks at the ids that start so. `GET /count` answers how many requests came, and looks at none of them, so
that it can be asked often. `GET /late?prefix` answers the lateness of each, in order of size; `GET /after?seconds` when
the first request after that instant came. `GET /reset` forgets.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from typing import Any, cast

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nok"
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
JOB = re.compile(rb'"id":"([^"]+)".*"scheduledFor":(\d+)', re.DOTALL)


class Tally:
    """What has arrived since the last reset. Bodies are read when somebody asks, not while they arrive."""

    def __init__(self) -> None:
        self.arrived: list[tuple[float, bytes]] = []
        self.ids: Counter[bytes] = Counter()
        self.late_ms: list[tuple[bytes, float]] = []
        self._read = 0

    def note(self, body: bytes) -> None:
        self.arrived.append((time.time(), body))

    def read(self) -> None:
        """Find the job in each body that was not read yet."""
        for now, body in self.arrived[self._read :]:
            if (found := JOB.search(body)) is not None:
                self.ids[found[1]] += 1
                self.late_ms.append((found[1], now * 1000 - int(found[2])))
        self._read = len(self.arrived)

    def late(self, prefix: bytes) -> list[float]:
        self.read()
        return sorted(ms for job_id, ms in self.late_ms if job_id.startswith(prefix))

    def stats(self, prefix: bytes) -> dict[str, float]:
        late = self.late(prefix)
        counts = [count for job_id, count in self.ids.items() if job_id.startswith(prefix)]
        first, last = (self.arrived[0][0], self.arrived[-1][0]) if self.arrived else (0.0, 0.0)
        return {
            "count": sum(counts),
            "unique": len(counts),
            "first": first,
            "last": last,
            "seconds": last - first,
            "early": sum(ms < -1 for ms in late),
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
            found = LENGTH.search(self._buffer, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._buffer) < whole:
                return
            request, self._buffer = self._buffer[:whole], self._buffer[whole:]
            if request.startswith(b"POST"):
                Receiver.tally.note(request[end + 4 :])
                self._transport.write(ANSWER)
            else:
                self._transport.write(self._told(request))

    def _told(self, request: bytes) -> bytes:
        path, _, query = request.split(b" ", 2)[1].partition(b"?")
        tally, content = Receiver.tally, cast(Any, None)
        if path == b"/reset":
            Receiver.tally = tally = Tally()
        if path == b"/count":
            content = {"count": len(tally.arrived)}
        elif path == b"/after":
            content = {"at": next((now for now, _ in tally.arrived if now > float(query)), None)}
        elif path == b"/late":
            content = tally.late(query)
        else:
            content = tally.stats(query)
        body = json.dumps(content).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


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
