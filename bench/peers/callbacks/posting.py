"""The job itself, the same for all peers: a POST of 200 bytes on a connection that is kept, as cheaply as Python can.

What a peer's figures show is the peer: its handler has the bare client, where tocsin has its own and a signature.
"""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

from bench.wire import LENGTH, Wires, ok, post

SIZE = 200


def body(job: str, due_ms: int) -> bytes:
    """What the receiver tells jobs and their lateness by, and as much more as makes it 200 bytes."""
    said = f'{{"id":"{job}","scheduledFor":{due_ms},"args":"'
    return f'{said}{"x" * (SIZE - len(said) - 2)}"}}'.encode()


class Poster:
    """For handlers in an event loop."""

    def __init__(self) -> None:
        self._wires: dict[str, Wires] = {}

    async def post(self, receiver: str, job: str, due_ms: int) -> None:
        if receiver not in self._wires:
            self._wires[receiver] = Wires(receiver)
        ok(await self._wires[receiver].ask(post("/", body(job, due_ms))))


class ThreadPoster:
    """For handlers on threads: a connection each."""

    def __init__(self) -> None:
        self._own = threading.local()

    def post(self, receiver: str, job: str, due_ms: int) -> None:
        wire: socket.socket | None = getattr(self._own, "wire", None)
        if wire is None:
            at = urlsplit(receiver)
            wire = self._own.wire = socket.create_connection((at.hostname or "", at.port or 80))
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(post("/", body(job, due_ms)))
        answer = b""
        while not self._whole(answer):
            if not (more := wire.recv(4096)):
                self.close()
                raise ConnectionResetError("the receiver closed before its answer")
            answer += more
        ok((int(answer[9:12]), answer))

    def close(self) -> None:
        """This thread's connection."""
        if hasattr(self._own, "wire"):
            self._own.wire.close()
            del self._own.wire

    @staticmethod
    def _whole(answer: bytes) -> bool:
        end = answer.find(b"\r\n\r\n")
        length = LENGTH.search(answer, 0, end) if end >= 0 else None
        return length is not None and len(answer) >= end + 4 + int(length[1])
