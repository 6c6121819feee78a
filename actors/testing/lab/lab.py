"""`lab`: a user's app, its hosts and workers in virtual time."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.testing.lab import inventory
from tocsin.actors.testing.lab.app_life import AppLife, TaskFactory, current_life, is_asgi, made
from tocsin.actors.testing.lab.clients import Clients
from tocsin.actors.testing.lab.deliveries import Deliveries, says_ok
from tocsin.actors.testing.lab.hosts import Hosts
from tocsin.actors.testing.lab.looks import ORIGIN, Looks, instances
from tocsin.actors.testing.lab.loop_time import LoopTime, given_back, taken_over
from tocsin.actors.testing.lab.outside import OUTSIDE, now_ms, start_really, time_here
from tocsin.actors.testing.lab.reading import unawaited
from tocsin.actors.testing.lab.stores import Kind, Stores
from tocsin.actors.testing.loop import Stuck
from tocsin.dispatch.asgi_transport import App
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.instants import instant_ms
from tocsin.dispatch.receiver.receiver import Receiver
from tocsin.dispatch.receiver.sqlite_dedup import SQLiteDedup
from tocsin.dispatch.server_client import ServerClient
from tocsin.dispatch.worker.attempt import Attempt
from tocsin.errors import InvalidInputError, SettingsError
from tocsin.storage.memory import MemoryProvider

if TYPE_CHECKING:
    from tocsin.dispatch.receiver.handlers import Handler

T = TypeVar("T")
PATIENCE_S: Final = 0.05
LIFESPAN_S: Final = 3_600.0
"""How much virtual time the app's startup, and its shutdown, may take."""
IDLE_WITHIN_S: Final = 7 * 86_400.0
"""How much virtual time work that is under way may take to end."""
_lab: ContextVar[Lab | None] = ContextVar("tocsin_lab", default=None)
"""The lab whose app is being made."""
_labs: dict[LoopTime, list[Lab]] = {}

AppGiven = App | Mapping[str, "Handler"] | Callable[..., object] | None


def lab(
    app: AppGiven = None,
    *,
    start: datetime | int | None = None,
    store: Kind = "memory",
    secrets: Sequence[str | bytes] | None = None,
    patience: Duration = PATIENCE_S,
    follow: Callable[[datetime], object] | None = None,
    **options: Any,
) -> Lab:
    """Run an app in virtual time: `async with lab(create_app) as t`, in a test on asyncio's own event loop.

    `app` is an ASGI app, a function that makes one (given the lab, if it takes a parameter), a mapping from function
    paths to handlers, or nothing: then callbacks are recorded and answered 200. Hosts that the app starts are the
    lab's: their callbacks come to the app in process, whatever their origin, and their rows are in a store of the lab's
    own (`store`: "memory", "sqlite" for a real file in a temporary folder, "own" for the one that the app names); so is
    what a `SQLiteDedup` of the app knows. If it starts none, the lab opens one, with `options` of `ActorHost.open`; the
    receiver of the app must have its `secrets` then. Time begins at `start` (aware datetime or epoch ms; now, if left
    out). `patience` is how long, in real time, a handler is waited for that may listen to a socket, before time goes
    on. `follow` is called with each instant at which something is due, before that runs: for a library that moves what
    `datetime.now()` says. Raises SettingsError, InvalidInputError.
    """
    return Lab(app, start, store, secrets, patience, follow, options)


