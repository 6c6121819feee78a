"""A receiver in its own process that may be killed at any moment: what it saw stands in a log that outlives it.

By the number in the args it answers at once, slowly, broken the first time, or accepts and completes later.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

KINDS = ("plain", "slow", "broken", "accepted")


class Log:
    """One JSON object a line, written whole before anything else happens."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **entry: Any) -> None:
        os.write(self._file, json.dumps({"at": time.time(), **entry}).encode() + b"\n")


class Receiver:
    """Bare HTTP/1.1 on streams."""

    def __init__(self, log: Log, host_url: str) -> None:
        self._log, self._host_url = log, host_url
        self._working: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                status, more = await self._work(headers, json.loads(body))
                writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n{more}\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _work(self, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, str]:
        entry = {
            "job": headers["webhook-id"],
            "lease": body["lease"],
            "n": body["args"]["n"],
            "pool": body.get("pool"),
            "deadline": int(headers["tocsin-deadline"]) / 1000,
        }
        self._log.write(what="begin", **entry)
        kind = KINDS[body["args"]["n"] % len(KINDS)]
        if kind == "accepted":
            task = asyncio.get_running_loop().create_task(self._complete(body, entry))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
            return 202, "tocsin-accepted: 1\r\ntocsin-lease-ms: 3000\r\n"
        await asyncio.sleep(0.3 if kind == "slow" else 0.005)
        broken = kind == "broken" and body["attempt"] == 1
        self._log.write(what="broken" if broken else "done", **entry)
        return (500 if broken else 200), ""

    async def _complete(self, body: dict[str, Any], entry: dict[str, Any]) -> None:
        await asyncio.sleep(0.2)
        self._log.write(what="telling", **entry)
        told = await asyncio.to_thread(self._tell, {"id": body["id"], "lease": body["lease"]})
        self._log.write(what="done" if told else "stale", **entry)

    def _tell(self, completion: dict[str, str]) -> bool:
        """Until the host hears it; False if the lease is over."""
        request = urllib.request.Request(
            f"{self._host_url}/complete",
            data=json.dumps(completion).encode(),
            headers={"content-type": "application/json"},
        )
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(request, timeout=2).close()
            except urllib.error.HTTPError as error:
                if error.code == 409:
                    return False
            except OSError:
                time.sleep(0.05)  # the host is away: it was killed, or is starting
            else:
                return True
        return False


async def main(port: int, log: str, host_url: str) -> None:
    receiver = Receiver(Log(log), host_url)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", port)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
