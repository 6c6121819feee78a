"""A host and its HTTP face in one process, from settings to a drained stop.

What can be refused is refused before anything runs: the address, then the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
from collections.abc import Callable, Iterator
from typing import Final

import anyio

from tocsin.actors.actor_host import ActorHost
from tocsin.cli.connections import OTHERS, descriptors_allowed, room_for
from tocsin.cli.failure import Interrupted
from tocsin.cli.http_server import Server, bind, loop_factory, url_of
from tocsin.cli.reloading import Reload
from tocsin.cli.service_manager import tell
from tocsin.cli.signals import STOP_SIGNALS, at_signals
from tocsin.cli.words import say
from tocsin.dispatch.allowed_urls import AllowedUrls
from tocsin.settings import Settings
from tocsin.settings_origins import as_options

log = logging.getLogger("tocsin.http")

THRESHOLDS: Final = (10_000, 20, 20)
"""Objects made and not freed between two collections of garbage; collections between two of older objects."""


def run(settings: Settings, read: Callable[[], Settings], *, access_log: bool = False) -> None:
    """Serve until SIGINT or SIGTERM; a second one ends the process. `read` reads the settings again."""
    with (
        contextlib.closing(bind(settings.host, settings.port)) as listener,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(serve_until_stopped(Reload(settings, read), listener, access_log=access_log))


async def serve_until_stopped(reload: Reload, listener: socket.socket, *, access_log: bool) -> None:
    """Open the store, answer requests until told to stop, then drain.

    The order of the blocks is the order of the stop: first no new requests, then no new callbacks, then the store.
    """
    settings = reload.settings
    stop = _Stop()
    async with (
        at_signals(stop.ask, *STOP_SIGNALS),
        reload.at_hangup(otherwise=stop.ask),
        _open_host(settings, reload) as host,
    ):
        app = host.asgi(tokens=reload.tokens, insecure=not settings.tokens)
        server = Server(app, access_log=access_log, most=_most_connections(settings))
        if stop.attach(server, host):
            async with anyio.create_task_group() as beside:
                beside.start_soon(_announce, server, settings, listener)
                beside.start_soon(reload.watch, host.runtime.clock)
                with collecting_rarely():
                    await server.serve(sockets=[listener])
                beside.cancel_scope.cancel()


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Have garbage sought for less often, and only among what was made from now on.

    Nearly all that a request makes is freed when its last reference goes: Python's own thresholds would look at it,
    in vain, for a tenth of the time that a request takes. What the start has made stays to the end.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _most_connections(settings: Settings) -> int:
    """Return how many connections of callers fit beside the callbacks."""
    named = (one.get("max_in_flight", settings.max_in_flight) for one in settings.origins.values())
    allowed, callbacks = descriptors_allowed(), sum(named, settings.max_in_flight)
    most = room_for(allowed, callbacks)
    if (needed := most + callbacks + OTHERS) > allowed:
        log.warning(
            "%d files may be open (ulimit -n), and %d callbacks and %d connections at once need %d: allow more, or "
            "lower TOCSIN_MAX_IN_FLIGHT (--max-in-flight)",
            allowed, callbacks, most, needed,
        )  # fmt: skip
    return most


def _open_host(settings: Settings, reload: Reload) -> ActorHost:
    return ActorHost.open(
        settings.all_stores,
        residency=settings.residency,
        share=False,  # other processes reach it over HTTP
        peer_address=settings.peer_address,
        origin=settings.origin_url,
        callback_path=settings.callback_path,
        secrets=reload.secrets,
        origins=as_options(settings.origins, reload.secrets_to),
        cool_on_retry_after=settings.cool_on_retry_after,
        allow_urls=AllowedUrls(settings.allow_urls, networks=settings.url_networks, secrets=reload.url_secrets),
        insecure=settings.insecure,
        lanes=settings.lanes,
        max_in_flight=settings.max_in_flight,
        timeout_ms=settings.timeout_ms,
        health_limits=settings.health_limits,
        heartbeat_url=settings.heartbeat_url,
        ca_file=settings.ca_file,
    )


class _Stop:
    """Stops a server by signals: the first ends the server, a second one the process.

    Ending the process is safe: all that was answered is on disk, and jobs under way are claimed again when their leases
    end.
    """

    def __init__(self) -> None:
        self._asked = False
        self._server: Server | None = None
        self._host: ActorHost | None = None

    def attach(self, server: Server, host: ActorHost) -> bool:
        """Let the next signal stop this server. Return False if one has come before."""
        self._server, self._host = server, host
        return not self._asked

    def ask(self) -> None:
        if self._asked:
            say("tocsin: stopped at once; what was under way is tried again after the next start")
            os._exit(Interrupted.exit_code)
        self._asked = True
        if self._server is not None:
            self._server.should_exit = True
        if self._host is not None:
            # The server lets requests end: a claim may wait for minutes, and other hosts take over meanwhile.
            self._host.stop_waiting()
        tell("STOPPING=1")
        with contextlib.suppress(OSError):  # the terminal may be gone
            say("tocsin: stopping; callbacks under way may finish (again: stop at once)")


async def _announce(server: Server, settings: Settings, listener: socket.socket) -> None:
    await server.ready.wait()
    if settings.origin_url is None:
        urls = " or a URL of the list" if settings.allow_urls else ""
        origin = f"no origin, so only jobs with a queue{urls} are taken until TOCSIN_ORIGIN_URL (--origin-url) is set"
    else:
        signed = "signed" if settings.secrets else "UNSIGNED"
        origin = f"{signed} callbacks to {settings.origin_url}{settings.callback_path}"
    if settings.origins:
        origin += f", named origins {', '.join(sorted(settings.origins))}"
    file = f", settings of {settings.config.absolute()}" if settings.config is not None else ""
    url, store = url_of(listener), settings.shown_store
    tell("READY=1", f"STATUS=serving {url}")
    say(f"tocsin: serving {url}, store {store}{file}, {origin}, dashboard {url}/ui")
