"""Load a server's settings: from options, then `TOCSIN_…`, then a TOML file, then defaults.
Every error names the setting, as it was written, and what to write instead; secrets are never shown."""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tocsin.errors import SettingsError
from tocsin.settings_origins import take_secrets
from tocsin.settings_values import PARSERS, as_text

CONFIG_FILE: Final = "tocsin.toml"
PREFIX: Final = "TOCSIN_"
HIDDEN: Final = ("secrets", "origin_secrets", "url_secrets", "tokens")
"""Settings whose values are never shown; they may also be given as files."""
PATHS: Final = ("ca_file",)
"""Settings that name a file; one in a settings file is relative to that file."""
SERVICE_LINK: Final = re.compile(r"(tcp|udp|sctp)://\S+", re.IGNORECASE)
"""The value that Kubernetes gives TOCSIN_PORT in pods beside a service called `tocsin`."""
Stamp = tuple[int, ...] | None
"""The identity of a file's content, which changes when it is written or replaced; None without a file."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """All that `tocsin serve` needs to know. `sources` says where each value came from, `files` which files were
    looked into, and how they stood before they were read."""

    store: str = "sqlite:///tocsin.db"
    stores: Mapping[str, str] = field(default_factory=dict)
    residency: Mapping[str, str] = field(default_factory=dict)
    peer_address: str | None = None
    host: str = "127.0.0.1"
    port: int = 8321
    origin_url: str | None = None
    callback_path: str = "/_tocsin/callback"
    origins: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origin_secrets: tuple[str, ...] = ()
    cool_on_retry_after: str = "none"
    secrets: tuple[str, ...] = ()
    allow_urls: tuple[str, ...] = ()
    url_networks: tuple[str, ...] = ()
    url_secrets: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    lanes: int = 64
    max_in_flight: int = 256
    timeout_ms: int = 60_000
    insecure: bool = False
    health_limits: Mapping[str, int] = field(default_factory=dict)
    heartbeat_url: str | None = None
    ca_file: str | None = None
    log_format: str = "text"
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    files: Mapping[Path, Stamp] = field(default_factory=dict, compare=False)
    config: Path | None = field(default=None, compare=False)
    """The TOML file, if there is one."""

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.shown().items())})"

    @property
    def bound_to_loopback(self) -> bool:
        """Return whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def shown_store(self) -> str:
        """Return the store's URL, or those of all stores by name, without passwords."""
        stores = self.all_stores
        if isinstance(stores, str):
            return _without_password(stores)
        return ", ".join(f"{name} {_without_password(url)}" for name, url in stores.items())

    @property
    def all_stores(self) -> str | dict[str, str]:
        """Return the store's URL, or those of several by name: a `store` that is given beside them is `default`."""
        if not self.stores:
            return self.store
        given = self.sources.get("store", "default") != "default"
        if given and "default" in self.stores:
            raise SettingsError(f"{self.sources['store']} and the store default are both given: keep one of them")
        return ({"default": self.store} if given else {}) | dict(self.stores)

    @property
    def shown_heartbeat(self) -> str | None:
        """Return where heartbeats go, without the path, which is usually secret."""
        return (
            self.heartbeat_url and f"{urlsplit(self.heartbeat_url).scheme}://{urlsplit(self.heartbeat_url).netloc}/..."
        )

    def secrets_to(self, origin: str) -> tuple[str, ...]:
        """Return the secrets of a named origin."""
        return tuple(
            secret for name, _, secret in (one.partition("=") for one in self.origin_secrets) if name == origin
        )

    def shown(self) -> dict[str, Any]:
        """Return every setting and its value, with secrets and tokens counted instead of shown."""
        values = {name: getattr(self, name) for name in NAMES}
        values["store"] = _without_password(self.store)
        values["stores"] = {name: _without_password(url) for name, url in self.stores.items()}
        values["heartbeat_url"] = self.shown_heartbeat
        for name in HIDDEN:
            values[name] = f"({len(values[name])} given)" if values[name] else None
        return values


def _without_password(url: str) -> str:
    address, mark, _ = url.partition("?")
    before, at, after = address.rpartition("@")
    scheme, separator, user = before.partition("://")
    shown = f"{scheme}://{user.partition(':')[0]}@{after}" if at and separator else address
    return f"{shown}?…" if mark else shown


NAMES: Final = tuple(each.name for each in fields(Settings) if each.name not in ("sources", "files", "config"))


