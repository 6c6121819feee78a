"""What tests of the WAL share: stores that are stopped whatever a test does, and a look that comes at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tocsin.errors import StoreError
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite.provider import SQLiteProvider

VALUE = b"v" * 3_000


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_upkeep, "LOOK_S", 0.01)


async def put(provider: SQLiteProvider, *keys: bytes) -> None:
    store = await provider.open("a")
    for key in keys:
        await store.commit(Batch(puts={key: VALUE}))


_started: list[SQLiteProvider] = []


async def started(path: Path) -> SQLiteProvider:
    provider = SQLiteProvider(path)
    await provider.start()
    _started.append(provider)
    return provider


@pytest.fixture(autouse=True)
async def nothing_goes_on() -> AsyncIterator[None]:
    """A test that fails in its middle leaves no store behind that looks for ever whether its trouble is over."""
    yield
    for provider in _started:
        with suppress(StoreError):
            await provider.stop()
    _started.clear()


async def keys_in(path: Path) -> list[bytes]:
    provider = await started(path)
    found = await provider.view("a").scan(b"0", b"z", limit=10_000)
    await provider.stop()
    return [key for key, _ in found]


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def emptied(path: Path) -> None:
    os.truncate(wal(path), 0)


def moved_over(path: Path, backup: Path) -> None:
    """Replace a file by moving another over it."""
    os.replace(backup, path)


def copied_over(path: Path, backup: Path) -> None:
    """Replace a file's content as `cp` does: its inode stays."""
    shutil.copyfile(backup, path)
