"""Several named stores in one host: each instance stays in the one it was used in first, and nothing falls back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tocsin.errors import ResidencyError, SettingsError, StoreError, StoreLocked, StoreUnavailable
from tocsin.storage.api import Batch, Lost, Owned, StoreProvider
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.notes import NOTES, RESIDENCY
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.residency.opening import fit_to_serve, named_stores
from tocsin.storage.residency.provider import NamedStores
from tocsin.storage.residency.shared import SharedNamedStores
from tocsin.storage.shared import Located, SharedProvider
from tocsin.storage.shared_disk import SharedDisk

pytestmark = pytest.mark.anyio

EU = {"eu-*": "eu"}


class Part(MemoryProvider):
    """A store in memory that can be away, and tells what a test wants of its actors."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk)
        self.away: StoreError | None = None
        self.told: asyncio.Queue[Any] = asyncio.Queue()

    async def start(self) -> None:
        if self.away is not None:
            raise self.away
        await super().start()

    async def hop(self) -> None:
        if self.away is not None:
            raise self.away
        await super().hop()

    async def events(self) -> Any:
        if self.away is not None:
            raise self.away
        yield Owned([(name, wake) for name, wake in self.disk.wakes.items() if wake is not None])
        while True:
            yield await self.told.get()


class World:
    """Stores that outlive the hosts which open them."""

    def __init__(self) -> None:
        self.disks = {name: MemoryDisk() for name in ("default", "eu", "us")}

    def stores(self, names: str = "default eu", rules: Mapping[str, str] = EU, **renamed: str) -> NamedStores:
        parts = {name: Part(self.disks[renamed.get(name, name)]) for name in names.split()}
        return named_stores(parts, rules)

    def notes(self) -> dict[str, bytes | None]:
        """Return what each store remembers."""
        kept = {name: disk.maps[NOTES].get(RESIDENCY) for name, disk in self.disks.items() if NOTES in disk.maps}
        assert {"default", "eu"} <= kept.keys()
        return kept

    def actors(self, store: str) -> set[str]:
        return set(self.disks[store].maps) - {NOTES}


async def use(stores: StoreProvider, *instances: str) -> None:
    for instance in instances:
        store = await stores.open(f"scheduler/{instance}")
        await store.commit(Batch({b"k": instance.encode()}, wake_at=1))
        await store.close()


async def used(world: World, *instances: str, **how: Any) -> None:
    stores = world.stores(**how)
    await stores.start()
    await use(stores, *instances)
    await stores.stop()


# ---- Where an instance is ------------------------------------------------------------------------


async def test_an_instance_is_in_the_store_of_its_pattern_and_all_others_in_the_default() -> None:
    world = World()

    await used(world, "eu-1", "eu-2", "other")

    assert world.actors("eu") == {"scheduler/eu-1", "scheduler/eu-2"}
    assert world.actors("default") == {"scheduler/other"}


async def test_without_a_default_what_matches_nothing_is_refused_and_written_nowhere() -> None:
    world = World()
    stores = world.stores("eu us", {"eu-*": "eu", "us-*": "us"})
    await stores.start()

    with pytest.raises(ResidencyError, match="no store is for instance 'fr-1'"):
        await use(stores, "fr-1")
    with pytest.raises(ResidencyError):
        stores.view("scheduler/fr-1")

    assert not world.actors("eu")
    assert not world.actors("us")


async def test_the_rest_can_be_refused_although_there_is_a_default() -> None:
    world = World()
    stores = world.stores(rules=EU | {"*": "refuse"})
    await stores.start()

    await use(stores, "eu-1")
    with pytest.raises(ResidencyError):
        await use(stores, "other")


async def test_names_are_those_of_all_stores_in_order_and_in_pages() -> None:
    world = World()
    stores = world.stores()
    await stores.start()
    await use(stores, "a", "eu-1", "eu-2", "z")

    everything = ["scheduler/a", "scheduler/eu-1", "scheduler/eu-2", "scheduler/z"]
    assert await stores.names("", 10) == everything
    paged, last = [], ""
    while page := await stores.names(last, 1):
        paged += page
        last = page[-1]
    assert paged == everything


