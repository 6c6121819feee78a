"""Follow up a settlement that is on disk: attempts are counted, and hooks are called."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.worker.attempt import Report
from tocsin.dispatch.worker.trouble import stops

log = logging.getLogger("tocsin.worker")

PATIENCE_S: Final = 30.0
ENDS: Final = ("done", "retrying", "dead", "cancelled", "expired")

OnRetry = Callable[[Claimed, BaseException, int | None], Any]
"""`on_retry(job, error, next_attempt_at)`; epoch ms by the host's clock."""
OnFinalFailure = Callable[[Claimed, BaseException, str | None], Any]
"""`on_final_failure(job, error, reason)`: why it is dead."""


@dataclass(slots=True)
class Tally:
    """Attempts of a worker by how they ended. `lost`: another attempt's by then, or the host did not answer.

    `hook_failures`: calls of `on_retry`, `on_final_failure` and `on_heartbeat` that did not end well, each of them.
    """

    claimed: int = 0
    done: int = 0
    retrying: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    lost: int = 0
    hook_failures: int = 0


class Hooks:
    """Runs hooks in tasks of their own: they delay no job, and what they raise is logged and counted."""

    def __init__(self, tally: Tally, on_retry: OnRetry | None, on_final_failure: OnFinalFailure | None) -> None:
        self._tally, self._on_retry, self._on_final_failure = tally, on_retry, on_final_failure
        self._running: set[asyncio.Task[None]] = set()

    def heard(self, job: Claimed, report: Report) -> None:
        """Count how an attempt ended, and call the hook for it."""
        settlement = report.settlement
        if settlement is None:
            self._tally.lost += report.lost
            return
        if settlement.state in ENDS:
            setattr(self._tally, settlement.state, getattr(self._tally, settlement.state) + 1)
        error = None if report.ending is None else report.ending.cause
        if error is None:
            return
        if settlement.state == "retrying" and self._on_retry is not None:
            self._start("on_retry", job, self._on_retry, error, settlement.next_attempt_at)
        elif settlement.state == "dead" and self._on_final_failure is not None:
            self._start("on_final_failure", job, self._on_final_failure, error, settlement.reason)

    def failed(self) -> None:
        """Count a call of a hook that did not end well."""
        self._tally.hook_failures += 1

    async def ended(self) -> None:
        """Wait until all hooks have ended; each has 30 s."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self, name: str, job: Claimed, hook: Callable[..., Any], *said: Any) -> None:
        task = asyncio.create_task(self._run(name, job, hook, *said))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, name: str, job: Claimed, hook: Callable[..., Any], *said: Any) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                ran = hook(job, *said)
                if inspect.isawaitable(ran):
                    await ran
        except BaseException as error:  # SystemExit and groups too: the settlement it is told of stands
            self.failed()
            if stops(error) or isinstance(error, (KeyboardInterrupt, GeneratorExit)):
                raise
            log.error("job %s: the hook %s failed", job.id, name, exc_info=error)
