"""`Sharing`: who holds the store. Whoever gets the lock serves the others; when it ends, one of them takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Protocol
from weakref import WeakSet

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Call
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model.due_run import DueRun
from tocsin.actors.scheduler.model.health import HOLDER_ABSENT
from tocsin.actors.scheduler.model.records import HealthReason, Instance, InstancePage
from tocsin.actors.scheduler.queries.instances import Shown
from tocsin.actors.sharing import plain
from tocsin.actors.sharing.door import Door, DoorClosed, Neighbour
from tocsin.actors.sharing.follower import Follower
from tocsin.actors.sharing.frames import VERSION
from tocsin.actors.sharing.greeting import Hello, Welcome
from tocsin.actors.sharing.holder import Holder, Served
from tocsin.actors.sharing.link import Gone, Link
from tocsin.actors.sharing.remote_port import SharedPort
from tocsin.actors.sharing.watch import ClosedDoor, watch
from tocsin.errors import StoreLocked, TocsinError

log = logging.getLogger("tocsin.sharing")

PAUSE_S: Final = (0.02, 0.06)
"""Between two tries to take the store, or to reach who has it: drawn, so that processes do not try in step."""
PATIENCE_S: Final = 5.0
"""A start waits so long for a holder that lets it in."""
UNSHARED_S: Final = 0.2
"""A start looks again after so long whether the holder shares its store: it may just have taken it."""
FAILED_S: Final = 1.0
"""Between two tries to open a store that nobody has and that cannot be opened."""
BEHIND_S: Final = 1.0
"""A process that is configured differently lets those go first that are as the last holder was."""
ANSWERED_S: Final = 1.0
"""A holder that stops waits so long for calls whose answers its store has given already."""
WELCOME_S: Final = 5.0


class Home(Served, Protocol):
    """The host of this process."""

    @property
    def start_here(self) -> Callable[[], Awaitable[None]]:
        """Return what takes the store and serves it; it raises StoreLocked if another process has the store."""
        ...


class Joined:
    """A link to the holder, and the watch over it."""

    def __init__(self, link: Link, holder: Neighbour, watching: asyncio.Task[None]) -> None:
        self.link = link
        self.differs = False
        self._holder, self._watching = holder, watching

    def leave(self) -> None:
        """Watch no more."""
        self._watching.cancel()
        self._holder.forget()

    def drop(self) -> None:
        """Watch no more, and end the link."""
        self.leave()
        self.link.abort()


class SharedPasses:
    """Passes where the store is."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def keep(self, digest: str, holder: str) -> None:
        await self._follower.ask("host.keep_pass", "", [digest, holder])

    async def take(self, digest: str) -> str | None:
        known: str | None = await self._follower.ask("host.take_pass", "", [digest])
        return known


