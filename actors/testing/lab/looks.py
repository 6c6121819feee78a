"""A test's looks: jobs, deliveries, the app, in the words of a lab."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.records import Instance, Record
from tocsin.actors.testing.lab import inventory
from tocsin.actors.testing.lab.app_life import AppLife
from tocsin.actors.testing.lab.deliveries import Deliveries
from tocsin.actors.testing.lab.hosts import Hosts
from tocsin.actors.testing.lab.loop_time import LoopTime
from tocsin.actors.testing.lab.reading import Reading
from tocsin.dispatch.testing import Delivery, client_of
from tocsin.errors import SettingsError

if TYPE_CHECKING:
    import httpx

    from tocsin.dispatch.asgi_transport import App

ORIGIN: Final = "http://127.0.0.1:8000"


class Looks:
    """The looks at one lab."""

    def __init__(self) -> None:
        self._deliveries: Deliveries
        self._hosts: Hosts
        self._life: AppLife | None = None
        self._time: LoopTime | None = None
        self._browser: httpx.AsyncClient | None = None
        self._readings: list[Reading[Any]] = []

    @property
    def _clock(self) -> LoopTime:
        if self._time is None:
            raise SettingsError("this lab is not open: async with lab(app) as t")
        return self._time

    @property
    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        return inventory.moment(self.now_ms)

    @property
    def now_ms(self) -> int:
        """Return the present instant, epoch ms."""
        return self._clock.now_ms()

    @property
    def moves(self) -> int:
        """Return how many times time has moved: once for each instant at which something was due."""
        return self._clock.jumps

    @property
    def host(self) -> ActorHost:
        """Return the host of the app, the first one if it has several; after a crash, that of its new life."""
        if not self._hosts.running:
            raise SettingsError("no host is running")
        return self._hosts.running[0]

    def scheduler(self, name: str = "default") -> Scheduler:
        """Return a handle on a scheduler of the app's host."""
        return self.host.scheduler(name)

    @property
    def deliveries(self) -> list[Delivery]:
        """Return every callback so far, in the order in which they were sent."""
        return self._deliveries.seen

    @property
    def app(self) -> App:
        """Return the app, as a server calls it. A request to it is part of the present life."""
        if self._life is None:
            raise SettingsError("the app is not running")
        return self._life

    @property
    def client(self) -> httpx.AsyncClient:
        """Return a client of the app, in process: `await t.client.post("/orders", json={...})`. Its cookies stay."""
        if self._browser is None:
            self._browser = client_of(lambda *request: self.app(*request), ORIGIN)
        return self._browser

    def scheduled(self, path: str | None = None, **named: Any) -> Reading[list[Record]]:
        """Read the live jobs of all schedulers by their next attempt: `await t.scheduled("invoices:remind")`.

        `named`: `workflow`, `args` (a value, or a function that says whether they fit), `id`, `at`, `after` (from
        now), `queue`, `pool`, `label`, `scheduler`.
        """
        return Reading("scheduled", lambda: self._chosen(path, named), self._readings)

    def assert_scheduled(
        self, path: str | None = None, *, count: int | None = None, **named: Any
    ) -> Reading[list[Record]]:
        """Check that there is such a job, or `count` of them; return them. The AssertionError shows what there is."""
        return Reading("assert_scheduled", lambda: self._there(path, count, named), self._readings)

    def refute_scheduled(self, path: str | None = None, **named: Any) -> Reading[None]:
        """Check that there is no such job. The AssertionError shows what there is."""
        return Reading("refute_scheduled", lambda: self._not_there(path, named), self._readings)

    def dead(self, path: str | None = None, **named: Any) -> Reading[list[Record]]:
        """Read the dead jobs of all schedulers, by what `scheduled` takes: `await t.dead()`."""
        return Reading("dead", lambda: self._dead(path, named), self._readings)

    async def _chosen(self, path: str | None, named: Mapping[str, Any]) -> list[Record]:
        what = inventory.wanted({"path": path, **named}, self.now_ms)
        return (await inventory.everything(await self._schedulers(), schedules=False)).chosen(what)

    async def _there(self, path: str | None, count: int | None, named: Mapping[str, Any]) -> list[Record]:
        what = inventory.wanted({"path": path, **named}, self.now_ms)
        return inventory.check_there(await inventory.everything(await self._schedulers()), what, count, self.now_ms)

    async def _not_there(self, path: str | None, named: Mapping[str, Any]) -> None:
        what = inventory.wanted({"path": path, **named}, self.now_ms)
        inventory.check_not_there(await inventory.everything(await self._schedulers()), what, self.now_ms)

    async def _dead(self, path: str | None, named: Mapping[str, Any]) -> list[Record]:
        what = inventory.wanted({"path": path, **named}, self.now_ms)
        return (await inventory.everything_dead(await self._schedulers())).chosen(what)

    async def _schedulers(self) -> list[Scheduler]:
        return [host.scheduler(one.name) for host in self._hosts.running for one in await instances(host)]


async def instances(host: ActorHost) -> list[Instance]:
    """Return all schedulers of a host that were used."""
    found: list[Instance] = []
    cursor: str | None = None
    while True:
        page = await host.instances(cursor=cursor, limit=1000)
        found += page.instances
        if not page.truncated:
            return found
        cursor = page.cursor