# ---- Fixed at first use --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {"rules": {"eu-*": "default"}},
        {"rules": {}},
        {"names": "default eu us", "rules": {"eu-*": "us"}},
        {"names": "default eu us", "rules": {"eu-1": "us"}},
        {"names": "default", "rules": {}},
        {"names": "default us", "rules": {"eu-*": "us"}},
        {"rules": EU, "default": "eu", "eu": "default"},
    ],
    ids=["another", "none", "a third", "by name", "gone", "replaced", "swapped"],
)
async def test_rules_that_would_move_an_instance_are_refused_at_the_start_and_change_nothing(how: Any) -> None:
    world = World()
    await used(world, "eu-1", "other")
    before = world.notes()

    with pytest.raises(SettingsError):
        await world.stores(**how).start()

    assert world.notes() == before
    await used(world, "eu-2")  # with the rules of before it goes on


async def test_rules_may_change_for_names_that_were_never_used() -> None:
    world = World()
    await used(world, "eu-1", "other")

    stores = world.stores("default eu us", {"eu-1": "eu", "eu-2*": "us"})
    await stores.start()
    await use(stores, "eu-2", "eu-3")

    assert world.actors("us") == {"scheduler/eu-2"}
    assert world.actors("default") == {"scheduler/eu-3", "scheduler/other"}


async def test_rules_do_not_change_while_a_store_that_they_fix_instances_to_is_away() -> None:
    world = World()
    await used(world, "eu-1")
    stores = world.stores("default eu us", {"eu-*": "us"})
    stores.parts["eu"].away = StoreUnavailable("no route to eu")  # type: ignore[attr-defined]

    with pytest.raises(SettingsError, match=r"the store eu, to which eu-\* is fixed, is not reached"):
        await stores.start()


async def test_a_store_of_several_that_is_opened_alone_serves_its_own_instances_only() -> None:
    world = World()
    await used(world, "eu-1", "other")
    alone = MemoryProvider(world.disks["default"])
    await alone.start()

    served = await fit_to_serve(alone)

    await use(served, "another")
    with pytest.raises(ResidencyError, match="'eu-9' is fixed to the store eu, which this host does not have"):
        await use(served, "eu-9")
    assert world.actors("default") == {"scheduler/another", "scheduler/other"}


async def test_a_shared_store_of_several_is_not_opened_alone_and_its_hosts_agree_on_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin.storage.residency.agreement.PAUSE_S", 0.01)
    disk, default = SharedDisk(), MemoryDisk()

    def stores(rules: Mapping[str, str]) -> NamedStores:
        parts: dict[str, StoreProvider] = {
            "default": MemoryProvider(default),
            "eu": OwnedProvider(DiskEngine(disk), durable=False),
        }
        return named_stores(parts, rules)

    first = stores(EU)
    await first.start()
    await use(first, "eu-1", "other")
    assert isinstance(first, SharedNamedStores)
    assert first.locate("scheduler/eu-1").here
    assert first.locate("scheduler/other") == Located(here=True)
    assert [*await first.facts_of_each()] == ["eu"]

    second = OwnedProvider(DiskEngine(disk), durable=False)
    await second.start()
    with pytest.raises(SettingsError, match=r"this store is eu of several.*default, eu"):
        await fit_to_serve(second)
    await second.stop()
    with pytest.raises(SettingsError, match=r"the store eu is in use by .* with other rules"):
        await stores(EU | {"us-*": "eu"}).start()

    await first.stop()
    later = stores(EU | {"us-*": "eu"})
    await later.start()
    await use(later, "us-1")
    assert default.maps.keys() == {"scheduler/other", NOTES}
    await later.stop()


async def test_hosts_that_start_together_on_new_stores_agree_and_tell_themselves_from_others() -> None:
    disks = {"default": SharedDisk(), "eu": SharedDisk()}

    def stores() -> NamedStores:
        return named_stores({name: OwnedProvider(DiskEngine(disk), durable=False) for name, disk in disks.items()}, EU)

    hosts = [stores() for _ in range(3)]
    await asyncio.gather(*(host.start() for host in hosts))
    try:
        for host in hosts:
            assert isinstance(host, SharedNamedStores)
            facts = await host.facts()
            assert facts.host == host.owner
            assert sum(one.host == host.owner for one in facts.hosts) == 2, "once in each store"
            assert len({one.host for one in facts.hosts}) == 1 + 2 * 2
            assert {one.name.rpartition(" in ")[2] for one in facts.hosts} == {"default", "eu"}
        assert isinstance(hosts[0], SharedNamedStores)
        assert await hosts[0].drain_host(hosts[0].owner)
        assert not await hosts[0].drain_host("nobody")
    finally:
        await asyncio.gather(*(host.stop() for host in hosts))


