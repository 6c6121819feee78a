"""Whom connections trust: the system's authorities, and one's own."""

from __future__ import annotations

import os
import ssl
from typing import TypeAlias

from tocsin.errors import SettingsError

CaFile: TypeAlias = str | os.PathLike[str]
"""PEM, with one or more certificates."""


def trusting(ca_file: CaFile | None = None, name: str = "ca_file") -> ssl.SSLContext:
    """Return a client's context that trusts the system's authorities, and those in `ca_file` beside them.

    The file is read now. SettingsError if it cannot be, or holds no certificate; `name` is what it is called there.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        _add(context, ca_file, name)
    return context


def check_ca_file(ca_file: CaFile, name: str = "ca_file") -> None:
    """Raise a SettingsError as `trusting` does, at a tenth of the price."""
    _add(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca_file, name)


def _add(context: ssl.SSLContext, ca_file: CaFile, name: str) -> None:
    try:
        path = os.fspath(ca_file)
        with open(path, "rb") as file:
            file.read(1)  # OpenSSL does not say which file it was, nor what was wrong with it
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise SettingsError(f"{name}: {path} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)") from None
    except (OSError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SettingsError(f"{name}: {ca_file!r} cannot be read: {why}") from None
