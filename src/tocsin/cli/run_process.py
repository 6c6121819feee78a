"""A host in a process of its own that does what is due and ends, or ends at a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from tocsin.actors.actor_host import ActorHost
from tocsin.cli.failure import Interrupted
from tocsin.cli.http_server import loop_factory
from tocsin.cli.signals import STOP_SIGNALS, at_signals
from tocsin.cli.words import say
from tocsin.dispatch.allowed_urls import AllowedUrls
from tocsin.settings import Settings
from tocsin.settings_origins import as_options

if TYPE_CHECKING:
    from tocsin.actors.scheduler.model.due_run import DueRun


def run_once(settings: Settings, end: int | None, max_seconds: float | None) -> DueRun:
    """Do what is due, also until the instant `end` (epoch ms). Raise Interrupted if a signal came first."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run(settings, end, max_seconds))


async def _run(settings: Settings, end: int | None, max_seconds: float | None) -> DueRun:
    host = ActorHost.open(
        settings.store,
        origin=settings.origin_url,
        callback_path=settings.callback_path,
        secrets=settings.secrets,
        origins=as_options(settings.origins, settings.secrets_to),
        cool_on_retry_after=settings.cool_on_retry_after,
        allow_urls=AllowedUrls(settings.allow_urls, networks=settings.url_networks, secrets=settings.url_secrets),
        insecure=settings.insecure,
        lanes=settings.lanes,
        max_in_flight=settings.max_in_flight,
        timeout_ms=settings.timeout_ms,
        ca_file=settings.ca_file,
        dispatch=False,
    )
    stop = _Stop()
    async with at_signals(stop.ask, *STOP_SIGNALS), host:
        return await stop.until_asked(host, end, max_seconds)


class _Stop:
    """Ends a run by signals: the first lets callbacks under way end, a second one ends the process."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    def ask(self) -> None:
        if self._asked.is_set():
            say("tocsin: stopped at once; what was under way is tried again when its lease ends")
            os._exit(Interrupted.exit_code)
        self._asked.set()
        with contextlib.suppress(OSError):  # the terminal may be gone
            say("tocsin: stopping; callbacks under way may finish (again: stop at once)")

    async def until_asked(self, host: ActorHost, end: int | None, max_seconds: float | None) -> DueRun:
        """Return what the run did; raise Interrupted if a signal came before it was done."""
        run = asyncio.create_task(host.run_due(end, max_seconds=max_seconds))
        asked = asyncio.create_task(self._asked.wait())
        await asyncio.wait([run, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if run.done():
            return await run
        run.cancel()
        await asyncio.wait([run])
        raise Interrupted("stopped before all that is due was done")
