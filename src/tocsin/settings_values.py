"""The values of settings: what each may be. Every error names the setting as it was written, and what to write
instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tocsin.errors import SettingsError
from tocsin.settings_origins import origin_secrets, origins

COOLS: Final = ("none", "origin")
LOG_FORMATS: Final = ("text", "json")


def as_text(value: object, label: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{label} must be a text that is not empty, not {value!r}")
    if "\0" in value:
        raise SettingsError(f"{label} must be a text without NUL characters, not {value!r}")
    return value.strip()


def _store(value: object, label: str) -> str:
    text = as_text(value, label)
    if ":" not in text:
        raise SettingsError(f"{label} must be a store URL like sqlite:///tocsin.db, not {text!r}")
    return text


def _stores(value: object, label: str) -> Mapping[str, str]:
    """Parse stores by name: a table, or `eu=URL us=URL` with spaces."""
    stores = _table(value, label, "eu=sqlite:///eu.db us=sqlite:///us.db")
    return {name: _store(url, f"{label}: {name}") for name, url in stores.items()}


def _residency(value: object, label: str) -> Mapping[str, str]:
    """Parse the store of each pattern: a table, or `eu-*=eu us-*=us` with spaces. Which stores there are is not known
    here."""
    return _table(value, label, "eu-*=eu us-*=us")


def _peer_address(value: object, label: str) -> str:
    from tocsin.actors.cluster.network import TcpNetwork

    address = as_text(value, label)
    try:
        TcpNetwork(address)
    except SettingsError as error:
        raise SettingsError(f"{label}: {error.message}") from None
    return address


def _table(value: object, label: str, example: str) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split()]
        table: dict[str, object] = {name: text for name, equals, text in pairs if name and equals and text}
        if len(table) != len(pairs):
            raise SettingsError(f"{label} must be like {example}, each name once")
        value = table
    if not isinstance(value, Mapping) or not all(isinstance(text, str) and text.strip() for text in value.values()):
        raise SettingsError(f"{label} must be a table of texts, or one text like {example}")
    return {str(name): str(text).strip() for name, text in value.items()}


def _whole(least: int, most: int, example: int) -> Callable[[object, str], int]:
    def parse(value: object, label: str) -> int:
        number = value
        if isinstance(value, str):
            digits = value.strip()
            number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise SettingsError(f"{label} must be a whole number {least}..{most}, like {example}, not {value!r}")
        return number

    return parse


def _flag(value: object, label: str) -> bool:
    if isinstance(value, bool):
        return value
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    known = words.get(str(value).strip().lower()) if isinstance(value, str) else None
    if known is None:
        raise SettingsError(f"{label} must be true or false, not {value!r}")
    return known


def _origin(value: object, label: str) -> str:
    from tocsin.dispatch.target import check_origin_url

    return check_origin_url(as_text(value, label), label)


def _heartbeat(value: object, label: str) -> str:
    from tocsin.actors.heartbeat import check_heartbeat

    return check_heartbeat(value.strip() if isinstance(value, str) else value, label)


def _health_limits(value: object, label: str) -> Mapping[str, int]:
    from tocsin.actors.scheduler.model.health_limits import health_limits

    limits: dict[str, Any] = {}
    if isinstance(value, str):
        for part in value.split(","):
            name, equals, number = (text.strip() for text in part.partition("="))
            if not equals or not (number.isascii() and number.isdecimal()) or name in limits:
                raise SettingsError(f"{label} must be limits like late_s=600,deaths=500, each once, not {value!r}")
            limits[name] = int(number[:20])
    elif isinstance(value, Mapping):
        limits.update(value)
    else:
        raise SettingsError(f"{label} must be a table like {{ late_s = 600 }}, not {value!r}")
    try:
        health_limits(limits)
    except SettingsError as error:
        raise SettingsError(f"{label}: {error.message.removeprefix('health_limits: ')}") from None
    return limits


def _ca_file(value: object, label: str) -> str:
    from tocsin.dispatch.certificates import check_ca_file

    path = as_text(value, label)
    check_ca_file(path, label)
    return path


def _cool_on_retry_after(value: object, label: str) -> str:
    text = value.strip().lower() if isinstance(value, str) else value
    if text not in COOLS:
        raise SettingsError(f"{label} must be {' or '.join(COOLS)}, not {value!r}")
    return str(text)


def _log_format(value: object, label: str) -> str:
    text = value.strip().lower() if isinstance(value, str) else value
    if text not in LOG_FORMATS:
        raise SettingsError(f"{label} must be text or json, not {value!r}")
    return str(text)


def _path(value: object, label: str) -> str:
    from tocsin.dispatch.target import check_path

    return check_path(as_text(value, label), label)


def _parts(value: object, label: str) -> Iterator[str]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)):
        raise SettingsError(f"{label} must be a list of texts, or one text with commas")
    for each in listed:
        if not isinstance(each, str):
            raise SettingsError(f"{label} must hold texts only")
        if each.strip():
            yield each.strip()


def _secrets(value: object, label: str) -> tuple[str, ...]:
    from tocsin.dispatch.signing import Signer

    secrets = tuple(_parts(value, label))
    try:
        if secrets:
            Signer(secrets)
    except SettingsError as error:
        raise SettingsError(f"{label}: {error.message}") from None
    return secrets


def _allow_urls(value: object, label: str) -> tuple[str, ...]:
    from tocsin.dispatch.url_list import UrlList

    entries = tuple(_parts(value, label))
    UrlList(entries, label)
    return entries


def _url_networks(value: object, label: str) -> tuple[str, ...]:
    from tocsin.dispatch.addresses import Addresses

    networks = tuple(_parts(value, label))
    Addresses(networks, label)
    return networks


def _tokens(value: object, label: str) -> tuple[str, ...]:
    from tocsin.actors.http.tokens import parse_tokens

    tokens = tuple(_parts(value, label))
    try:
        parse_tokens(tokens)
    except SettingsError as error:
        raise SettingsError(f"{label}: {error.message.removeprefix('tokens: ')}") from None
    return tokens


PARSERS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "store": _store,
    "stores": _stores,
    "residency": _residency,
    "peer_address": _peer_address,
    "host": as_text,
    "port": _whole(0, 65_535, 8321),
    "origin_url": _origin,
    "callback_path": _path,
    "origins": origins,
    "origin_secrets": origin_secrets,
    "cool_on_retry_after": _cool_on_retry_after,
    "secrets": _secrets,
    "allow_urls": _allow_urls,
    "url_networks": _url_networks,
    "url_secrets": _secrets,
    "tokens": _tokens,
    "lanes": _whole(1, 100_000, 64),
    "max_in_flight": _whole(1, 1_000_000, 256),
    "timeout_ms": _whole(1_000, 3_600_000, 60_000),
    "insecure": _flag,
    "health_limits": _health_limits,
    "heartbeat_url": _heartbeat,
    "ca_file": _ca_file,
    "log_format": _log_format,
}
