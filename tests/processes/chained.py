"""The work of chains, for processes that outlive their host: `tocsin worker` runs `handlers`; as a program it is the
receiver of those links that are called back. Each run of a link stands in one log, whoever ran it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, Final

from tocsin import Context, Handlers

LOG: Final = "links.log"
PATH: Final = "chained:link"
handlers = Handlers()


def note(what: str, **entry: Any) -> None:
    """One write a line, so lines of several processes stand in the order in which things happened."""
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps({"what": what, **entry}).encode() + b"\n")
    os.close(file)


@handlers.handler(PATH)
async def link(args: dict[str, int], context: Context) -> dict[str, int]:
    """What it returns reaches the next link."""
    before = None if context.parent is None else context.parent.result
    note("begun", by=f"worker {os.getpid()}", job=context.webhook_id, lease=context.lease, before=before, **args)
    await asyncio.sleep(0)
    note("done", job=context.webhook_id, **args)
    return args


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bare HTTP/1.1 on streams."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if ": " in line)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            args, job = body["args"], headers["webhook-id"]
            before = body.get("parent", {}).get("result")
            note("begun", by="receiver", job=job, lease=body["lease"], before=before, **args)
            note("done", job=job, **args)
            answer = json.dumps(args).encode()
            more = f"content-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n" + more.encode() + answer)
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
