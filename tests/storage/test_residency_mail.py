"""The mail of several stores: what lies in a wrong one, and where it is ended."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.storage.api import StoreProvider
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.memory import MemoryProvider
from tocsin.storage.ownership.engine import Mail, slot_of
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.residency.opening import named_stores
from tocsin.storage.residency.shared import SharedNamedStores
from tocsin.storage.shared import Arrived
from tocsin.storage.shared_disk import SharedDisk

pytestmark = pytest.mark.anyio

EU = {"eu-*": "eu"}


async def test_mail_that_an_app_wrote_into_a_wrong_store_is_brought_to_the_right_one_as_it_is() -> None:
    disks = {"default": SharedDisk(), "eu": SharedDisk()}
    stores = named_stores({name: OwnedProvider(DiskEngine(disk), durable=False) for name, disk in disks.items()}, EU)
    await stores.start()
    app = DiskEngine(disks["default"])
    await app.open()
    actors = {"scheduler/eu-1": "a" * 32, "scheduler/other": "b" * 32}
    try:
        for actor, op in actors.items():
            assert await app.put_mail([Mail(slot_of(actor), 0, op, actor, b"job", "")], 10, 1_000) == [True]
        assert isinstance(stores, SharedNamedStores)
        came: list[Arrived] = []
        arrivals = stores.mailbox.arrivals()
        async with asyncio.timeout(10):
            while len(came) < 2:
                came += await anext(arrivals)

        assert {one.actor: (one.op, one.body, one.sender) for one in came} == {
            actor: (op, b"job", "") for actor, op in actors.items()
        }
        assert [each.count for each in await app.backlogs()] == [1], "what is in the right store is there no more"
        eu = stores.parts["eu"]
        assert isinstance(eu, OwnedProvider)
        assert [each.slot for each in await eu.engine.backlogs()] == [slot_of("scheduler/eu-1")]
        await stores.mailbox.end([(one, b"done") for one in came])
        assert not await app.backlogs()
        assert not await eu.engine.backlogs()
    finally:
        await app.close()
        await stores.stop()


async def test_mail_for_an_actor_in_a_store_of_this_host_alone_is_ended_where_it_lies() -> None:
    disk = SharedDisk()
    parts: dict[str, StoreProvider] = {
        "default": OwnedProvider(DiskEngine(disk), durable=False),
        "eu": MemoryProvider(),
    }
    stores = named_stores(parts, EU)
    await stores.start()
    app = DiskEngine(disk)
    await app.open()
    try:
        await app.put_mail([Mail(slot_of("scheduler/eu-1"), 0, "a" * 32, "scheduler/eu-1", b"job", "")], 10, 1_000)
        assert isinstance(stores, SharedNamedStores)
        arrivals = stores.mailbox.arrivals()
        async with asyncio.timeout(10):
            came = await anext(arrivals)
        await stores.mailbox.end([(one, b"done") for one in came])
        assert not await app.backlogs()
    finally:
        await app.close()
        await stores.stop()
