"""The engines under test, each as a place that outlives its providers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tocsin.storage.conformance import Place
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.sqlite.provider import SQLiteProvider


def memory(folder: Path) -> Place:
    disk = MemoryDisk()
    return lambda: MemoryProvider(disk)


def sqlite(folder: Path) -> Place:
    return lambda: SQLiteProvider(folder / "store.db")


ENGINES: list[Callable[[Path], Place]] = [memory, sqlite]
