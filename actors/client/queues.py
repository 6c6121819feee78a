"""Work that is pulled from a server: claims, what its queues hold, what jobs came to; and the workers that pull."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final
from urllib.parse import quote

from tocsin.actors.client import answers
from tocsin.actors.client.server import ALWAYS, Server
from tocsin.actors.scheduler.client.queues import named_queues
from tocsin.actors.scheduler.model import records
from tocsin.dispatch.pulled import Claimed, Settlement, WorkerInfo, WorkerSnapshot
from tocsin.dispatch.worker.ending import described

log = logging.getLogger("tocsin.client")

RESULT_WAIT_MS: Final = 60_000
"""For how long one question for a result waits at the server; then it is asked again."""
_Nothing: Final[Any] = answers.Nothing  # nobody reads it
GIVE_BACK_S: Final = 5.0


class ServerQueues:
    """Serves workers of one scheduler of a server."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    async def claim(
        self,
        queue: str | Sequence[str],
        *,
        max: int,
        lease_ms: int,
        wait_ms: int,
        worker: WorkerInfo | None,
        exclude: Sequence[str],
    ) -> Sequence[Claimed]:
        """Lease due jobs. Cancelled, it hangs up, and the server gives the job to another worker."""
        said: dict[str, Any] = {"max": max, "leaseMs": lease_ms, "waitMs": wait_ms}
        if worker is not None:
            said["worker"] = worker
        if exclude:
            said["exclude"] = [exclude] if isinstance(exclude, str) else list(exclude)
        names = [queue] if isinstance(queue, str) else list(queue)
        named = ",".join(map(str, names))
        if not named or "/" in named:
            named_queues(queue, exclude)  # refuses it
        route = f"queues/{quote(named, safe='*,:') or '%20'}/claim"
        wait_s = wait_ms / 1000
        asked = asyncio.create_task(self._server.post(self._name, route, answers.ClaimedJobs, said, wait_s=wait_s))
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:
            await self._hung_up(asked)
            raise
        return asked.result().jobs

    async def _hung_up(self, asked: asyncio.Future[answers.ClaimedJobs]) -> None:
        """End a claim. Jobs that the server answered with in this instant are given back."""
        try:
            await asyncio.sleep(0)  # an answer that has come, and is not read yet, would be lost
        finally:
            asked.cancel()
        await asyncio.wait([asked])
        if asked.cancelled() or asked.exception() is not None:
            return
        await self.give_back([(one.id, one.lease) for one in asked.result().jobs])

    async def give_back(self, leases: Sequence[tuple[str, str]]) -> None:
        """Requeue, uncharged, what did not reach its worker."""
        for id, lease in leases:
            said = {"id": id, "lease": lease, "ok": False, "error": "not begun", "charge": False, "delayMs": 0}
            try:
                async with asyncio.timeout(GIVE_BACK_S):
                    await self._server.post(self._name, "complete", Settlement, said)
            except Exception as error:  # whatever it is, the lease runs out
                log.warning(
                    "job %s could not be given back, and is tried again when its lease ends: %s", id, described(error)
                )

    async def queues(self) -> Sequence[records.Queue]:
        """Return what each queue holds, and how many claims wait for it."""
        return (await self._server.ask("GET", self._name, "queues", answers.Queues, again=ALWAYS)).queues

    async def pending(self, prefix: str) -> records.Pending:
        """Tell whether any live job's function path or workflow starts with `prefix`."""
        query = {"prefix": prefix}
        return await self._server.ask("GET", self._name, "pending", records.Pending, query=query, again=ALWAYS)

    async def outcome(self, id: str, wait_s: float | None) -> records.Outcome:
        """Return how a job ended, or how it stands after so long. It is asked again as often as that takes."""
        loop = asyncio.get_running_loop()
        end = None if wait_s is None else loop.time() + wait_s
        while True:
            left_ms = RESULT_WAIT_MS if end is None else min(max(int((end - loop.time()) * 1000), 0), RESULT_WAIT_MS)
            found = await self._server.ask(
                "GET", self._name, "result", records.Outcome, query={"id": id, "waitMs": left_ms}, again=ALWAYS,
                wait_s=left_ms / 1000, until=end,
            )  # fmt: skip
            if found.ended or (end is not None and loop.time() >= end):
                return found
            if left_ms == 0:
                return found

    def announce(self, snapshot: WorkerSnapshot) -> Coroutine[Any, Any, None]:
        """Say how a worker is."""
        return self._server.post(self._name, "workers", _Nothing, snapshot)

    async def workers(self, *, cursor: str | None, limit: int) -> records.WorkerPage:
        """Return a page of the workers that the server has heard of within five minutes, by id."""
        query = {"cursor": cursor, "limit": limit}
        return await self._server.ask("GET", self._name, "workers", records.WorkerPage, query=query, again=ALWAYS)
