"""Make what sends callbacks to the URLs that jobs name, of the list that a host is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from random import Random
from typing import Any, Final

from tocsin.actors.host_options import Secrets, check_target, check_transport, signer_of, within
from tocsin.actors.scheduler.inflight.origins import NamedOrigin
from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.allowed_urls import AllowedUrls
from tocsin.dispatch.certificates import CaFile, trusting
from tocsin.dispatch.current import Current
from tocsin.dispatch.origin import MAX_IN_FLIGHT, URL, Origin
from tocsin.dispatch.transport import Transport
from tocsin.dispatch.transports import default_transport
from tocsin.dispatch.url_dispatcher import UrlDispatcher
from tocsin.dispatch.url_list import UrlList
from tocsin.errors import SettingsError

NAME: Final = "allow_urls"


def url_origin(
    given: Sequence[str] | AllowedUrls,
    secrets: Secrets | Callable[[], Secrets],
    transport: Transport | str | None,
    ca_file: CaFile | None,
    random: Random,
    *,
    insecure: bool,
) -> dict[str, NamedOrigin]:
    """Return it under the name by which rows know it; nothing without a list. SettingsError for what cannot be used.

    `secrets` and `transport` are the host's, for what the list itself leaves out.
    """
    allowed = given if isinstance(given, AllowedUrls) else AllowedUrls(given)
    urls = allowed.entries if isinstance(allowed.entries, UrlList) else UrlList(allowed.entries, NAME)
    if not urls.entries:
        return {}
    if allowed.max_in_flight is not None:
        within(f"{NAME}: max_in_flight", allowed.max_in_flight, *MAX_IN_FLIGHT, whole=True)
    signer = Current(f"{NAME}: secrets", _secrets(allowed.secrets, secrets), signer_of)
    if signer() is None:
        for entry in urls.entries:
            try:
                check_target(entry, signed=False, insecure=insecure)
            except SettingsError as error:
                raise SettingsError(f"{NAME}: {error.message}") from None
    sends = allowed.transport if allowed.transport is not None else transport if isinstance(transport, str) else None
    if sends is None or isinstance(sends, str):
        trusted = None if ca_file is None else trusting(ca_file)
        sends = default_transport(sends, ssl_context=trusted, addresses=Addresses(allowed.networks))
    elif allowed.networks:
        raise SettingsError(f"{NAME}: networks are for the transport that tocsin makes: yours checks addresses itself")
    check_transport(f"{NAME}: transport", sends)
    signing = signer if signer.may_change else signer()
    dispatcher = UrlDispatcher(sends, signing, urls, random=random, version=version("tocsin"))
    return {URL: NamedOrigin(dispatcher, allowed.max_in_flight)}


def shapes_of(origins: Mapping[str, Origin] | None, urls: Sequence[str] | AllowedUrls) -> dict[str, Any]:
    """Return what two processes of one store are to have in common of where callbacks may go."""
    shapes: dict[str, Any] = {}
    if origins:
        shapes["origins"] = {name: asdict(one) for name, one in origins.items()}
    if urls:
        allowed = urls if isinstance(urls, AllowedUrls) else AllowedUrls(urls)
        alike = ("entries", "networks", "secrets", "max_in_flight")
        shapes["allow_urls"] = {name: getattr(allowed, name) for name in alike}
    return shapes


def _secrets(own: Secrets | Callable[[], Secrets], of_host: Secrets | Callable[[], Secrets]) -> Any:
    """Return the list's own secrets, or else the host's: asked for at each use where one of them is."""
    if not callable(own):
        return own or of_host
    ask = own
    return lambda: ask() or (of_host() if callable(of_host) else of_host)