class Sharing:
    """The part that one process has in a store that several share."""

    def __init__(
        self,
        home: Home,
        door: Door,
        clock: Clock,
        random: Random,
        settings: Callable[[str], Mapping[str, str]],
        pid: Callable[[], int],
    ) -> None:
        """`settings(key)` gives digests of the configuration by name, `pid()` the number of this process."""
        self._home, self._door, self._clock, self._random = home, door, clock, random
        self._settings, self._pid = settings, pid
        self.follower = Follower(home, clock, random, self._start_soon)
        self.passes = SharedPasses(self.follower)
        self.holder: Holder | None = None
        """The other ends of followers' links, while this process holds the store."""
        self._ports: WeakSet[SharedPort] = WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._behind_until = 0.0
        self._told: set[str] = set()

    # ---- What the host asks ----------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Return whether this process is open and does not hold the store."""
        return self._keeping is not None and self.holder is None

    @property
    def ready(self) -> bool:
        """Return whether this process follows, and reaches the holder."""
        return self.follows and self.follower.link is not None

    def trouble(self) -> TocsinError | None:
        """Return the trouble of the store, as the holder said last."""
        link = self.follower.link
        said = None if link is None else link.vitals.trouble
        return None if said is None else said.error()

    def health(self) -> Sequence[HealthReason]:
        """Return what is wrong with the holder, as it said last; or that none is reached."""
        link = self.follower.link
        if link is not None:
            return link.vitals.health
        return [HealthReason(HOLDER_ABSENT, "no process that holds the store is reached", self._clock.now_ms())]

    async def instances(self, start: str, limit: int, shown: Shown) -> InstancePage:
        """List the schedulers of the store. Whether one is shown is asked here."""
        found: list[Instance] = []
        page = InstancePage((), truncated=True, cursor=start)
        while page.truncated:
            page = await self.follower.ask("host.instances", "", [page.cursor, limit])
            for one in page.instances:
                if not await shown(one.name):
                    continue
                if len(found) == limit:
                    return InstancePage(found, truncated=True, cursor=found[-1].name)
                found.append(one)
        return InstancePage(found, truncated=False)

    async def run_due(self, until: int, max_seconds: float | None) -> DueRun:
        """Have the holder do what is due."""
        done: DueRun = await self.follower.ask("host.run_due", "", [until, max_seconds])
        return done

    def call_or(self, here: Callable[[ActorId, Call], Awaitable[Any]]) -> Callable[[ActorId, Call], Awaitable[Any]]:
        """Return what runs a method of a user's own actor: `here` while this process holds the store."""

        async def call(actor: ActorId, event: Call) -> Any:
            if not self.follows:
                return await here(actor, event)
            args = plain.encode(list(event.args), f"the args of {actor.kind}.{event.method}")
            return plain.decode(await self.follower.ask("host.call", "", [actor.kind, actor.name, event.method, args]))

        return call

    def port(self, here: SchedulerPort) -> SchedulerPort:
        """Return a port for handles, which stands on `here` while this process holds the store, else on the holder."""
        port = SharedPort(here, self.follower)
        if self.follows:
            port.stand_there()
        self._ports.add(port)
        return port

    # ---- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the store, or reach who has it. StoreLocked if somebody has it and does not let this process in."""
        self._stopping, self._behind_until, self.holder = asyncio.Event(), 0.0, None
        self._told.clear()
        self.follower.start()
        joined = await self._elect(self._clock.monotonic() + PATIENCE_S)
        if joined is not None:
            self.follower.follow(joined.link)
        self._keeping = asyncio.get_running_loop().create_task(self._keep(joined))
        self._stand()

    async def stop_following(self, drain_s: float) -> None:
        """End the part of a follower; afterwards this process holds the store, or has nothing to do with it.

        Calls under way may end, for at most `drain_s`.
        """
        self.follower.stop_waiting()
        if self.follows:
            await self.follower.drain(drain_s)
        self._stopping.set()
        if self._keeping is not None:
            await asyncio.wait([self._keeping])  # it may be about to take over
        if self.holder is None:
            self._end("the host is stopped: enter it again")

    async def hand_over(self) -> None:
        """Let nobody in any more, and send followers on: this process lets go of the store."""
        if self.holder is not None:
            self.holder.leave()
            await self._door.close()

    async def end(self) -> None:
        """End all links: the store is free. Whoever followed takes it over."""
        if self.holder is not None:
            await self.holder.close(ANSWERED_S)
        self._end("the host is stopped: enter it again")

    async def die(self) -> None:
        """End as if this process was killed; for simulations."""
        self._stopping.set()
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self.holder is not None:
            self.holder.abort()
            await self._door.close()
        self._end("the host was killed")

    def _end(self, why: str) -> None:
        self._keeping = self.holder = None
        self.follower.close(why)
        for port in self._ports:
            port.stand_here()
        for task in self._tasks:
            task.cancel()

    def _stand(self) -> None:
        for port in self._ports:
            if self.holder is None:
                port.stand_there()
            else:
                port.stand_here()

    def _start_soon(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s", error)

    # ---- Election --------------------------------------------------------------------------------

    async def _keep(self, joined: Joined | None) -> None:
        """Follow one holder after the other until this process is it, or stops."""
        while joined is not None:
            stopping = asyncio.ensure_future(self._stopping.wait())
            ended = asyncio.ensure_future(joined.link.ended.wait())
            try:
                await asyncio.wait([stopping, ended], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                ended.cancel()
                joined.leave()
            if self._stopping.is_set():
                return
            if joined.differs:
                self._behind_until = self._clock.monotonic() + BEHIND_S
            joined = await self._elect(None)
            if joined is not None:
                self.follower.follow(joined.link)
            if self.holder is not None:
                log.warning("the process that held the store has gone: this one (%d) has taken it over", self._pid())
                self._stand()

    async def _elect(self, until: float | None) -> Joined | None:
        """Return the link to a holder; None if this process is it now, or stops. StoreLocked after that instant."""
        closed_door = ClosedDoor(self._door, self._clock)
        while not self._stopping.is_set():
            try:
                locked = await self._take()
                if locked is None:
                    return None
                try:
                    return await self._join()
                except DoorClosed as closed:
                    reason: TocsinError = StoreLocked(f"{locked.message} (and does not let this process in: {closed})")
                    reason.details = locked.details
                    await closed_door.look()
                except StoreLocked as refused:
                    reason = refused
                    if until is None:
                        self._tell(refused.message)
                    elif refused.details.get("shared") is False:
                        until = min(until, self._clock.monotonic() + UNSHARED_S)
                if until is not None and self._clock.monotonic() >= until:
                    raise reason
                await self._clock.sleep(self._random.uniform(*PAUSE_S))
            except Exception as error:  # whatever it is, callers wait for a holder: this process goes on trying
                if until is not None:
                    raise
                self._tell(f"the store cannot be taken over, again in {FAILED_S:g} s: {error!r}")
                await self._clock.sleep(FAILED_S)
        return None

    async def _take(self) -> StoreLocked | None:
        """Become the holder; else return why not."""
        if self._clock.monotonic() < self._behind_until:
            return StoreLocked("processes that are configured as the last holder was go first")
        token = f"{self._random.getrandbits(192):048x}"
        self._door.prepare(token)
        try:
            await self._home.start_here()
        except StoreLocked as error:
            return error
        self.holder = Holder(self._home, token, self._settings(token), self._pid())
        try:
            await self._door.open(self.holder.accept)
        except Exception as error:
            log.error("other processes of this store cannot be served by this one: %s", error)
        self.follower.be_home()
        return None

    async def _join(self) -> Joined:
        """Reach the holder. DoorClosed if there is none now; StoreLocked if it does not let this process in."""
        token = self._door.token()
        hello = Hello(VERSION, token, self._settings(token), self._pid())
        link, holder = await self._door.enter(lambda: Link(hello, self.follower.undo))
        joined = Joined(link, holder, self._start_soon(watch(link, holder, self._clock)))
        try:
            async with asyncio.timeout(WELCOME_S):
                welcome = await asyncio.shield(link.welcome)
        except BaseException as error:
            joined.drop()
            with suppress(Exception):
                link.welcome.exception()
            if isinstance(error, (Gone, TimeoutError)):
                raise DoorClosed("it does not answer") from error
            raise
        self._met(welcome)
        joined.differs = bool(welcome.differing)
        return joined

    def _met(self, welcome: Welcome) -> None:
        log.info("process %d holds the store, and serves this one (%d)", welcome.pid, self._pid())
        if welcome.differing:
            self._tell(
                f"this process ({self._pid()}) is not configured as process {welcome.pid}, which holds the store and "
                f"serves it: {', '.join(welcome.differing)}; callbacks are sent as that one says, and this one takes "
                "over only if no other does"
            )

    def _tell(self, what: str) -> None:
        """Log once what may be met again and again."""
        if what not in self._told:
            self._told.add(what)
            log.warning("%s", what)
