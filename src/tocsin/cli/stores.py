"""Options and failures of commands that open a store instead of talking to a server."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Final

import click

from tocsin.cli.failure import StoreUnusable, WrongSettings, settings_checked
from tocsin.cli.words import printable

DEFAULT: Final = "sqlite:///tocsin.db"


def store_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--store` and `--config`, and the store's URL as first argument. What goes wrong with the store
    ends it with exit code 4. A command with an argument `place` gets the URL of the file or the store that it names."""

    @click.option("--store", metavar="URL", envvar="TOCSIN_STORE", help=f"The store (default: {DEFAULT}).")
    @click.option("--config", metavar="FILE", envvar="TOCSIN_CONFIG", help="TOML file (default: tocsin.toml).")
    @click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout, one value a line.")
    @functools.wraps(function)
    def run(*args: Any, store: str | None, config: str | None, **options: Any) -> None:
        from tocsin.errors import StoreError

        try:
            with settings_checked():
                place = options.pop("place", None)
                url = _placed(place, config) if place else _url(store, config) if store else _configured(config)
                function(url, *args, **options)
        except StoreError as error:
            raise StoreUnusable(f"{error}{_advice(error)}") from None

    return run


def _placed(place: str, config: str | None) -> str:
    """Return the URL of a file, or of what else names a store."""
    if ":" in place or (not os.path.exists(place) and place in _stores(config)):
        return _url(place, config)
    return f"sqlite:///{place}"


def _url(store: str, config: str | None) -> str:
    """Check a store URL, or find that of a store by its name; for a plain path, name the URL to write instead."""
    if ":" not in store:
        if store in (named := _stores(config)):
            return named[store]
        raise WrongSettings(f"--store (TOCSIN_STORE) must be a store URL: sqlite:///{printable(store)}, not {store!r}")
    return store


def _configured(config: str | None) -> str:
    """Read the configured store, only where none is named: the other settings may be another user's secrets."""
    from tocsin.settings import load

    stores = load({"config": config}, os.environ, needed=("store", "stores")).all_stores
    if isinstance(stores, str):
        return stores
    if len(stores) > 1:
        raise WrongSettings(f"there are several stores, and this is about one: --store {' or --store '.join(stores)}")
    return next(iter(stores.values()))


def _stores(config: str | None) -> dict[str, str]:
    """Return the configured stores by name; TOCSIN_STORE, which may be such a name here, is none of them."""
    from tocsin.settings import load

    environ = {name: value for name, value in os.environ.items() if name != "TOCSIN_STORE"}
    stores = load({"config": config}, environ, needed=("store", "stores")).all_stores
    return {} if isinstance(stores, str) else stores


def _advice(error: Exception) -> str:
    from tocsin.errors import StoreCorrupt

    return f"\n{DAMAGED}" if isinstance(error, StoreCorrupt) else ""


DAMAGED: Final = """\
The file was not touched. What to do:
  1. stop every server on it, and copy it away together with its -wal file
  2. restore the last good copy made by `tocsin backup`
  3. without one, `sqlite3 FILE .recover` may bring rows into a new file;
     check that one with `tocsin check`"""
