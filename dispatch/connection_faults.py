"""Why a connection failed, in words that do not depend on the HTTP library: the same for callbacks and for clients."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from tocsin.dispatch.addresses import AddressRefused

LONGEST_CHAIN: Final = 10
OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate that is not for this host name or address."""
NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})
"""Reasons that OpenSSL gives for a peer that answers a TLS greeting with something else."""
TLS_ALERT: Final = b"\x15\x03"
"""How a TLS server begins when it is greeted with something else."""
SPEAKS_TLS: Final = "the origin speaks TLS, the URL says http: it must begin with https://"


def in_words(error: BaseException, url: str = "") -> str:
    """Say what `error` means for a connection to `url`. Names host and port only: a URL may hold a password."""
    at = place_of(url)
    for one in _causes(error):
        if (words := _words(one, at)) is not None:
            return words
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def closed_in_words(url: str) -> str:
    """Say that the peer hung up before it answered. A TLS server does so to whoever greets it without TLS; not one
    that has answered on this connection before: then there is no URL."""
    said = "the connection was closed without an answer, as by a receiver that is killed"
    return f"{said}; if the origin speaks TLS, its URL must begin with https://" if url.startswith("http:") else said


def place_of(url: str) -> str:
    """Return host and port, or "the origin" where the URL is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "the origin"
    if not host:
        return "the origin"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Return the error and what it was made of, the innermost first: libraries wrap what the system said."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left and len(found) < LONGEST_CHAIN:
        one = left.pop()
        if one is None or one in found:
            continue
        found.append(one)
        left.append(one.__cause__ or one.__context__)  # httpcore suppresses the context that tells
        if isinstance(one, BaseExceptionGroup):
            left.extend(one.exceptions)
    return reversed(found)


def _words(one: BaseException, at: str) -> str | None:
    if isinstance(one, AddressRefused):
        return str(one)
    if isinstance(one, ssl.SSLError):
        return _of_tls(one, at)
    if isinstance(one, socket.gaierror):
        host, why = at.rpartition(":")[0] or at, one.strerror or "no such name"
        if one.errno == socket.EAI_AGAIN:
            return f"the name {host} cannot be looked up now: {why}"
        return f"the name {host} is not found: {why}"
    if isinstance(one, ConnectionRefusedError):
        return f"refused: nothing accepts connections at {at}"
    if isinstance(one, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)) and one.errno is not None:
        return f"{at} broke the connection off"
    if isinstance(one, TimeoutError):
        return f"the connection to {at} timed out"
    if isinstance(one, UnicodeError):
        return f"the host of the URL is no name: {at.rpartition(':')[0] or at}"
    if isinstance(one, OSError) and one.errno is not None:
        return f"no connection to {at}: {os.strerror(one.errno)}"
    return None


def _of_tls(one: ssl.SSLError, at: str) -> str:
    if isinstance(one, ssl.SSLCertVerificationError):
        why = str(one.verify_message or "verification failed").rstrip(".")
        if one.verify_code in OTHER_NAME:
            return f"the TLS certificate of {at} is for another name: {why}"
        return (
            f"the TLS certificate of {at} is not trusted: {why}; "
            "name the authority that issued it in TOCSIN_CA_FILE (ca_file=)"
        )
    if one.reason in NOT_TLS:
        return f"the URL says https, and what answers at {at} does not speak TLS"
    return f"the TLS handshake with {at} failed: {(one.reason or str(one)).replace('_', ' ').lower()}"
