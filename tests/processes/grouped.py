"""The receiver of a group's members, and of what follows it, for a run whose host is killed: bare HTTP on streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Final

from tests.processes.chained import note

LOG: Final = "links.log"
MEMBER: Final = "group:member"
DONE: Final = "group:done"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each callback, some members with a 500 at their first attempt, and write it down before."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if ": " in line)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            status = 200
            if body["functionPath"] == DONE:
                note("done", job=headers["webhook-id"], parent=body["parent"])
            else:
                args = body["args"]
                status = 500 if args["fails"] and body["attempt"] == 1 else 200
                note("member", n=args["n"], ok=status == 200)
            writer.write(f"HTTP/1.1 {status} OK\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    asyncio.run(main())
