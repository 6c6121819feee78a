"""The transport seam: post bytes, get a status, headers and a bounded body. No engine is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. Header names are lower case; repeated ones are joined with `, `."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """As it came: compressed, if the receiver did so."""
    cut: bool = False
    """True if the body went over the limit: this is its beginning, and the rest was not read."""


class TransportError(Exception):
    """The exchange broke. Its text is for people: no URL credentials, no secret."""


class NeverConnected(TransportError):
    """No byte of the request can have arrived: name lookup, refusal, TLS, connect timeout."""


class BrokenExchange(TransportError):
    """Connected, then broken, reset or malformed: the receiver may or may not have acted."""


class DeadlinePassed(TransportError):
    """Connected, then no complete answer in time: the receiver may still be at it."""


class Transport(Protocol):
    """How bytes reach a receiver. Redirects are never followed, environment proxies and netrc never used."""

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        max_body: int,
    ) -> Answer:
        """Send one POST under one total deadline of `timeout` seconds, connecting within `connect_timeout`.

        Of a body longer than `max_body` the beginning is returned, and the connection closed. All transports take the
        same for an answer. Raises a TransportError. Cancelling the call closes its connection and leaks nothing.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        ...


def tell_connections(transport: Transport, tell: Callable[[], None]) -> None:
    """Let it call this for each connection that it has made: ours does, and one of a user's that has `on_connected`."""
    if hasattr(transport, "on_connected"):
        transport.on_connected = tell


def reopen(transport: Transport) -> None:
    """Let it connect for another life of its host: ours can, one of a user's if it has a `reopen`."""
    again = getattr(transport, "reopen", None)
    if again is not None:
        again()