def test_several_shared_stores_have_all_that_one_has() -> None:
    stores = named_stores({"eu": OwnedProvider(DiskEngine(SharedDisk()), durable=False)}, EU)
    members = {name for kind in SharedProvider.__mro__ for name in {*vars(kind), *getattr(kind, "__annotations__", {})}}

    missing = [name for name in members if not name.startswith("_") and name not in {*dir(type(stores)), *vars(stores)}]

    assert missing == []


async def test_a_store_that_was_never_one_of_several_is_served_as_it_is() -> None:
    alone = MemoryProvider()
    await alone.start()

    assert await fit_to_serve(alone) is alone


# ---- A store that is away ------------------------------------------------------------------------


async def test_a_store_that_is_away_has_its_instances_all_the_same_and_the_others_go_on() -> None:
    world = World()
    await used(world, "eu-1", "other")
    stores = world.stores()
    stores.parts["eu"].away = StoreUnavailable("no route to eu")  # type: ignore[attr-defined]
    await stores.start()

    await use(stores, "more")
    with pytest.raises(StoreUnavailable, match="the store eu, to which this instance belongs, is away: no route to eu"):
        await use(stores, "eu-2")
    with pytest.raises(StoreUnavailable, match="names cannot be listed"):
        await stores.names("", 10)

    assert world.actors("default") == {"scheduler/more", "scheduler/other"}
    assert stores.trouble is None
    assert [*stores.troubles] == ["eu"]
    await stores.stop()


async def test_a_store_that_comes_late_is_served_and_its_alarms_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.storage.residency.provider.RETRY_S", 0.001)
    world = World()
    await used(world, "eu-1", "other")
    stores = world.stores()
    late = stores.parts["eu"]
    late.away = StoreUnavailable("no route to eu")  # type: ignore[attr-defined]
    await stores.start()
    seen: list[str] = []
    there = asyncio.Event()

    async def note() -> None:
        assert not seen.count("scheduler/eu-1"), "before its actors begin"
        there.set()

    stores.when_there = note
    async with asyncio.timeout(10):
        async for event in stores.events():
            assert isinstance(event, Owned)
            seen += [name for name, _ in event.actors]
            if "scheduler/other" in seen:
                late.away = None  # type: ignore[attr-defined]
            if "scheduler/eu-1" in seen:
                break

    assert there.is_set()
    await use(stores, "eu-2")
    assert not stores.troubles
    await stores.stop()


async def test_a_store_that_comes_late_under_a_wrong_name_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.storage.residency.provider.RETRY_S", 0.001)
    world = World()
    await used(world, "us-1", names="default us", rules={"us-*": "us"})
    world.disks["eu"] = world.disks["us"]
    world.disks["default"] = MemoryDisk()
    stores = world.stores()
    late = stores.parts["eu"]
    late.away = StoreUnavailable("no route to eu")  # type: ignore[attr-defined]
    await stores.start()
    late.away = None  # type: ignore[attr-defined]

    async with asyncio.timeout(10):
        await asyncio.gather(*stores._opening)

    with pytest.raises(StoreUnavailable, match="used under the name us"):
        await use(stores, "eu-1")
    await stores.stop()


async def test_no_store_at_all_is_the_error_of_the_first_and_a_locked_one_stops_the_start() -> None:
    world = World()
    stores = world.stores()
    for part in stores.parts.values():
        part.away = StoreUnavailable("no route")  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable, match="no route"):
        await stores.start()

    stores = world.stores()
    stores.parts["eu"].away = StoreLocked("in use by process 7")  # type: ignore[attr-defined]
    with pytest.raises(StoreLocked):
        await stores.start()
    with pytest.raises(StoreError):  # the other one was closed again
        await stores.parts["default"].names("", 1)


async def test_what_one_store_loses_touches_no_actor_of_another() -> None:
    world = World()
    await used(world, "eu-1", "other")
    stores = world.stores()
    await stores.start()
    stores.parts["eu"].told.put_nowait(Lost(lambda name: True, "taken"))  # type: ignore[attr-defined]

    async with asyncio.timeout(10):
        events = stores.events()
        async for event in events:
            if isinstance(event, Lost):
                break

    assert isinstance(event, Lost)
    assert event.covers("scheduler/eu-1")
    assert not event.covers("scheduler/other")
    await stores.stop()