class Lab(Looks):
    """An open lab. Time passes in `advance`, `run_until_idle`, `until`, and while the test sleeps only."""

    def __init__(
        self,
        app: AppGiven,
        start: datetime | int | None,
        store: Kind,
        secrets: Sequence[str | bytes] | None,
        patience: Duration,
        follow: Callable[[datetime], object] | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self._given, self._options = app, options
        self._start_ms = None if start is None else instant_ms(start, "start")
        self._patience_s = duration_ms(patience, "patience") / 1000
        self._secrets, self._follow = secrets, follow
        self._stores = Stores(store)
        self._deliveries = Deliveries(lambda: self.now_ms, lambda error: self._clock.fail(error))
        self._hosts = Hosts(self._stores, self._deliveries)
        self._clients: Clients
        self._own_host: ActorHost | None = None
        self._api: App | None = None
        self._waits_for_app = False
        self.receiver: Receiver | None = None
        """The receiver of a lab that was given handlers, or nothing."""

    @property
    def is_open(self) -> bool:
        """Return whether it was opened and not closed."""
        return self._time is not None and self in _labs.get(self._time, ())

    # ---- Life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._time is not None:
            raise SettingsError("this lab is open already, or was: make another one")
        self._time = time = await taken_over(self._start_ms, now_ms())
        self._tested()
        OUTSIDE.enter(_start, _lead, _adopt)
        _labs.setdefault(time, []).append(self)
        if self._follow is not None:
            time.followers.append(self._told)
            self._told(time.now_ms())
        time.may_hear = partial(_patience, time)
        self._clients = Clients(self._server)
        self._tasks = TaskFactory(asyncio.get_running_loop(), time.testers)
        try:
            await self._begin()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._tested()
        try:
            await self._end()
        finally:
            await self._leave()
        forgotten = unawaited(self._readings)
        if error is None and forgotten is not None:
            raise AssertionError(forgotten)

    async def _begin(self) -> None:
        """Start the app, and a host if it has none."""
        token = _lab.set(self)
        try:
            self._app = await self._made()
            self._life = life = AppLife(self._app)
            self._deliveries.lead_to(life)
            with self._app_at_work():
                await self._clock.pass_until(life.start(), LIFESPAN_S, "the startup of the app")
            if not self._hosts.running:
                if self._own_host is None:
                    self._own_host = self._opened()
                await self._hosts.start(self._own_host)
            await self._clock.drive(self._clock.time())
        finally:
            _lab.reset(token)

    async def _made(self) -> App:
        """Return the app of this life."""
        given = self._given
        if given is None or isinstance(given, Mapping):
            if given is None:
                return says_ok
            if self.receiver is None:
                self._secrets = self._secrets or [_secret()]
                self.receiver = Receiver(self._secrets)
                self.receiver.register(given)
            return self.receiver
        app = await made(given, self)
        if not is_asgi(app):
            raise SettingsError(f"app must be an ASGI app, or a function that makes one, not {type(app).__name__}")
        return cast(App, app)

    def _opened(self) -> ActorHost:
        """Open a host for an app that starts none."""
        if self._secrets is None and self._given is not None:
            raise SettingsError(
                "the app starts no host when it starts: give the lab the secrets of its receiver, "
                "lab(app, secrets=[...]), for a host of the lab's own"
            )
        options = {"origin": ORIGIN, "secrets": self._secrets or [_secret()], **self._options}
        return ActorHost.open(MemoryProvider(), transport=self._deliveries, **options)

    def _server(self) -> App:
        """Return what a client of the app reaches: the app, with its host mounted, or the host of the lab."""
        if self._own_host is None:
            return self.app
        if self._api is None:
            self._api = cast(App, self._own_host.asgi(authorize=lambda *_: True))
        return self._api

    async def _end(self) -> None:
        """Shut the app and the host down in order; time passes as far as that takes."""
        life, self._life = self._life, None
        if life is not None:
            with self._app_at_work():
                await self._clock.pass_until(life.stop(), LIFESPAN_S, "the shutdown of the app")
        if self._own_host is not None and self._own_host.runtime.is_open:
            await self._clock.pass_until(self._own_host.stop(), LIFESPAN_S, "the stop of the host")

    async def _leave(self) -> None:
        """Give everything back, whatever state it is in."""
        time = self._clock
        try:
            await self._killed()
        finally:
            self._tasks.remove()
            self._hosts.give_back()
            self._clients.give_back()
            if self._told in time.followers:
                time.followers.remove(self._told)
            self._stores.close()
            _labs[time].remove(self)
            if not _labs[time]:
                del _labs[time]
            OUTSIDE.leave()
            given_back(time)

    async def _killed(self) -> None:
        """End the hosts and the tasks of the app at this instant."""
        self._deliveries.lead_to(None)
        await self._hosts.kill()
        if self._life is not None:
            life, self._life = self._life, None
            await life.kill(lambda: self._clock.threads > 0)

    async def crash(self) -> None:
        """End the app and its hosts as if their process was killed, and start them again on the same stores.

        Nothing that was answered is lost. An attempt under way is sent again when its lease ends. A function that made
        the app makes another one; tasks that the test itself started go on.
        """
        self._tested()
        await self._killed()
        await self._begin()

    # ---- Time ------------------------------------------------------------------------------------

    async def advance(self, by: Duration | None = None, *, to: datetime | int | None = None) -> None:
        """Pass the time by a duration, or to an instant, and let all that is due meanwhile run, each at its instant.

        What is under way at the end stays so. InvalidInputError for an instant that has passed.
        """
        if (by is None) == (to is None):
            raise InvalidInputError("give a duration, advance('3d'), or an instant, advance(to=...)")
        target = self.now_ms + duration_ms(by, "by") if to is None else instant_ms(to, "to")
        if target < self.now_ms:
            raise InvalidInputError(f"to: {inventory.moment(target)} has passed, it is {self.now}")
        self._tested()
        await self._clock.drive(self._clock.instant(target))

    async def run_until_idle(self) -> None:
        """Let all that is due at this instant run to its end, with what it makes due meanwhile.

        Time passes only as far as handlers take some. Retries and later jobs wait. Raises Stuck if something is still
        under way after a virtual week.
        """
        self._tested()
        end = self._clock.time() + IDLE_WITHIN_S
        await self._clock.drive(self._clock.time())
        while await self._is_busy():
            # Up to the next timer, whatever that is: a handler that sleeps, its deadline, the end of a lease.
            if self._clock.time() >= end or (upcoming := self._clock.upcoming) is None or upcoming > end:
                raise Stuck(f"something is still under way after {IDLE_WITHIN_S / 86_400:g} virtual days")
            await self._clock.drive(upcoming)

    async def until(self, awaitable: Awaitable[T], *, within: Duration = "7d") -> T:
        """Pass the time until this is done, such as `jobs.result(id)`; what it returns. Raises Stuck after `within`."""
        self._tested()
        limit_s = duration_ms(within, "within") / 1000
        return await self._clock.pass_until(awaitable, limit_s, "what was waited for")

    async def _is_busy(self) -> bool:
        if self._deliveries.under_way:
            return True
        for host in self._hosts.running:
            if any(one.in_flight for one in await instances(host)):
                return True
        return False

    def _told(self, now_ms: int) -> None:
        assert self._follow is not None
        self._follow(inventory.moment(now_ms))

    def _tested(self) -> None:
        """Note that the running task is a test's: while it sleeps, time passes."""
        if (task := asyncio.current_task()) is not None:
            self._clock.testers.add(task)

    @contextmanager
    def _app_at_work(self) -> Iterator[None]:
        """Note that the app may listen to a socket meanwhile."""
        self._waits_for_app = True
        try:
            yield
        finally:
            self._waits_for_app = False

    def _works(self) -> bool:
        return self._waits_for_app or self._deliveries.under_way > 0


def _patience(time: LoopTime) -> float:
    """Return for how long something that runs may listen to a socket: a handler, or the app as it starts."""
    labs = _labs.get(time, ())
    longest = max((one._patience_s for one in labs), default=0.0)
    if any(one._works() for one in labs):
        return longest
    attempts = (task for task in asyncio.all_tasks(time.loop) if _code(task) is Attempt.run.__code__)
    return longest if any(True for _ in attempts) else 0.0


def _code(task: asyncio.Task[Any]) -> object:
    return getattr(task.get_coro(), "cr_code", None)


def _here() -> Lab | None:
    """Return the lab of whoever runs: that of its app, or the last one of this loop."""
    here = time_here()
    labs = [] if here is None else _labs.get(here, [])
    life, making = current_life(), _lab.get()
    own = (one for one in labs if one is making or (life is not None and one._life is life))
    return next(own, labs[-1] if labs else None)


async def _start(host: ActorHost) -> None:
    """Start a host as part of its lab."""
    here = _here()
    await (start_really(host) if here is None else here._hosts.start(host))


def _lead(client: ServerClient) -> None:
    """Lead a client to the server of its lab."""
    if (here := _here()) is not None:
        here._clients.lead(client)


def _adopt(dedup: SQLiteDedup) -> None:
    """Give a dedup store a file of its lab."""
    if (here := _here()) is not None:
        here._stores.adopt(dedup)


def _secret() -> str:
    """Return a secret for a lab that was given none. Nobody else need know it."""
    return "whsec_" + base64.b64encode(Random("lab").randbytes(32)).decode()
