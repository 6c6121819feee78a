"""`Cluster`: the part that one host has in a store that several hosts share: it serves requests for every scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Protocol

from tocsin.actors.cluster.caller import ClusterCaller
from tocsin.actors.cluster.clerk import Clerk
from tocsin.actors.cluster.network import Network
from tocsin.actors.cluster.peer_door import PeerDoor
from tocsin.actors.cluster.ports import ClusterPort, RoutedPart, Routing, routed_part
from tocsin.actors.cluster.post import HANDLE_WAIT_S
from tocsin.actors.cluster.routes import PASSES
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Call
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.client.port import SchedulerPort, TransferPort
from tocsin.actors.scheduler.inflight.passes import Passes
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.transitions.settle import AttemptResult
from tocsin.actors.sharing import plain
from tocsin.actors.sharing.holder import Served
from tocsin.actors.sharing.remote_port import remote_part
from tocsin.errors import NotAnsweredYetError, StoreError, StoreUnavailable
from tocsin.storage.shared import SharedProvider

log = logging.getLogger("tocsin.cluster")

ANSWERED_S: Final = 1.0
"""A host that stops waits so long for calls of others whose answers are on their way."""


class Home(Served, Protocol):
    """The host of this process, as other hosts reach it."""


class ClusterPasses:
    """Passes of WebSockets: at the host that owns the slot of their digest, whichever host gives them out."""

    def __init__(self, provider: SharedProvider, here: Passes, caller: ClusterCaller) -> None:
        self._provider, self._here, self._caller = provider, here, caller

    async def keep(self, digest: str, holder: str) -> None:
        if self._provider.locate(f"{PASSES}/{digest}").here:
            return await self._here.keep(digest, holder)
        await self._caller.ask("host.keep_pass", "", [digest, holder])

    async def take(self, digest: str) -> str | None:
        if self._provider.locate(f"{PASSES}/{digest}").here:
            return await self._here.take(digest)
        known: str | None = await self._caller.ask("host.take_pass", "", [digest])
        return known


class Cluster:
    """Routes what is asked at this host to where it is done, and does what other hosts send.

    Use: `listen`, then start the store, then `begin`; at the end `leave`, then let go of the store's slots, then `end`.
    """

    def __init__(
        self,
        home: Home,
        provider: SharedProvider,
        network: Network,
        clock: Clock,
        random: Random,
        pid: int,
        *,
        passes: Passes,
        learn_clock: Callable[[str], Awaitable[None]],
        weight: int = 1,
    ) -> None:
        """`passes` are those of this process, `weight` its share of the slots; `learn_clock` reads the test clock of an
        instance of another host."""
        self._provider, self._network, self._weight = provider, network, weight
        self._tasks: set[asyncio.Task[Any]] = set()
        self.caller = ClusterCaller(home, provider, network, clock, random, self._start_soon)
        self.door = PeerDoor(home, provider, random, pid)
        self.passes: Passes = ClusterPasses(provider, passes, self.caller)
        self._clerk = Clerk(provider.mailbox, home, clock, self._start_soon)
        self._routing = Routing(provider, self.caller, clock, learn_clock)
        self.url: str | None = None
        """The place where other hosts reach this one, while it is open."""

    # ---- Life ------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Let other hosts in, and say where. To be called before the store is started."""
        self.door.leaving = False
        try:
            self.url = await self._network.listen(self.door.accept)
        except OSError as error:
            self.url = None
            log.error("other hosts cannot reach this one, so what they ask of it goes by mail: %s", error)
        self._provider.announce(self.url, self._weight)

    def begin(self) -> None:
        """Do mail, and make calls. To be called when the store is started."""
        self.caller.start()
        self._start_soon(self._clerk.run())

    async def leave(self) -> None:
        """Tell other hosts that this one goes: what waits here for something is sent on."""
        await self._network.close()
        self.door.leave()

    async def end(self, drain_s: float = ANSWERED_S) -> None:
        """Let calls under way end, for at most so long, then end all links. The store is still open meanwhile."""
        await self.caller.drain(drain_s)
        await self.door.close(ANSWERED_S)
        await self._close("the host is stopped: enter it again")

    async def die(self) -> None:
        """End as if this process was killed; for simulations."""
        self.door.abort()
        await self._network.close()
        await self._close("the host was killed")

    async def _close(self, why: str) -> None:
        self.caller.close(why)
        self.url = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_soon(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("what this host does for others failed: %s", error, exc_info=error)

    # ---- What the host asks ----------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """Answer all who wait at other hosts, through this one, for jobs or for the end of a job."""
        self.caller.stop_waiting()

    def port(self, here: SchedulerPort) -> SchedulerPort:
        """Return a port for handles and requests: each call is made where the scheduler is then."""
        return ClusterPort(self._routing, here)

    def transfers(self, here: TransferPort, instance: str, who: AskedBy) -> TransferPort:
        """Return what lets an instance come and go, where it is."""
        there = remote_part("transfer")(self.caller, instance, who)
        part: RoutedPart = routed_part("transfer")(self._routing, instance, here, there)
        return part  # type: ignore[return-value]  # it has every method of the part

    def call_or(self, here: Callable[[ActorId, Call], Awaitable[Any]]) -> Callable[[ActorId, Call], Awaitable[Any]]:
        """Return what runs a method of a user's own actor: `here` where this host owns it."""

        async def call(actor: ActorId, event: Call) -> Any:
            if self._provider.locate(str(actor)).here:
                try:
                    return await here(actor, event)
                except StoreError as error:
                    if not self.caller.is_elsewhere(error):
                        raise
            args = plain.encode(list(event.args), f"the args of {actor.kind}.{event.method}")
            return plain.decode(await self.caller.ask("host.call", "", [actor.kind, actor.name, event.method, args]))

        return call

    async def note_clock(self, instance: str) -> None:
        """Note where all hosts see it that an instance is about to get a test clock."""
        await self.caller.ask("host.note_clock", "", [instance])

    async def settle(self, instance: str, ends: Sequence[AttemptResult]) -> None:
        """Have the owner of a scheduler settle attempts that ended here."""
        try:
            await self.caller.ask("host.settle", "", [instance, ends])
        except NotAnsweredYetError as pending:
            # In the mail they are safe. But were their attempts forgotten here, and this host the owner again before
            # its own mail is done, their leases would seem to be of claims that were never sent.
            await self._until_answered(pending.details["id"])

    async def _until_answered(self, op: str) -> None:
        while await self._provider.mailbox.answer(op, HANDLE_WAIT_S) is None:
            if not self._provider.lease_good:
                raise StoreUnavailable("the store is not reached, so whether this was done is not known")

    async def give_back(self, instance: str, leases: Sequence[str]) -> None:
        """Have the owner of a scheduler requeue jobs whose worker went away before it had them."""
        with suppress(NotAnsweredYetError):
            await self.caller.ask("queues.give_back", instance, [[("", lease) for lease in leases]])
