"""A follower's watch over the holder: one that was stopped by a signal is ended, since it may stand in the middle of a
transaction, and would go on with it at any time."""

from __future__ import annotations

import logging
from typing import Final

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.sharing.door import Neighbour
from tocsin.actors.sharing.link import Link

log = logging.getLogger("tocsin.sharing")

PING_S: Final = 0.2
SILENT: Final = 3
"""So many pings are unanswered before the process is looked at."""
LOOKS: Final = 2
"""So many looks, one ping apart, must find it stopped."""
LATE_S: Final = 0.2
"""A pause that took so much longer says that this process itself stood still, and had no right to an answer."""


async def watch(link: Link, holder: Neighbour, clock: Clock) -> None:
    """Look after the holder until the link ends. Only a holder that is stopped is ended; one that is busy is not."""
    silent = stopped = 0
    told = False
    while not link.is_lost:
        heard, began = link.heard, clock.monotonic()
        link.ping()
        await clock.sleep(PING_S)
        if clock.monotonic() - began > PING_S + LATE_S or link.heard != heard:
            silent = stopped = 0
            continue
        silent += 1
        if silent < SILENT or link.is_lost:
            continue
        is_stopped = await holder.is_stopped()
        stopped = stopped + 1 if is_stopped else 0
        if stopped >= LOOKS:
            log.error(
                "%s holds the store and was stopped by a signal (SIGSTOP): it is ended by SIGKILL, so that another one "
                "may take the store over",
                holder.name(),
            )
            holder.kill()
            stopped = silent = 0
        elif is_stopped is None and not told:
            told = True
            log.error(
                "%s holds the store and does not answer, and cannot be seen from here (it may be in another container):"
                " this process waits until it answers or ends",
                holder.name(),
            )
