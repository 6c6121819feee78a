"""The settings of named origins: a table of each, or their URLs in one text, and their secrets apart, so that those are
never shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tocsin.errors import SettingsError

EXAMPLE: Final = "billing=https://billing.example crm=https://crm.example"
SECRETS_EXAMPLE: Final = "billing=whsec_...,crm=whsec_..."
MEMBERS: Final = ("url", "callback_path", "max_in_flight", "secrets")


def origins(value: object, label: str) -> Mapping[str, Mapping[str, Any]]:
    """Parse origins by name: tables, or `billing=URL crm=URL` with spaces. `take_secrets` takes what tables hold."""
    from tocsin.dispatch.origin import MOST, check_origin_name

    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split()]
        tables: dict[str, Any] = {name: {"url": url} for name, equals, url in pairs if name and equals and url}
        if len(tables) != len(pairs):
            raise SettingsError(f"{label} must be like {EXAMPLE}, each name once")
        value = tables
    if not isinstance(value, Mapping) or not all(isinstance(one, Mapping) for one in value.values()):
        raise SettingsError(f"{label} must be a table of tables ([origins.billing]), or one text like {EXAMPLE}")
    if len(value) > MOST:
        raise SettingsError(f"{label}: {len(value)} given, at most {MOST} allowed")
    return {check_origin_name(name, label): _origin(one, f"{label}: {name}") for name, one in value.items()}


def _origin(given: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    from tocsin.dispatch.origin import MAX_IN_FLIGHT
    from tocsin.dispatch.target import check_origin_url, check_path

    if unknown := sorted(given.keys() - set(MEMBERS)):
        raise SettingsError(f"{label}: unknown setting {unknown[0]!r}; choose from {', '.join(MEMBERS)}")
    if "url" not in given:
        raise SettingsError(f"{label} needs a url, where its callbacks go")
    made: dict[str, Any] = {"url": check_origin_url(given["url"], f"{label}.url")}
    if "callback_path" in given:
        made["callback_path"] = check_path(given["callback_path"], f"{label}.callback_path")
    least, most = MAX_IN_FLIGHT
    if "max_in_flight" in given:
        number = given["max_in_flight"]
        if type(number) is not int or not least <= number <= most:
            raise SettingsError(f"{label}.max_in_flight must be a whole number {least}..{most}, not {number!r}")
        made["max_in_flight"] = number
    if "secrets" in given:
        made["secrets"] = _checked(given["secrets"], f"{label}.secrets")
    return made


def origin_secrets(value: object, label: str) -> tuple[str, ...]:
    """Parse secrets of named origins, each as `name=whsec_...`; of several for a name the first one signs first."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) for one in listed):
        raise SettingsError(f"{label} must be a list of texts, or one text like {SECRETS_EXAMPLE}")
    found = tuple(one.strip() for one in listed if one.strip())
    for number, one in enumerate(found, 1):
        name, equals, secret = one.partition("=")
        if not equals or not name or name.startswith("whsec_"):
            raise SettingsError(f"{label}: entry {number} must be like {SECRETS_EXAMPLE.partition(',')[0]}")
        _checked([secret], f"{label}: {name}")
    return found


def _checked(value: object, label: str) -> tuple[str, ...]:
    from tocsin.dispatch.signing import Signer

    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or not all(isinstance(one, str) for one in listed):
        raise SettingsError(f"{label} must be a list of texts, or one text with commas")
    secrets = tuple(one.strip() for one in listed if one.strip())
    try:
        Signer(secrets)
    except SettingsError as error:
        raise SettingsError(f"{label}: {error.message}") from None
    return secrets


def take_secrets(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Move the secrets that stand in tables of origins to those that are never shown. SettingsError for secrets of an
    origin that is not there, or that are given in both places."""
    named: Mapping[str, Mapping[str, Any]] = values.get("origins", {})
    apart: tuple[str, ...] = values.get("origin_secrets", ())
    if not named and not apart:
        return
    for name in dict.fromkeys(one.partition("=")[0] for one in apart):
        if "origins" in sources and name not in named:
            raise SettingsError(
                f"{sources['origin_secrets']}: there is no origin {name!r}: choose from "
                f"{', '.join(sorted(named)) or '(none)'}"
            )
        if "secrets" in named.get(name, {}):
            raise SettingsError(
                f"{sources['origins']} and {sources['origin_secrets']} both give secrets of {name}: keep one of them"
            )
    inside = tuple(f"{name}={secret}" for name, one in named.items() for secret in one.get("secrets", ()))
    if inside:
        values["origin_secrets"] = (*apart, *inside)
        if not apart:
            sources["origin_secrets"] = sources["origins"]
    if named:
        values["origins"] = {
            name: {key: each for key, each in one.items() if key != "secrets"} for name, one in named.items()
        }


def as_options(named: Mapping[str, Mapping[str, Any]], secrets_to: Callable[[str], Sequence[str]]) -> dict[str, Any]:
    """Return the origins as a host takes them. Their secrets are asked for at each callback, where they may change."""
    from tocsin.dispatch.origin import Origin

    def reader(name: str) -> Callable[[], Sequence[str]]:
        return lambda: secrets_to(name)

    return {name: Origin(**one, secrets=reader(name)) for name, one in named.items()}
