"""The receiver kit in a process of its own, with its dedup in a file: what its handlers have run stands in a log that
nobody else writes. Its own record, not the scheduler's, says what has run."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from tocsin import Received, Receiver, SQLiteDedup

LONGEST_S = 0.08


class Log:
    """One JSON object for each run, written whole before the run is answered."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def mail(self, args: Any, job: Received) -> None:
        await asyncio.sleep(LONGEST_S * (args["n"] % 5) / 5)  # so that kills come in between
        self._write(job, args["n"])

    async def report(self, args: Any, job: Received) -> None:
        assert job.schedule is not None
        self._write(job, job.schedule["slot"])

    def _write(self, job: Received, what: int) -> None:
        entry = {"instance": job.instance, "id": job.id, "webhook": job.webhook_id, "what": what}
        os.write(self._file, json.dumps(entry).encode() + b"\n")


def main(folder: Path, secret: str) -> None:
    log = Log(folder / "runs.log")
    receiver = Receiver([secret], dedup=SQLiteDedup(folder / "received.db"))
    receiver.register({"mail:welcome": log.mail, "report": log.report})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        print(listener.getsockname()[1], flush=True)
        server = uvicorn.Server(uvicorn.Config(receiver, log_level="warning", access_log=False))
        server.run([listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
