"""`authorize_fire`: the embedding app's own rule, asked once for each attempt after its claim is on disk and before
anything is sent. What was allowed when a job was scheduled may be forbidden when the job fires."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any, Final

from tocsin.actors.scheduler.inflight.circuit import OPENS_AFTER, Broken
from tocsin.actors.scheduler.model.health import AUTHORIZE_FIRE_FAILING
from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.records import Firing, Record
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.dispatch.callback import AttemptOutcome, Verdict

log = logging.getLogger("tocsin.scheduler")

AuthorizeFire = Callable[[Firing], bool | Awaitable[bool]]
"""`authorize_fire(job) -> bool`, sync or async. True: send it; False: park it as dead, reason `blocked`."""
SHARE: Final = 2
"""The rule may take this fraction (one half) of the callback's deadline; the rest is left to the callback."""


class Guard:
    """Asks the rule about attempts. `monotonic` is in seconds."""

    def __init__(self, rule: AuthorizeFire, monotonic: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._rule, self._monotonic = rule, monotonic
        self._asked: set[asyncio.Future[_Answer]] = set()
        self._now_ms = now_ms
        self._failures, self._since = 0, 0
        self._message = ""

    @property
    def broken(self) -> Broken | None:
        """The fault of the rule, once it has failed five times in a row and until it answers."""
        if self._failures < OPENS_AFTER:
            return None
        return Broken(AUTHORIZE_FIRE_FAILING, self._message, self._since)

    async def ask(self, claim: Claim, instance: str, now_ms: int, timeout_ms: int) -> AttemptOutcome | int:
        """Return how many milliseconds of the deadline the rule took to allow the attempt; or how the attempt ends,
        unsent. Never raises.

        If the rule raises, takes too long or returns neither True nor False, the job waits, uncharged. So it does if a
        stop cancels the question, since nothing was sent.
        """
        answer = await self._ask(claim, instance, now_ms, timeout_ms)
        if not isinstance(answer, AttemptOutcome) or answer.verdict is not Verdict.UNREACHABLE:
            self._failures = 0
        elif answer is not CANCELLED:
            self._since = self._since if self._failures else self._now_ms()
            self._failures, self._message = self._failures + 1, answer.message or ""
        return answer

    async def _ask(self, claim: Claim, instance: str, now_ms: int, timeout_ms: int) -> AttemptOutcome | int:
        began, share_ms = self._monotonic(), timeout_ms // SHARE
        allowed, error = self._call(claim, instance, now_ms)
        if error is None and inspect.isawaitable(allowed):
            asked = asyncio.ensure_future(_awaited(allowed))
            self._asked.add(asked)
            asked.add_done_callback(self._asked.discard)
            try:
                await asyncio.wait([asked], timeout=share_ms / 1000)
            except asyncio.CancelledError:
                asked.cancel()
                return CANCELLED
            if not asked.done():
                asked.cancel()
                return unanswered(f"took longer than {share_ms} ms, half of the callback's deadline")
            allowed, error = asked.result()
        if isinstance(error, asyncio.CancelledError):
            return CANCELLED
        if error is not None:
            log.error(
                "authorize_fire raised for %s/%s", instance, claim.job.id, exc_info=error,
                extra={"instance": instance, "id": claim.job.id},
            )  # fmt: skip
            return unanswered(f"raised {type(error).__name__}")
        if allowed is False:
            return AttemptOutcome(Verdict.BLOCKED, "not sent: authorize_fire said no")
        if allowed is not True:
            # A rule that forgot its return must not kill every job.
            return unanswered(f"must return True or False, not {type(allowed).__name__}")
        took_ms = ceil((self._monotonic() - began) * 1000)
        return took_ms if took_ms <= share_ms else unanswered(f"took {took_ms} ms, more than half of the deadline")

    def _call(self, claim: Claim, instance: str, now_ms: int) -> _Answer:
        try:
            return self._rule(firing_of(claim, instance, now_ms)), None
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # as in `_awaited`
            return None, error


_Answer = tuple[Any, BaseException | None]


async def _awaited(answer: Awaitable[bool]) -> _Answer:
    """Await the rule in a task of its own, so that what it does when it is cancelled is not taken for an answer.

    An error is returned: a bug in the app's rule must neither send nor lose a job, and a SystemExit would end the loop.
    """
    try:
        return await answer, None
    except (KeyboardInterrupt, GeneratorExit):
        raise  # the process ends here
    except BaseException as error:
        return None, error


def unanswered(why: str) -> AttemptOutcome:
    """Make the outcome of an attempt that was not sent because the rule did not answer."""
    return AttemptOutcome(Verdict.UNREACHABLE, f"not sent: authorize_fire {why}", code=AUTHORIZE_FIRE_FAILING)


CANCELLED: Final = unanswered("was cancelled, as when the host stops")


def firing_of(claim: Claim, instance: str, now_ms: int) -> Firing:
    """Make the record of a claimed job, as `get` would show it at this instant."""
    record = Found(claim.job, leases=[(claim.token, claim.lease)], args=claim.args).record(now_ms)
    return Firing(**{name: getattr(record, name) for name in Record.__struct_fields__}, instance=instance)
