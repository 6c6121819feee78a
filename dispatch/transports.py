"""Which transport to use: our own, or the one asked for by name."""

from __future__ import annotations

import ssl
from importlib.util import find_spec
from typing import Final

from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.transport import Transport
from tocsin.errors import SettingsError

NAMES: Final = ("builtin", "aiohttp", "httpx")


def default_transport(
    name: str | None = None, *, ssl_context: ssl.SSLContext | None = None, addresses: Addresses | None = None
) -> Transport:
    """Return the transport of that name; without one, our own.

    SettingsError for a name that is unknown or not installed. Without a context the system's authorities count. With
    `addresses` it connects to those only that they permit, whatever a name leads to.
    """
    if name is None or name == "builtin":
        from tocsin.dispatch.builtin_transport import BuiltinTransport

        return BuiltinTransport(ssl_context=ssl_context, addresses=addresses)
    if name == "httpx":
        from tocsin.dispatch.httpx_transport import HttpxTransport

        return HttpxTransport(ssl_context=ssl_context, addresses=addresses)
    if name != "aiohttp":
        raise SettingsError(f"transport must be one of {', '.join(NAMES)}, not {name!r}")
    if find_spec("aiohttp") is None:
        raise SettingsError("the aiohttp transport needs aiohttp: pip install 'tocsin[aiohttp]'")
    from tocsin.dispatch.aiohttp_transport import AiohttpTransport

    return AiohttpTransport(ssl_context=ssl_context, addresses=addresses)
