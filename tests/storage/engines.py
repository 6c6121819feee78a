"""The engines under test, each as a place that outlives its providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.postgres import Postgres
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.conformance import Place
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.notes import NOTES, RESIDENCY
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.residency.opening import named_stores
from tocsin.storage.residency.rules import Rules
from tocsin.storage.shared_disk import SharedDisk
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.urls import open_provider


def memory(folder: Path) -> Place:
    disk = MemoryDisk()
    return lambda: MemoryProvider(disk)


def sqlite(folder: Path) -> Place:
    return lambda: SQLiteProvider(folder / "store.db")


def named(folder: Path) -> Place:
    """Several stores in one provider. A store of several keeps the contract as one alone does."""
    disks = {name: MemoryDisk() for name in ("default", "eu", "us")}
    rules = {"eu-*": "eu"}
    for name, disk in disks.items():  # as after a first start, which is not what the checks count
        disk.apply([ActorWrites(NOTES, {RESIDENCY: Rules.of(list(disks), rules).written(name)})])
    return lambda: named_stores({name: MemoryProvider(disk) for name, disk in disks.items()}, rules)


def shared(folder: Path) -> Place:
    disk = SharedDisk()
    return lambda: OwnedProvider(DiskEngine(disk), durable=False)


def postgres_store(server: Postgres) -> Place:
    """A store in a schema of its own: quicker than a database of its own."""
    url = f"{server.url('postgres')}&schema=s{uuid4().hex[:12]}"
    return lambda: open_provider(url)


ENGINES: list[Callable[[Path], Place]] = [memory, sqlite, named, shared]
