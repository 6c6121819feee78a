"""A receiver that verifies callbacks and answers as it is told: `PUT /answers` sets, by function path, status, body,
headers and how long it takes; `GET /came` tells how many came of each path, by status."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from typing import Any

import uvicorn

from tests.processes.server_process import SECRET
from tocsin.dispatch.signing import Signer


class Switched:
    """An ASGI app."""

    def __init__(self) -> None:
        self._signer = Signer([SECRET])
        self._answers: dict[str, dict[str, Any]] = {}
        self._came: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, told, headers = await self._answer(scope, body)
        await send({
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-length", str(len(told)).encode()), *headers],
        })  # fmt: skip
        await send({"type": "http.response.body", "body": told})

    async def _answer(self, scope: Any, body: bytes) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        if scope["path"] == "/answers":
            self._answers = json.loads(body)
            return 200, b"", []
        if scope["path"] == "/came":
            return 200, json.dumps(self._came).encode(), []
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        try:
            self._signer.verify(headers, body, now_s=time.time())
        except Exception:  # whatever it is, it is no callback of ours
            return 401, b"not signed", []
        job = json.loads(body)
        path = job.get("functionPath") or job["workflow"]
        answer = self._answers.get(path) or self._answers.get("*", {})
        await asyncio.sleep(answer.get("seconds", 0))
        status = answer.get("status", 200)
        self._came[f"{path} {status}"] += 1
        more = [(name.encode(), value.encode()) for name, value in answer.get("headers", {}).items()]
        return status, str(answer.get("body", "")).encode(), more


if __name__ == "__main__":
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(Switched(), log_level="warning", access_log=False)).run([listener])
