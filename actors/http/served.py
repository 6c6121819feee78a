"""Name what the HTTP face asks of the host that it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from tocsin.actors.runtime.host import Host
from tocsin.actors.scheduler.actor.measures import Measures
from tocsin.actors.scheduler.client.port import SchedulerPort, TransferPort
from tocsin.actors.scheduler.inflight.passes import Passes
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.moving import Imported
from tocsin.actors.scheduler.model.records import HealthReason, InstancePage
from tocsin.actors.scheduler.queries.instances import Shown
from tocsin.actors.scheduler.transfer.manifest import Manifest
from tocsin.errors import TocsinError


class ServedHost(Protocol):
    """Answer what HTTP asks, as an `ActorHost` does. HTTP stands below that, so HTTP names here what it needs."""

    runtime: Host

    @property
    def ready(self) -> bool: ...
    @property
    def trouble(self) -> TocsinError | None: ...
    @property
    def ports(self) -> Callable[[str], SchedulerPort]: ...
    @property
    def passes(self) -> Passes: ...
    async def look(self) -> None: ...
    def health(self) -> Sequence[HealthReason]: ...
    async def exported(self, name: str) -> tuple[Manifest, AsyncIterator[bytes]]: ...
    async def load(
        self, name: str, pieces: AsyncIterator[bytes], *, same_jobs: bool | None, paused: bool | None, who: AskedBy
    ) -> Imported: ...
    def transfers(self, name: str, who: AskedBy) -> TransferPort: ...
    async def measures(self) -> Measures: ...
    async def instances(self, *, cursor: str | None, limit: int, shown: Shown | None) -> InstancePage: ...
