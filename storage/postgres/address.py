"""The URL of a PostgreSQL store: where it is, and what may be shown of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from tocsin.errors import SettingsError
from tocsin.storage.ownership.timing import Timing

SCHEMES: Final = ("postgresql", "postgres")
SCHEMA: Final = "tocsin"
CONNECTIONS: Final = 9
FEWEST_CONNECTIONS: Final = 4
CONNECT_S: Final = 5.0
SHARE_OF_SILENT: Final = 0.4
TIMES: Final = ("ttl", "beat", "margin")
_SCHEMA_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,29}")
"""Names that need no quotes, and leave room for a host's id in the name of a channel."""
_OURS: Final = frozenset({"schema", "connections", "connect_timeout", "application_name", *TIMES})
_ENCODE: Final = "write % : / ? # [ ] @ in a user, password or database as %25 %3A %2F %3F %23 %5B %5D %40"


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL. `dsn` is for the driver, and never to be shown."""

    dsn: str = field(repr=False)
    hosts: tuple[tuple[str, int], ...]
    """Servers to be tried in this order; none: those that the driver knows of (`PGHOST`, a socket)."""
    schema: str
    connections: int
    """Most connections of one process."""
    connect_s: float
    """Time for one connection to one server."""
    application: str
    """The name under which the server lists this program."""
    timing: Timing
    """Times of a host of this store."""
    secrets: tuple[str, ...] = field(repr=False)
    """Texts that must not be shown."""
    place: str
    """The store, for people: without a password."""
    silent: set[tuple[str, int]] = field(default_factory=set, repr=False, compare=False)
    """Servers that did not say a word when they were tried last, as a machine that is gone. They are tried last."""

    @property
    def in_turn(self) -> list[tuple[str, int]]:
        """Return the servers in the order in which they are to be tried."""
        return sorted(self.hosts, key=lambda server: server in self.silent)

    def wait_for(self, server: tuple[str, int], most_s: float) -> float:
        """Return the time that a server gets to answer: where others might answer meanwhile, no more than `most_s`, and
        less if it was silent."""
        if len(self.hosts) < 2:
            return self.connect_s
        return min(self.connect_s, most_s) * (SHARE_OF_SILENT if server in self.silent else 1.0)

    def heard(self, server: tuple[str, int], answered: bool) -> None:
        """Note whether a server said a word."""
        if answered:
            self.silent.discard(server)
        else:
            self.silent.add(server)


def read_url(url: str) -> Address:
    """Take a URL apart; SettingsError, which never shows it."""
    parts = _split(url)
    query = _query(parts)
    _check_names(query)
    schema = query.pop("schema", SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise SettingsError(
            f"schema={schema[:40]!r} in the URL of the store must be 1 to 30 of a-z 0-9 _, and begin with a letter "
            "or _, but not with pg_"
        )
    connections = _number(query, "connections", CONNECTIONS, FEWEST_CONNECTIONS, 1_000)
    connect_s = _number(query, "connect_timeout", CONNECT_S, 1, 3_600)
    application = query.pop("application_name", SCHEMA)
    timing = Timing.from_texts({name: query.pop(name) for name in TIMES if name in query})
    hosts = _hosts(parts.netloc.rpartition("@")[2], query)
    dsn = parts._replace(query=urlencode(query)).geturl()
    if not parts.netloc:  # geturl leaves `//` out before an empty place
        dsn = dsn.replace(f"{parts.scheme}:/", f"{parts.scheme}:///", 1)
    secrets = {query.get("password"), query.get("sslpassword"), parts.password, unquote(parts.password or "")}
    place = _place(parts, query, hosts, schema)
    return Address(
        dsn, hosts, schema, int(connections), connect_s, application, timing, tuple(filter(None, secrets)), place
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SettingsError(f"the URL of the store cannot be read: {_ENCODE}") from None
    if parts.scheme not in SCHEMES:
        raise SettingsError("the URL of the store must begin with postgresql://")
    path = parts.path.removeprefix("/")
    if parts.netloc.count("@") > 1 or parts.fragment or {*path} & {*"/@:"}:
        raise SettingsError(f"the URL of the store cannot be read: {_ENCODE}")
    return parts


def _query(parts: SplitResult) -> dict[str, str]:
    try:
        return dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise SettingsError(
            "what stands behind the ? in the URL of the store cannot be read: write it as schema=tocsin&sslmode=require"
        ) from None


def _check_names(query: Mapping[str, str]) -> None:
    """Refuse what is nearly the name of a setting; others are for the driver and the server, which know theirs."""
    for name in query.keys() - _OURS:
        if near := get_close_matches(name, _OURS, 1, 0.85):
            raise SettingsError(f"unknown setting {name[:40]!r} in the URL of the store: did you mean {near[0]}?")


def _number(query: dict[str, str], name: str, default: float, least: int, most: int) -> float:
    text = query.pop(name, None)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise SettingsError(f"{name}={text[:40]!r} in the URL of the store must be a whole number, {least} to {most}")
    return int(text)


def _hosts(spec: str, query: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return the servers. As for other programs, those of the place stand before `host` in the query."""
    ports = query.get("port", "").split(",")
    places = [unquote(one) for one in spec.split(",")] if spec else query.get("host", "").split(",")
    if places == [""]:
        return ()
    found = []
    for number, place in enumerate(places):
        host, port = _host(place)
        found.append((host, port or ports[number if len(ports) > 1 and number < len(ports) else 0] or "5432"))
    if not all(host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536 for host, port in found):
        raise SettingsError(
            f"a server in the URL of the store must be a name or an address, and its port 1 to 65535; {_ENCODE}"
        )
    return tuple((host, int(port)) for host, port in found)


def _host(place: str) -> tuple[str, str]:
    if place.startswith("/"):  # the folder of a socket
        return place, ""
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port


def _place(parts: SplitResult, query: Mapping[str, str], hosts: tuple[tuple[str, int], ...], schema: str) -> str:
    shown = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts)
    database = parts.path.removeprefix("/") or query.get("dbname") or query.get("database") or ""
    return f"postgresql://{shown}/{database}" + (f"?schema={schema}" if schema != SCHEMA else "")
