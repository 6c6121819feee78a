"""The hosts of the app under test: when one starts, store, transport and chance are the lab's until the lab ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from random import Random, SystemRandom
from typing import Any, Final

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.testing.lab.deliveries import Deliveries
from tocsin.actors.testing.lab.outside import start_really
from tocsin.actors.testing.lab.stores import Stores
from tocsin.errors import SettingsError, StoreLocked
from tocsin.storage.api import StoreProvider
from tocsin.storage.shared import Located

FAR_MS: Final = 100 * 366 * 86_400_000
"""A clock of the lab does not step, so nobody need look at it again and again."""
IDS_FROM: Final = 60
"""Draws of so many bits are for ids and the names of incarnations."""
NUMBERED: Final = 20
"""How many of those bits number the draws."""


class Chance:
    """Draws of a lab. Ids are in the order of their making, so jobs of one instant are, too; and none comes twice, in
    another lab either, since an app's receiver may remember them. What delays anything is drawn alike in each run."""

    def __init__(self) -> None:
        self._system, self._same, self._numbers = SystemRandom(), Random(0), count()
        self.random = self._same.random

    def getrandbits(self, bits: int) -> int:
        """Draw so many bits."""
        if bits < IDS_FROM:
            return self._same.getrandbits(bits)
        number = next(self._numbers) % (1 << NUMBERED)
        return number << bits - NUMBERED | self._system.getrandbits(bits - NUMBERED)


class Alone:
    """The whereabouts of actors in a lab: all are here, whatever several hosts share beside it."""

    lease_good = True

    def locate(self, name: str) -> Located:
        return Located(here=True)


class Hosts:
    """Adopts each host as it starts, and gives back what was the app's."""

    def __init__(self, stores: Stores, deliveries: Deliveries) -> None:
        self._stores, self._deliveries, self._chance = stores, deliveries, Chance()
        self._own: dict[ActorHost, StoreProvider] = {}
        self._give_back: list[Callable[[], None]] = []
        self.running: list[ActorHost] = []
        """Those of the present life of the app, in the order of their starts."""

    async def start(self, host: ActorHost) -> None:
        """Adopt a host, and start it."""
        if host not in self._own:
            if host.runtime.is_open:
                raise SettingsError("this host is open already, in another lab or without one: close it there first")
            self._adopt(host)
        if host not in self.running:
            self.running.append(host)
        if not host.runtime.is_open:
            self._check_free(host)
            host.runtime.provider = self._stores.opened(self._own[host], self.running.index(host))
        await start_really(host)

    def _check_free(self, host: ActorHost) -> None:
        """Raise StoreLocked if another host of the app has the store: in memory nothing else would refuse."""
        place = self._stores.place(self._own[host], self.running.index(host))
        others = (one for one in self.running if one is not host and one.runtime.is_open)
        if any(self._stores.place(self._own[one], self.running.index(one)) == place for one in others):
            locked = StoreLocked(f"another host of this lab has {place}: an app has one host for a store")
            locked.details["pid"] = str(os.getpid())  # waiting for it would be for ever
            raise locked

    def _adopt(self, host: ActorHost) -> None:
        self._own[host] = host.runtime.provider
        self._replace(host.runtime, "provider", host.runtime.provider)
        for gate in host._service.origins.gates.values():
            self._replace(gate.dispatcher, "transport", self._deliveries)
        self._replace(host, "_sharing", None)  # other processes have other labs
        self._replace(host._life, "sharing", None)
        if host._cluster is not None and self._stores.kind != "own":
            self._replace(host._life, "cluster", None)
            self._replace(host._cluster, "_provider", Alone())  # handles that the app has made already stand on it
            self._replace(host._cluster._routing, "provider", Alone())
            self._replace(host.runtime._elsewhere, "shared", Alone())
            for name in ("_shared", "watch", "elsewhere"):
                self._replace(host._service, name, None)
        self._replace(host._life, "heartbeat", None)  # it would post to the world once a minute
        self._replace(host.runtime.alarms, "_look_again_ms", FAR_MS)
        chance = host.runtime.random
        if type(chance) is SystemRandom and "random" not in vars(chance):
            for name in ("getrandbits", "random"):
                setattr(chance, name, getattr(self._chance, name))
                self._give_back.append(lambda name=name: delattr(chance, name))  # type: ignore[misc]

    def _replace(self, owner: Any, name: str, value: object) -> None:
        before = getattr(owner, name)
        setattr(owner, name, value)
        self._give_back.append(lambda: setattr(owner, name, before))

    async def kill(self) -> None:
        """End every host as if its process was killed: what was answered is in its store, and nothing more comes."""
        for host in self.running:
            if host.runtime.is_open:
                await host._abandon()
                await host.runtime.provider.stop()
        self.running.clear()

    def give_back(self) -> None:
        """Leave the hosts as they were, for whoever has them beside the lab."""
        while self._give_back:
            self._give_back.pop()()
        self._own.clear()
        self.running.clear()
