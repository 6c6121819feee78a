"""Stores for the hosts of a lab: nowhere near the files that the app names, and for as long as the lab."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, get_args

from tocsin.dispatch.receiver.sqlite_dedup import SQLiteDedup
from tocsin.errors import SettingsError
from tocsin.storage.api import StoreProvider
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.residency.provider import NamedStores
from tocsin.storage.sqlite.provider import SQLiteProvider

Kind = Literal["memory", "sqlite", "own"]
KINDS: Final = get_args(Kind)
"""`memory`; `sqlite`: real files in a folder of the lab's own; `own`: the store that the app names."""

_ADOPTED: Final[set[SQLiteDedup]] = set()
"""Dedup stores that a lab has: of two labs that share one, the first."""


class Stores:
    """The stores of one lab. The same place of the app is the same store over crashes and starts."""

    def __init__(self, kind: Kind) -> None:
        if kind not in KINDS:
            raise SettingsError(f"store must be one of {', '.join(KINDS)}, not {kind!r:.100}")
        self.kind = kind
        self._disks: dict[str, MemoryDisk] = {}
        self._files: dict[str, str] = {}
        self._folder: TemporaryDirectory[str] | None = None
        self._dedups: dict[SQLiteDedup, Path] = {}

    def opened(self, own: StoreProvider, number: int) -> StoreProvider:
        """Return a new provider in the place of the app's own, that of its `number`-th host."""
        if self.kind == "own":
            return own
        if isinstance(own, NamedStores):
            parts = {name: self._alone(part, f"{number}-{name}") for name, part in own.parts.items()}
            return NamedStores(parts, own.rules)
        return self._alone(own, str(number))

    def _alone(self, own: StoreProvider, number: str) -> StoreProvider:
        place = self._place(own, number)
        if self.kind == "memory":
            return MemoryProvider(self._disks.setdefault(place, MemoryDisk()))
        return SQLiteProvider(self._file(place))

    def adopt(self, dedup: SQLiteDedup) -> None:
        """Give a dedup store of the app a file of the lab's own. What happens in the app's file at virtual times would
        prune what real deliveries left there."""
        if self.kind == "own" or dedup in _ADOPTED:
            return
        _ADOPTED.add(dedup)
        self._dedups[dedup] = dedup.path
        dedup.move(self._file(f"dedup {dedup.path}"))

    def _file(self, place: str) -> Path:
        """Return the file in the place of one that the app names."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="tocsin-lab-")
        return Path(self._folder.name) / self._files.setdefault(place, f"store-{len(self._files)}.db")

    def place(self, own: StoreProvider, number: int) -> str:
        """Return what tells the app's own stores apart: a file, or the number of the host that has one in memory."""
        if isinstance(own, NamedStores):
            return " ".join(self._place(part, f"{number}-{name}") for name, part in own.parts.items())
        return self._place(own, str(number))

    def _place(self, own: StoreProvider, number: str) -> str:
        return str(own.path) if isinstance(own, SQLiteProvider) else f"{type(own).__name__}-{number}"

    def close(self) -> None:
        """Remove what the stores have left; dedup stores have their own files again."""
        while self._dedups:
            dedup, path = self._dedups.popitem()
            dedup.move(path)
            _ADOPTED.remove(dedup)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
