"""A follower's watch over the holder: one that was stopped by a signal is ended, since it may stand in the middle of a
transaction, and would go on with it at any time."""

from __future__ import annotations

import logging
import math
from typing import Final

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.sharing.door import Door, Neighbour
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
        if stopped >= LOOKS and not told:
            told = not _end(holder)
            stopped = silent = 0
        elif is_stopped is None and not told:
            told = True
            log.error(
                "%s holds the store and does not answer, and cannot be seen from here (it may be in another container):"
                " this process waits until it answers or ends",
                holder.name(),
            )


class ClosedDoor:
    """A watch over a holder that lets nobody in: it may have been stopped before it had opened its door, or after it
    had closed it."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door, self._clock = door, clock
        self._began = self._looked = -math.inf
        self._stopped = 0
        self._told = False

    async def look(self) -> None:
        """Look after the holder; to be called at each try to reach it that fails."""
        now = self._clock.monotonic()
        since = now - self._looked
        if since < PING_S:
            return
        self._looked = now
        if since > PING_S + LATE_S:  # the first time, or this process stood still
            self._began, self._stopped = now, 0
        if now - self._began < SILENT * PING_S or (holder := self._door.holder()) is None:
            return
        try:
            self._stopped = self._stopped + 1 if await holder.is_stopped() else 0
            if self._stopped >= LOOKS and not self._told:
                self._told = not _end(holder)
                self._stopped = 0
        finally:
            holder.forget()


def _end(holder: Neighbour) -> bool:
    """End a holder that was stopped; return whether this process may."""
    try:
        holder.kill()
    except PermissionError:
        log.error(
            "%s holds the store and was stopped by a signal (SIGSTOP), and this process may not end it: continue it "
            "(SIGCONT) or end it (SIGKILL) as its user or as root; until then this process waits",
            holder.name(),
        )
        return False
    log.error(
        "%s holds the store and was stopped by a signal (SIGSTOP): it is ended by SIGKILL, so that another one may "
        "take the store over",
        holder.name(),
    )
    return True
