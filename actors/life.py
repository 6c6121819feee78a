"""The life of a host: how it begins, and in which order it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tocsin.actors.heartbeat import Heartbeat
from tocsin.actors.runtime.host import Host
from tocsin.actors.scheduler.actor.service import SchedulerService
from tocsin.actors.sharing.sharing import Sharing
from tocsin.errors import StoreError, StoreLocked
from tocsin.storage.shared import HostFacts, shared_of

if TYPE_CHECKING:
    from tocsin.actors.cluster.cluster import Cluster

log = logging.getLogger("tocsin.actors")

LEAST_DRAIN_S: Final = 1.0


class Life:
    """Starts and stops the parts of one host. `sharing`, `cluster` and `heartbeat` are there if the host has them."""

    def __init__(self, runtime: Host, service: SchedulerService, drain_s: float) -> None:
        self._runtime, self._service, self._drain_s = runtime, service, drain_s
        self.sharing: Sharing | None = None
        self.cluster: Cluster | None = None
        self.heartbeat: Heartbeat | None = None
        self._stopped: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[bool] | None = None

    # ---- Start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the host, or reach the process that has its store."""
        self._stopped = self._leaving = None
        if self.sharing is not None:
            await self.sharing.start()
        elif self.cluster is not None:
            await self._start_in_cluster(self.cluster)
        else:
            await self.start_here()

    async def start_here(self) -> None:
        """Open the store, and serve its schedulers."""
        self._service.start()
        await self._runtime.start()
        await self._service.stored_clocks.read_all()
        if self.heartbeat is not None:
            self.heartbeat.start()

    async def _start_in_cluster(self, cluster: Cluster) -> None:
        await cluster.listen()
        try:
            await self.start_here()
        except BaseException:
            await cluster.die()
            raise
        cluster.begin()

    # ---- Stop ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop gracefully. Cancelling the caller does not interrupt this."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopped)

    async def abandon(self) -> None:
        """End as if the process was killed."""
        self._stopped = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._stopped)

    async def _end(self) -> None:
        if self.sharing is not None:
            await self.sharing.die()
        if self.cluster is not None:
            await self.cluster.die()
        if self.heartbeat is not None:
            await self.heartbeat.stop()
        await self._runtime.abandon()
        self._service.stop_waiting()

    def stop_waiting(self) -> None:
        """Answer all who wait for jobs of queues or for the end of a job, and let nobody wait any more. Other hosts of
        a shared store have its schedulers from now on."""
        self._service.stop_waiting()
        if self.sharing is not None:
            self.sharing.follower.stop_waiting()
        if self.cluster is not None:
            self.cluster.stop_waiting()
            if self._runtime.is_open and self._leaving is None:
                leave = self._leave_to_others(self.cluster, self._runtime.clock.monotonic())
                self._leaving = asyncio.get_running_loop().create_task(leave)

    async def _stop(self) -> None:
        sharing, began = self.sharing, self._runtime.clock.monotonic()
        if sharing is not None:
            await sharing.stop_following(self._drain_s)
            if sharing.holder is None:
                return
            if not sharing.holder.links:
                self._service.stop_waiting()
            await self._service.rest(self._drain_s)  # callers are served meanwhile, also those that come only now
            await sharing.hand_over()
        elif self.cluster is not None and self._runtime.is_open:
            await self._leave_cluster(self.cluster, began)
        if self.heartbeat is not None:
            await self.heartbeat.stop()
        try:
            await self._service.drain(self._drain_s)
        finally:
            try:
                if self.cluster is not None:
                    await self.cluster.end()
                await self._runtime.stop(self._left(began))
            finally:
                if sharing is not None:
                    await sharing.end()
                await self._service.aclose()

    async def _hand_over(self) -> None:
        if (shared := shared_of(self._runtime.provider)) is not None:
            await shared.hand_over()

    def _left(self, began: float) -> float:
        return max(self._drain_s - (self._runtime.clock.monotonic() - began), LEAST_DRAIN_S)

    async def _leave_cluster(self, cluster: Cluster, began: float) -> None:
        """Leave all slots to others at once; what began here ends here, and is sent on.

        The last host of a store has nobody to leave them to: its callbacks end first, and are settled by itself.
        """
        left = self._leaving is not None and await self._leaving
        if not left and not await self._leave_to_others(cluster, began):
            await self._service.rest(self._drain_s)
            await self._leave(cluster, began)
        await self._service.rest(self._left(began))

    async def _leave_to_others(self, cluster: Cluster, began: float) -> bool:
        """Leave all slots if there are other hosts; return whether there are."""
        shared = shared_of(self._runtime.provider)
        others = shared is not None and shared.has_others
        if others:
            await self._leave(cluster, began)
        return others

    async def _leave(self, cluster: Cluster, began: float) -> None:
        await cluster.leave()
        self._service.stop_waiting()
        try:
            async with asyncio.timeout(self._left(began)):
                await self._hand_over()
        except (StoreError, TimeoutError) as error:
            log.warning("not all of this host was handed over: others take it when its lease ends: %r", error)

    # ---- Others ----------------------------------------------------------------------------------

    async def others(self) -> list[HostFacts]:
        """Return the other hosts of a shared store that are up. StoreUnavailable."""
        shared = shared_of(self._runtime.provider)
        if shared is None:
            return []
        from tocsin.storage.ownership.engine import HostState  # known to shared stores only

        facts = await shared.facts()
        return [one for one in facts.hosts if one.host != shared.owner and one.state == HostState.UP]

    async def check_may_run(self) -> None:
        """StoreLocked if hosts that dispatch by themselves have the store: nothing of it is left to a run."""
        if busy := [one.name for one in await self.others() if one.weight]:
            names = ", ".join(sorted(busy)[:3])
            raise StoreLocked(f"{len(busy)} other hosts ({names}) have this store, and do what is due by themselves")
