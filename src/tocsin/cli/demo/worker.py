"""The demo's worker: pulls the jobs of the demo's queue over HTTP, link after link of each chain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tocsin.actors.client.client import Client
from tocsin.cli.demo.plan import CHAIN_BUILD, CHAIN_MAIL, QUEUE
from tocsin.dispatch.worker.context import Context
from tocsin.dispatch.worker.worker import Worker


@dataclass(slots=True)
class Pulled:
    """Counts what the demo checks at the end."""

    done: list[str] = field(default_factory=list)
    """Ids, in the order in which they were done."""
    unlinked: int = 0
    """Jobs that did not get the result of their parent."""

    async def build(self, args: Any) -> dict[str, int]:
        await asyncio.sleep(args["takeMs"] / 1000)
        return {"pages": args["n"] + 1}

    async def mail(self, args: Any, context: Context) -> None:
        told = None if context.parent is None else context.parent.result
        self.unlinked += told != {"pages": args["n"] + 1}

    async def count(self, run: Any, context: Context) -> Any:
        """Count each job that a handler runs."""
        result = await run()
        self.done.append(context.job.id)
        return result

    def worker(self, url: str, token: str | None) -> Worker:
        worker = Worker(Client(url, token=token).scheduler(), {}, queues=QUEUE, concurrency=4, name="demo")
        worker.handlers.register("demo", {CHAIN_BUILD: self.build, CHAIN_MAIL: self.mail}, wrapper=self.count)
        return worker
