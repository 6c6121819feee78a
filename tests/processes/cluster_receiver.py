"""A receiver in its own process that verifies each callback and writes what came to a log, before it answers 200."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from tests.processes.server_process import SECRET
from tocsin.dispatch.signing import Signer


class Receiver:
    """Bare HTTP/1.1 on streams."""

    def __init__(self, log: str) -> None:
        self._signer = Signer([SECRET])
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = writer.get_extra_info("peername")[0]
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")[1:]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines) if value}
                body = await reader.readexactly(int(headers["content-length"]))
                writer.write(f"HTTP/1.1 {self._take(headers, body, source)} x\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _take(self, headers: dict[str, str], body: bytes, source: str) -> int:
        at = time.time()
        try:
            self._signer.verify(headers, body, now_s=at)
        except Exception as error:  # whatever it is, it is no callback of ours, and the log says so
            os.write(self._log, json.dumps({"at": at, "false": repr(error)}).encode() + b"\n")
            return 401
        said = json.loads(body)
        entry = {
            "at": at,
            "source": source,
            "job": headers["webhook-id"],
            "n": said["args"]["n"],
            "actor": said["instanceName"],
            "attempt": said["attempt"],
            "epoch": int(said["lease"].partition(".")[0]),
            "deadline": int(headers["tocsin-deadline"]) / 1000,
        }
        os.write(self._log, json.dumps(entry).encode() + b"\n")
        return 200


async def main(address: str, port: int, log: str) -> None:
    receiver = Receiver(log)
    server = await asyncio.start_server(receiver.serve, address, port, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
