"""A cluster of processes under load, with the ledger of what was asked and of what came: for every campaign."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.postgres import Postgres
from tests.processes.cluster_hosts import HostProcess, Place, cluster, idle
from tests.processes.cluster_ledger import LEASE_MARGIN_S, Disruption, Verdict, deliveries_in
from tests.processes.cluster_load import Load
from tests.processes.round_robin import round_robin
from tests.processes.server_process import python_module

TIMEOUT_MS: Final = 12_000
"""The deadline of a callback, longer than any host is stopped: no attempt ends because its host was away."""
SETTLE_S: Final = LEASE_MARGIN_S + TIMEOUT_MS / 1000 + 3
"""What would come twice has come by then, after the last callback."""
END_S: Final = 120.0
"""Within this time all is delivered and settled, once the load has ended."""


@dataclass
class Running:
    """Hosts, their users, and what happened to them."""

    hosts: Sequence[HostProcess]
    load: Load
    log: Path
    disruptions: list[Disruption] = field(default_factory=list)
    doubted: frozenset[int] = frozenset()
    """Jobs of which nothing is promised: their commits may be lost."""

    def disrupted(self, kind: str, host: int = -1) -> None:
        """Note that something begins to go wrong."""
        at = time.time()
        self.disruptions.append(Disruption(at, kind, host, at))

    async def end(self, settle_s: float = SETTLE_S) -> None:
        """Wait until every accepted job was delivered and nothing waits; then as long as a second delivery could take.
        What has not come by then is for the verdict."""
        await asyncio.to_thread(self._end, settle_s)

    def _end(self, settle_s: float) -> None:
        accepted = {request.n for request in self.load.requests if request.status is not None}
        for host in self.hosts:
            host.wait_until_ready()
        came = eventually(lambda: accepted <= {one.n for one in deliveries_in(self.log)[0]}, END_S)
        if came and eventually(lambda: idle(self.hosts, self.load.actors), END_S):
            time.sleep(settle_s)

    def verdict(self, bounds: dict[str, float]) -> Verdict:
        came, false = deliveries_in(self.log)
        deliveries = [one for one in came if one.n not in self.doubted]
        return Verdict(self.load.requests, deliveries, self.disruptions, bounds, false)


@asynccontextmanager
async def running(
    folder: Path,
    store: str,
    *,
    actors: int,
    seed: int = 1,
    places: Sequence[Place] = (Place(),) * 3,
    receiver: str = "127.0.0.1",
) -> AsyncIterator[Running]:
    """Hosts of one store behind a balancer, a receiver at this address, and users who have not begun."""
    log = folder / "receiver.log"
    async with AsyncExitStack() as stack:
        words = receiver, "0", str(log)
        _, came_at = stack.enter_context(python_module("tests.processes.cluster_receiver", *words))
        # On a thread: what the hosts wait for may be a standby whose way leads through this loop.
        hosts = await asyncio.to_thread(
            stack.enter_context, cluster(folder, store, f"http://{receiver}:{came_at}", places)
        )
        port = await stack.enter_async_context(round_robin([(host.address, host.port) for host in hosts]))
        names = [f"actor-{number}" for number in range(actors)]
        yield Running(hosts, Load(lambda: port, names, Random(seed), TIMEOUT_MS), log)


def store_of(server: Postgres, ttl_s: float | None = None) -> str:
    """The URL of a new store, whose owner is an ordinary role."""
    url = server.url(server.database("tocsin"), user="tocsin")
    return url if ttl_s is None else f"{url}?ttl={ttl_s:g}"


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether this is true in that time; hosts that do not answer are asked again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError):
            if condition():
                return True
        time.sleep(0.3)
    return False
