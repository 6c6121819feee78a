"""A receiver in its own process that takes only what the library of Standard Webhooks verifies with one of the secrets
in a file. The file is read for each callback, as it stands then; what came is written to a log."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError


class Receiver:
    """Bare HTTP/1.1 on streams: 204 for what is genuine, 401 for what is not."""

    def __init__(self, secrets: Path, log: Path) -> None:
        self._secrets = secrets
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")[1:]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines) if value}
                body = await reader.readexactly(int(headers["content-length"]))
                genuine = self._take(headers, body)
                writer.write(f"HTTP/1.1 {204 if genuine else 401} x\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _take(self, headers: dict[str, str], body: bytes) -> bool:
        secrets = self._secrets.read_text().split()
        genuine = any(_verifies(secret, headers, body) for secret in secrets)
        entry = {
            "id": json.loads(body)["id"],
            "attempt": int(headers["tocsin-attempt"]),
            "genuine": genuine,
            "signatures": headers["webhook-signature"].count("v1,"),
            "known": len(secrets),
        }
        os.write(self._log, json.dumps(entry).encode() + b"\n")
        return genuine


def _verifies(secret: str, headers: dict[str, str], body: bytes) -> bool:
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


async def main(secrets: str, log: str) -> None:
    receiver = Receiver(Path(secrets), Path(log))
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
