"""Store URLs: which engine, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tocsin.errors import SettingsError
from tocsin.storage.api import StoreProvider
from tocsin.storage.memory import MemoryProvider
from tocsin.storage.residency.opening import named_stores
from tocsin.storage.snapshot import StoreLook
from tocsin.storage.sqlite.backup import back_up as back_up_sqlite
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.snapshot import SnapshotReader

LONGEST_SHOWN: Final = 200


AnyStore = str | StoreProvider
"""A URL, or a provider."""


def open_stores(store: AnyStore | Mapping[str, AnyStore], residency: Mapping[str, str] | None = None) -> StoreProvider:
    """Open a store, or several by name, of which `residency` says which one the instances of each pattern belong to."""
    if isinstance(store, Mapping):
        return named_stores({name: _opened(one) for name, one in store.items()}, residency or {})
    if residency:
        raise SettingsError("residency names stores: give them by name, like {'default': 'sqlite:///tocsin.db', …}")
    return _opened(store)


def _opened(store: AnyStore) -> StoreProvider:
    return open_provider(store) if isinstance(store, str) else store


def open_provider(url: str) -> StoreProvider:
    """Open `sqlite:///relative.db`, `sqlite:////absolute/path.db`, `postgresql://user@server/database` or `memory:`;
    SettingsError for anything else."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest.strip("/"):
        return MemoryProvider()
    if scheme == "sqlite" and rest.startswith("///") and rest[3:] and not rest.endswith("/"):
        return SQLiteProvider(rest[3:])
    if _is_postgres(url):
        return _open_postgres(url)
    raise SettingsError(
        f"the store {_shown(url)} is not known{_meant(url)}: use sqlite:///file.db (relative), sqlite:////path/file.db "
        "(absolute), postgresql://user@server/database or memory: (forgets everything at the end)"
    )


def _open_postgres(url: str) -> StoreProvider:
    """Open a store in PostgreSQL. What it needs is imported here: only who has such a store has the driver."""
    with _with_driver():
        from tocsin.storage.postgres.provider import PostgresProvider
    return PostgresProvider(url)


@contextmanager
def _with_driver() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise SettingsError("a store in PostgreSQL needs its driver: pip install 'tocsin[postgres]'") from None


def _is_postgres(url: str) -> bool:
    return url.partition(":")[0] in ("postgresql", "postgres")


def _shown(url: str) -> str:
    """Return the URL; of one that may hold a password only its scheme."""
    return repr(url) if len(url) <= LONGEST_SHOWN and not {*url} & {*"@?"} else f"{url.partition(':')[0][:20]}:…"


def _meant(url: str) -> str:
    """Return, as a question, the store that is meant by a path without the scheme, or with too few slashes."""
    scheme, colon, rest = url.partition(":")
    if scheme.startswith(("postgresql+", "postgres+")):
        return f" (do you mean postgresql:, without {scheme.partition('+')[2][:20]!r}?)"
    path = rest if scheme == "sqlite" else "" if colon else url
    name = path.lstrip("/")
    if not name or path.endswith("/") or {*path} & {*"@?"}:
        return ""
    slashes = "////" if path.startswith("/") and not path.startswith("//") else "///"
    return f" (do you mean sqlite:{slashes}{name}?)"


def open_look(url: str) -> StoreLook:
    """Open a store for reading from outside. SettingsError for a store in memory; StoreUnavailable if there is none."""
    if _is_postgres(url):
        with _with_driver():
            from tocsin.storage.postgres.snapshot import PostgresLook
        return PostgresLook(url)
    return SnapshotReader(_file_of(url))


def back_up(url: str, target: Path) -> int:
    """Make a consistent copy of a file while others write, and return its size in bytes. It overwrites nothing."""
    if _is_postgres(url):
        from tocsin.storage.postgres.address import read_url

        schema = read_url(url).schema
        raise SettingsError(
            f"{place_of(url)} is copied with the tools of PostgreSQL: pg_dump --format=custom --schema={schema}, or "
            "what backs up the whole server. `tocsin move` brings a stopped store into a new file"
        )
    return back_up_sqlite(_file_of(url), target)


def place_of(url: str) -> str:
    """Return the place of a store, always in the same words, without a password. SettingsError for one in memory."""
    if _is_postgres(url):
        with _with_driver():
            from tocsin.storage.postgres.address import read_url
        return read_url(url).place
    return f"sqlite:///{_file_of(url)}"


def is_file(url: str) -> bool:
    """Tell whether the store is a file."""
    return url.partition(":")[0] == "sqlite"


async def is_there(url: str) -> bool:
    """Tell whether there is a store, without making one."""
    if _is_postgres(url):
        with _with_driver():
            from tocsin.storage.postgres.snapshot import has_store
        return await has_store(url)
    return _file_of(url).exists()


async def hosts_of(url: str) -> Sequence[str]:
    """Return the names of the hosts that are up on a store that several share; of a file there is none to name."""
    if not _is_postgres(url):
        return ()
    with _with_driver():
        from tocsin.storage.postgres.engine import PostgresEngine
    engine = PostgresEngine(url)
    try:
        await engine.open()
        return [one.name for one in await engine.hosts() if one.lease_left_ms > 0 and not one.session_gone]
    finally:
        await engine.close()


def file_beside(url: str, ending: str) -> Path:
    """Return a name for a file next to the store. SettingsError for one that is no file."""
    path = _file_of(url)
    return path.with_name(path.name + ending)


def _file_of(url: str) -> Path:
    provider = open_provider(url)
    if not isinstance(provider, SQLiteProvider):
        where = f"is {place_of(url)}" if _is_postgres(url) else "lives in its process only"
        raise SettingsError(f"this is done with the file of a SQLite store, and the store {where}")
    return provider.path
