"""Shared parts of the HTTP transports: how long a connection is kept, what they ask for, how failures are told."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.dispatch.connection_faults import in_words
from tocsin.dispatch.transport import BrokenExchange, DeadlinePassed, NeverConnected, TransportError

KEEP_ALIVE_S: Final = 1.5
"""Shorter than the 2 s (gunicorn) or 5 s (uvicorn, Node, Apache) after which servers close what is idle.

A request that meets a closing connection cannot be sent again in silence, since the receiver may have acted on
it, and would be charged as a failure. A fresh connection now and then costs less.
"""
ASKED: Final = {"accept": "*/*", "accept-encoding": "identity"}
"""Headers of every callback. A body that is compressed nevertheless is not unpacked, so it cannot swell in memory."""


class Bounds:
    """The two bounds of one call, under one timer: `connect_timeout` until `sending`, then `timeout` over all."""

    def __init__(self, connect_timeout: float, timeout: float, url: str = "") -> None:
        """Begin a call to `url`, whose host and port failures name."""
        start = asyncio.get_running_loop().time()
        self._connect_timeout, self._timeout = min(connect_timeout, timeout), timeout
        self._end = start + timeout
        self._sent, self._url = False, url
        self.scope = asyncio.timeout_at(start + self._connect_timeout)

    def sending(self) -> None:
        """Note that bytes of the request may arrive from now on. Before, no one can have received anything."""
        self._sent = True
        if not self.scope.expired():
            self.scope.reschedule(self._end)

    def failure(self, error: Exception, fault: str | None = None) -> TransportError:
        """Return what an exception that ended the call means. `fault` is what was wrong with the answer, if known."""
        late = self.scope.expired()
        if self._sent:
            return (
                DeadlinePassed(f"none after {self._timeout:g} s")
                if late
                else BrokenExchange(fault or in_words(error, self._url))
            )
        if late:
            return NeverConnected(f"no connection after {self._connect_timeout:g} s")
        return NeverConnected(in_words(error, self._url))
