"""The options of `ActorHost.open`: which there are, and what each may be. Every refusal is a SettingsError."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from inspect import Parameter, signature
from random import Random
from typing import Any, Final

from tocsin.actors.scheduler.inflight.origins import NamedOrigin
from tocsin.actors.scheduler.model.validation import TIMEOUT_MS
from tocsin.dispatch.certificates import CaFile, trusting
from tocsin.dispatch.current import Current
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.origin import Origin, check_origins
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.target import callback_url, is_loopback, origin_of
from tocsin.dispatch.transport import Transport
from tocsin.dispatch.transports import NAMES, default_transport
from tocsin.dispatch.words import kind_of, meant
from tocsin.errors import SettingsError

Secrets = Sequence[str | bytes]
"""Each is `whsec_` and base64, or at least 24 raw bytes. All of them sign, the first one first."""
MADE_HERE: Final = frozenset({"has_origin", "named_origins", "network", "sharing"})
"""Parameters of a host that `open` makes of its own."""


def check_names(given: Mapping[str, object], *takers: Callable[..., Any]) -> None:
    """Refuse an option that none of the takers has as a keyword, and name the nearest one."""
    if not given:
        return
    parameters = [one for taker in takers for one in signature(taker).parameters.values()]
    known = {one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY} - MADE_HERE
    if unknown := min((name for name in given if name not in known), default=None):
        raise SettingsError(
            f"ActorHost.open has no option {unknown}{meant(unknown, known)}: choose from {', '.join(sorted(known))}"
        )


def check_transport(name: str, transport: object) -> None:
    """Refuse what cannot send: each callback would fail by it."""
    if isinstance(transport, type) or not all(callable(getattr(transport, each, None)) for each in ("post", "aclose")):
        what = f"the class {transport.__name__}" if isinstance(transport, type) else kind_of(transport)
        raise SettingsError(
            f"{name} must be one of {', '.join(NAMES)}, or an object with the coroutines post and aclose, not {what}"
        )


def transports_of(
    transport: Transport | str | None, ca_file: CaFile | None, options: dict[str, Any]
) -> Callable[[], Transport]:
    """Return what makes a transport for each origin, or hands out the one that was given; a heartbeat that is wanted
    and has no transport gets one that trusts the same."""
    if transport is not None and not isinstance(transport, str):
        check_transport("transport", transport)
        if ca_file is not None:
            raise SettingsError("ca_file is for the transport that tocsin makes: give your own its certificates")
        given = transport
        return lambda: given
    trusted = None if ca_file is None else trusting(ca_file)
    if trusted is not None and options.get("heartbeat_url") and options.get("heartbeat_transport") is None:
        options["heartbeat_transport"] = default_transport(ssl_context=trusted)
    name = transport
    return lambda: default_transport(name, ssl_context=trusted)


def dispatcher_to(
    url: str | Callable[[], str | None] | None, signer: Current[Signer | None], path: str, transport: Transport,
    random: Random,
) -> Dispatcher:  # fmt: skip
    """Make what sends to one origin."""
    signing = signer if signer.may_change else signer()
    return Dispatcher(transport, signing, url, path=path, random=random, version=version("tocsin"))


def to_named(
    origins: Mapping[str, Origin] | None, transport_to: Callable[[], Transport], random: Random, *, insecure: bool
) -> dict[str, NamedOrigin]:
    """Make what sends to each named origin. SettingsError, which names it, for what cannot be used."""
    made: dict[str, NamedOrigin] = {}
    for name, origin in check_origins({} if origins is None else origins).items():
        try:
            signer = Current("secrets", origin.secrets, signer_of)
            check_first(origin.url, origin.callback_path, signer, insecure=insecure)
            dispatcher = dispatcher_to(origin.url, signer, origin.callback_path, transport_to(), random)
        except SettingsError as error:
            raise SettingsError(f"origins[{name!r}]: {error.message}") from None
        made[name] = NamedOrigin(dispatcher, origin.max_in_flight)
    return made


def signer_of(secrets: Secrets) -> Signer | None:
    """Return what signs with these secrets; None without any."""
    return Signer(secrets) if secrets else None


def has_origin(read: Callable[[], object]) -> bool:
    """Return whether there is an origin. One that is wrong or cannot be read counts: jobs wait until it is right."""
    try:
        return origin_of(read) is not None
    except SettingsError:
        return True


def check_first(
    origin: str | Callable[[], str | None] | None, path: str, signer: Current[Signer | None], *, insecure: bool
) -> None:
    """Check where callbacks go as things stand now, if that is known."""
    first = origin_of(origin) if callable(origin) else origin
    if first is not None:
        check_target(callback_url(first, path), signed=signer() is not None, insecure=insecure)


def check_target(url: str, *, signed: bool, insecure: bool) -> None:
    """Refuse unsigned callbacks, except to loopback if the user allowed them."""
    if signed:
        return
    if not insecure:
        raise SettingsError(
            "callbacks would go out unsigned: give secrets=[...] (TOCSIN_SECRETS; `whsec_` + base64), "
            "or say insecure=True (--insecure) for a loopback origin"
        )
    if not is_loopback(url):
        raise SettingsError(f"insecure is for loopback origins only, and {url} is not one: give secrets=[...]")


def check_options(
    authorize_fire: object,
    occurrences_kept: object,
    timeout_ms: object,
    lanes: object,
    max_in_flight: object,
    mailbox_limit: object,
    idle_after_s: object,
    dead_retention_s: object,
    max_jobs: object,
    drain_s: object,
) -> None:
    """Refuse values that could never work, naming the option, the value and the limit."""
    if authorize_fire is not None and not callable(authorize_fire):
        raise SettingsError(f"authorize_fire must be a function, not {type(authorize_fire).__name__}")
    within("occurrences_kept", occurrences_kept, 10, 1_000_000, whole=True)
    within("timeout_ms", timeout_ms, *TIMEOUT_MS, whole=True)
    within("lanes", lanes, 1, 1_000, whole=True)
    within("max_in_flight", max_in_flight, 1, 10_000, whole=True)
    within("mailbox_limit", mailbox_limit, 1, 1_000_000, whole=True)
    within("idle_after_s", idle_after_s, 0.01, 86_400 * 365)
    within("drain_s", drain_s, 0, 86_400)
    if dead_retention_s is not None:
        within("dead_retention_s", dead_retention_s, 1, 86_400 * 36_500)
    if max_jobs is not None:
        within("max_jobs", max_jobs, 1, 10**12, whole=True)


def cools(value: object) -> bool:
    """Return whether Retry-After cools the origin of a job without a pool."""
    if value not in ("none", "origin"):
        raise SettingsError(f"cool_on_retry_after must be none or origin, not {value!r}")
    return value == "origin"


def within(name: str, value: object, least: float, most: float, *, whole: bool = False) -> None:
    """Refuse a value that is no number between the limits."""
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise SettingsError(f"{name} must be {'a whole number' if whole else 'a number'}, not {value!r}")
    assert isinstance(value, (int, float))
    if not least <= value <= most:
        raise SettingsError(f"{name} must be {least}..{most}, not {value!r}")
