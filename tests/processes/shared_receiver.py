"""A receiver that verifies callbacks and notes when each came; `GET /came` tells."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import uvicorn

from tests.processes.server_process import SECRET
from tocsin.dispatch.signing import Signer


class Noting:
    """An ASGI app."""

    def __init__(self) -> None:
        self._signer = Signer([SECRET])
        self._came: list[tuple[float, str, int]] = []
        self._false = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = b""
        if scope["path"] == "/came":
            answer = json.dumps({"came": self._came, "false": self._false}).encode()
        else:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self._note(headers, body)
        await send({"type": "http.response.start", "status": 200, "headers": [
            (b"content-length", str(len(answer)).encode())
        ]})  # fmt: skip
        await send({"type": "http.response.body", "body": answer})

    def _note(self, headers: dict[str, str], body: bytes) -> None:
        try:
            webhook_id = self._signer.verify(headers, body, now_s=time.time())
        except Exception:  # whatever it is, it is no callback of ours
            self._false += 1
            return
        self._came.append((time.time(), webhook_id, int(headers["tocsin-attempt"])))


if __name__ == "__main__":
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(Noting(), log_level="warning", access_log=False)).run([listener])
