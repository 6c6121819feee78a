"""Store URLs: which engine, and where."""

from __future__ import annotations

from tocsin.errors import SettingsError
from tocsin.storage.api import StoreProvider
from tocsin.storage.memory import MemoryProvider
from tocsin.storage.sqlite import SQLiteProvider


def open_provider(url: str) -> StoreProvider:
    """`sqlite:///relative.db`, `sqlite:////absolute/path.db` or `memory:`; SettingsError for anything else."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest.strip("/"):
        return MemoryProvider()
    if scheme == "sqlite" and rest.startswith("///") and rest[3:] and not rest.endswith("/"):
        return SQLiteProvider(rest[3:])
    raise SettingsError(
        f"the store {scheme}:… is not known: use sqlite:///file.db (relative), sqlite:////path/file.db (absolute) "
        "or memory: (forgets everything at the end)"
    )
