"""`SyncDeferred`: jobs of one block, submitted together at its end, for code that blocks.

Written by scripts/sync_client.py of `Deferred`: change that, and run the script."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar, Unpack

from tocsin.actors.client.blocking import Blocking
from tocsin.actors.scheduler.client.deferred import Deferred
from tocsin.actors.scheduler.client.job_checks import JobOptions
from tocsin.dispatch.values import LEFT_OUT

T = TypeVar("T")


class SyncDeferred:
    """Jobs of one `with` block. At its end they are submitted in one commit; if it raises, none. As `Deferred`."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking = blocking
        self._deferred: Deferred = blocking.run(lambda client: client.scheduler(name).deferred())

    def _run(self, ask: Callable[[Deferred], T]) -> T:
        return self._blocking.run(lambda _: ask(self._deferred))

    def __enter__(self) -> Self:
        self._blocking.call(lambda _: self._deferred.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._blocking.call(lambda _: self._deferred.__aexit__(kind, error, trace))

    def run_at(
        self,
        at: datetime | int,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Add a job due at an instant; its id. Arguments, and errors for wrong ones, as for `Scheduler.run_at`.

        InvalidInputError for more than 1,000 jobs in a block, PayloadTooLargeError for more than fits one commit;
        the block may go on without that job.
        """
        return self._run(lambda it: it.run_at(at, path, args, workflow=workflow, **options))

    def run_after(
        self,
        delay: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Add a job due after a delay, counted from this call; its id. The rest as `run_at`."""
        return self._run(lambda it: it.run_after(delay, path, args, workflow=workflow, **options))

    def run_debounced(
        self,
        debounce: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Add a call that puts off the job of its id, counted from the end of the block; its id. See
        `Scheduler.run_debounced`."""
        return self._run(lambda it: it.run_debounced(debounce, path, args, workflow=workflow, **options))
