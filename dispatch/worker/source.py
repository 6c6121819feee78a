"""The source of a worker's jobs: a scheduler in this process, or one that is reached over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tocsin.dispatch.durations import Duration
from tocsin.dispatch.pulled import Claimed, Settlement, WorkerInfo, WorkerSnapshot
from tocsin.dispatch.receiver.outcomes import HandlerError


class Source(Protocol):
    """The part of a scheduler that a worker uses. A `tocsin.Scheduler` has it, of a host or of a `Client`."""

    async def claim(
        self,
        queue: str | Sequence[str] = "*",
        *,
        max: int = 1,
        lease_ms: int = 60_000,
        wait: Duration = 20,
        worker: WorkerInfo | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Claimed]:
        """Wait until at least one job is there, or `wait` is over (then none). Cancelled, it gives back what it got."""
        ...

    async def settle(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | HandlerError | None = None,
        retryable: bool = True,
        delay: Duration | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> Settlement:
        """Book how the attempt ended, on disk when it returns. StaleLeaseError if its lease may not settle it."""
        ...

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the lease until `lease_ms` from now. StaleLeaseError, with `cancelled` if the job was cancelled."""
        ...

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        """Say how the worker is."""
        ...