def load(
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    directory: Path | None = None,
    needed: Collection[str] = NAMES,
) -> Settings:
    """Load the settings; SettingsError names the first one that is wrong.

    `options` are keyed like `Settings`, plus `config`, `secrets_file` and `tokens_file`; None means not given.
    `environ` is the environment (an empty variable counts as not given). A relative `--config`, and the default
    `tocsin.toml`, are looked for in `directory`, the working directory if not given. Only the values of `needed` are
    looked at: the others have their defaults, so that a wrong one is no error of a command that does without it.
    """
    directory = directory or Path()
    files: dict[Path, Stamp] = {}
    path = _config_path(options, environ, directory, files)
    layers = [
        _Layer({name: value for name, value in options.items() if name != "config"}, _as_option, directory, files),
        _Layer(_from_environ(environ), _as_variable, directory, files),
    ]
    if path is not None:
        layers.append(_Layer(_from_toml(path), lambda name: f"{name} in {path}", path.parent, files))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in needed:
        found = next((hit for layer in layers if (hit := layer.find(name)) is not None), None)
        if found is None:
            sources[name] = "default"
        else:
            values[name], sources[name] = found
    take_secrets(values, sources)
    return Settings(**values, sources=sources, files=files, config=path)


def stamp(path: Path) -> Stamp:
    """Return the identity of the file at a path, links followed; equal until someone writes or replaces it."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None  # a pipe gives what it holds only once
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def renewed(running: Settings, read: Settings) -> Settings:
    """Return the settings of a running server with newly read secrets and tokens.

    SettingsError if they would take away a protection that is there: a server that asks for tokens, or signs, does
    so until it ends.
    """
    for name in HIDDEN:
        if getattr(running, name) and not getattr(read, name):
            raise SettingsError(
                f"{_as_variable(name)} are given no more; a running server does not do without: restart it for that"
            )
    return replace(running, **{name: getattr(read, name) for name in HIDDEN}, files=read.files)


def check_server(settings: Settings) -> None:
    """Refuse to serve others than this machine without tokens."""
    if settings.tokens or settings.bound_to_loopback:
        return
    raise SettingsError(
        f"{settings.sources.get('host', 'host')} {settings.host} is reachable from other machines, so tokens are "
        "needed: set TOCSIN_TOKENS (name:scope+scope:secret, for example ops:admin:<32 random characters>) "
        "or TOCSIN_TOKENS_FILE, or bind to 127.0.0.1"
    )


# ---- Layers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layer:
    """One place settings come from; `label` says how that place spells a name."""

    values: Mapping[str, Any]
    label: Callable[[str], str]
    directory: Path
    files: dict[Path, Stamp]

    def find(self, name: str) -> tuple[Any, str] | None:
        value, label = self.values.get(name), self.label(name)
        if name in HIDDEN and (file := self.values.get(f"{name}_file")) is not None:
            if value is not None:
                raise SettingsError(f"{label} and {self.label(f'{name}_file')} are both given: keep one of them")
            label = self.label(f"{name}_file")
            path = self.directory / as_text(file, label)
            self.files[path] = stamp(path)
            value = _read_secret_file(path, label)
        if name in PATHS and isinstance(value, str) and value.strip():
            value = str(self.directory / value.strip())
        if value is None:
            return None
        return PARSERS[name](value, label), label


def _as_option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _as_variable(name: str) -> str:
    return PREFIX + name.upper()


def _config_path(
    options: Mapping[str, Any], environ: Mapping[str, str], directory: Path, files: dict[Path, Stamp]
) -> Path | None:
    named, label = options.get("config"), "--config"
    if named is None:
        named, label = environ.get("TOCSIN_CONFIG") or None, "TOCSIN_CONFIG"
    if named is None:
        default = directory / CONFIG_FILE
        files[default] = stamp(default)
        return default if default.is_file() else None
    path = directory / str(named)
    files[path] = stamp(path)
    if not path.is_file():
        raise SettingsError(f"{label}: there is no file {path}")
    return path


def _from_environ(environ: Mapping[str, str]) -> dict[str, str]:
    names = (*NAMES, *(f"{name}_file" for name in HIDDEN))
    given = {name: environ.get(_as_variable(name), "") for name in names}
    if SERVICE_LINK.fullmatch(given["port"].strip()):
        del given["port"]
    return {name: value for name, value in given.items() if value.strip()}


def _from_toml(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:  # also numbers and nesting that Python's reader has no words for
        raise SettingsError(f"{path} is not TOML: {error}") from None
    known = {*NAMES, *(f"{name}_file" for name in HIDDEN)}
    if unknown := sorted(values.keys() - known):
        raise SettingsError(f"{path}: unknown setting {unknown[0]!r}; choose from {', '.join(sorted(known))}")
    return values


def _read_secret_file(path: Path, label: str) -> str:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"{label}: {path} cannot be read: {reason}") from None
    if not text.replace(",", "").strip():
        raise SettingsError(f"{label}: {path} is empty")
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("# "):  # long enough it would be taken for a secret, and one that others can read
            raise SettingsError(f"{label}: line {number} of {path} is a comment, and the file may hold none")
    return ",".join(lines)
