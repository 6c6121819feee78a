"""More callers than can be served: what is held for strangers is bounded, and who runs the server is told.

Callers without a token may settle what they hold a lease of, so their bodies are read before anything is known of them.
All of them together may hold `MOST_BYTES` that are not whole yet: beyond, whoever began first is cut off. A caller that
sends at once what it has to say is served while thousands dawdle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tocsin.actors.http.errors import BodyCutOffError, BodyTooSlowError
from tocsin.actors.scheduler.model.health import in_order, level
from tocsin.actors.scheduler.model.records import HealthReason, Status

log = logging.getLogger("tocsin.http")

BODY_S: Final = 60.0
"""For a whole body, whoever sends it."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of unfinished bodies of strangers, together. The largest body that a stranger may send is far below."""
SAID_EVERY_S: Final = 60.0
"""How often the log says the same."""
LASTS_S: Final = 10.0
"""For how long after it was last so `/readyz` says it."""


class Unfinished:
    """A body that is being read. `size`: what is held of it."""

    def __init__(self, timeout: asyncio.Timeout, grew: Callable[[Unfinished, int], None]) -> None:
        self.size = 0
        self.was_cut = False
        self._timeout, self._grew = timeout, grew

    def add(self, size: int) -> None:
        self._grew(self, size)

    def cut(self) -> None:
        """Make its reader raise at once."""
        self.was_cut = True
        if not self._timeout.expired():
            self._timeout.reschedule(0)


class Crowd:
    """The resources that unauthenticated callers of one app hold, and the limits reached."""

    def __init__(
        self, monotonic: Callable[[], float], most_bytes: int = MOST_BYTES, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._monotonic, self._most, self._now_ms = monotonic, most_bytes, now_ms
        self._unfinished: dict[Unfinished, None] = {}  # in the order in which they began
        self.held = 0
        self._last: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._times: dict[str, int] = {}
        self._words: dict[str, tuple[str, int]] = {}

    # ---- Bodies ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Unfinished]:
        """Hold a stranger's body, each piece of which is added. BodyTooSlowError after BODY_S, BodyCutOffError if
        others needed its place."""
        one: Unfinished | None = None
        try:
            async with asyncio.timeout(BODY_S) as timeout:
                one = Unfinished(timeout, self._grew)
                self._unfinished[one] = None
                yield one
        except TimeoutError:
            if one is not None and one.was_cut:
                raise BodyCutOffError(
                    "too many requests without a token are unfinished, and this was the oldest: send it again, at once"
                ) from None
            raise too_slow() from None
        finally:
            if one is not None:
                self._let_go(one)

    def _grew(self, one: Unfinished, size: int) -> None:
        if one.was_cut:
            return  # a piece of it was on its way; its reader ends at once, and nobody else gives way to it
        one.size += size
        self.held += size
        while self.held > self._most and (oldest := next(iter(self._unfinished))) is not one:
            oldest.cut()
            self._let_go(oldest)
            self.note(
                "BODIES_FULL",
                f"unfinished requests without a token hold {self._most} bytes, the limit: the oldest ones are cut off",
            )

    def _let_go(self, one: Unfinished) -> None:
        if self._unfinished.pop(one, one) is None:
            self.held -= one.size

    # ---- What is said ----------------------------------------------------------------------------

    def note(self, code: str, words: str) -> None:
        """Note a limit that was reached: `/readyz` shows the code for a while, the log the words once a minute."""
        now = self._monotonic()
        if code not in self.reasons():
            self._words[code] = words, self._now_ms()
        self._last[code] = now
        self._times[code] = self._times.get(code, 0) + 1
        if code not in self._said or now - self._said[code] >= SAID_EVERY_S:
            self._said[code] = now
            log.warning("%s (%d times since the start)", words, self._times[code])

    def reasons(self) -> tuple[str, ...]:
        """Return the codes of the limits that were reached just now."""
        now = self._monotonic()
        return tuple(code for code, last in self._last.items() if now - last < LASTS_S)

    def seen(self, status: Status) -> Status:
        """Return the status with the same in words: a limit of the server concerns every instance."""
        if not (reasons := [HealthReason(code, *self._words[code]) for code in self.reasons()]):
            return status
        found = in_order([*status.reasons, *reasons])
        return msgspec.structs.replace(status, health=level(found), reasons=found)


def too_slow() -> BodyTooSlowError:
    """Return the refusal of a body that did not arrive in time."""
    return BodyTooSlowError(f"the body did not arrive within {BODY_S:g} s: send it again, faster")
