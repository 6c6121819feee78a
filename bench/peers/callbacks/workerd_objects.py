"""A durable object with an alarm on workerd, Cloudflare's runtime: 64 fetches at once, where the service allows six.

The runtime is the scheduler: it takes jobs over HTTP and calls back, so a role starts it and talks to it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.peers.callbacks.roles import LANES, Jobs, main
from bench.peers.services import free_port
from bench.wire import Wires, asked, ok, post

START_S = 20.0
HERE = Path(__file__).parent
PROGRAMS = (
    "lib/node_modules/workerd/node_modules/@cloudflare/workerd-*/bin/workerd",
    ("lib/node_modules/@cloudflare/workerd-*/bin/workerd"),
)
CONFIG = """
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .scheduler),
    (name = "disk", disk = (path = "{folder}", writable = true)),
    (name = "internet", network = (allow = ["local"])),
  ],
  sockets = [ (name = "http", address = "127.0.0.1:{port}", http = (), service = "main") ],
);
const scheduler :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "workerd_object.js") ],
  compatibilityDate = "2025-06-01",
  durableObjectNamespaces = [ (className = "Scheduler", uniqueKey = "bench", enableSql = true) ],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [
    (name = "SCHEDULER", durableObjectNamespace = "Scheduler"),
    (name = "LANES", text = "{lanes}"),
    (name = "RECEIVER", text = "{receiver}"),
  ],
  globalOutbound = "internet",
);
"""


def program() -> str:
    """The runtime that npm has put into this interpreter's environment; says so and ends if there is none."""
    found = [one for names in PROGRAMS for one in Path(sys.prefix).glob(names)]
    if not found:
        print(json.dumps({"missing": "there is no workerd"}))
        sys.exit(0)
    return str(found[0])


class DurableObject:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        self._program, self._port = program(), free_port()
        self._url = f"http://127.0.0.1:{self._port}"
        self._config = folder / "workerd.capnp"
        (folder / "objects").mkdir(exist_ok=True)
        (folder / "workerd_object.js").write_bytes((HERE / "workerd_object.js").read_bytes())
        self._config.write_text(
            CONFIG.format(folder=folder / "objects", port=self._port, lanes=LANES, receiver=f"{receiver}/")
        )
        self._wires = Wires(self._url)
        self._process: subprocess.Popen[bytes] | None = None

    async def install(self) -> None: ...

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([self._program, "serve", str(self._config)], cwd=self._config.parent)

    async def open(self) -> None:
        self._process = process = self._started()
        deadline = time.monotonic() + START_S
        while True:
            try:
                await asked(self._url, "/")
                return
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        self._wires.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def one(self, job: str, due_ms: int) -> None:
        await self.many([(job, due_ms)])

    async def many(self, jobs: Jobs) -> None:
        ok(await self._wires.ask(post("/", json.dumps(jobs).encode())))

    async def work(self) -> None:
        await self.open()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(DurableObject)
