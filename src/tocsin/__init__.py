"""tocsin: durable scheduling for Python, one actor per tenant.

The public names. They are imported when first used, so the command line starts without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.actors.actor_host import ActorHost as ActorHost
    from tocsin.actors.actor_host import Stub as Stub
    from tocsin.actors.cron.builder import Cron as Cron
    from tocsin.actors.outbox.databases import AsyncpgDatabase as AsyncpgDatabase
    from tocsin.actors.outbox.databases import SQLAlchemyDatabase as SQLAlchemyDatabase
    from tocsin.actors.outbox.databases import SQLiteDatabase as SQLiteDatabase
    from tocsin.actors.outbox.drain import Drain as Drain
    from tocsin.actors.outbox.entry import Outbox as Outbox
    from tocsin.actors.outbox.entry import OutboxEntry as OutboxEntry
    from tocsin.actors.outbox.remote import OutboxClient as OutboxClient
    from tocsin.actors.outbox.table import ParkedRow as ParkedRow
    from tocsin.actors.runtime.actor import Actor as Actor
    from tocsin.actors.runtime.actor import ActorContext as ActorContext
    from tocsin.actors.scheduler.client.deferred import Deferred as Deferred
    from tocsin.actors.scheduler.client.scheduler import Job as Job
    from tocsin.actors.scheduler.client.scheduler import Scheduler as Scheduler
    from tocsin.actors.scheduler.client.schedules import Schedules as Schedules
    from tocsin.actors.scheduler.inflight.deaths import DeadJob as DeadJob
    from tocsin.actors.scheduler.model.records import Cancelled as Cancelled
    from tocsin.actors.scheduler.model.records import DeadRetried as DeadRetried
    from tocsin.actors.scheduler.model.records import Firing as Firing
    from tocsin.actors.scheduler.model.records import Initiator as Initiator
    from tocsin.actors.scheduler.model.records import Page as Page
    from tocsin.actors.scheduler.model.records import Pending as Pending
    from tocsin.actors.scheduler.model.records import Queue as Queue
    from tocsin.actors.scheduler.model.records import Record as Record
    from tocsin.actors.scheduler.model.records import Scheduled as Scheduled
    from tocsin.actors.scheduler.model.records import ScheduleSlot as ScheduleSlot
    from tocsin.actors.scheduler.model.records import Status as Status
    from tocsin.actors.scheduler.model.schedule_records import CronPreview as CronPreview
    from tocsin.actors.scheduler.model.schedule_records import Occurrence as Occurrence
    from tocsin.actors.scheduler.model.schedule_records import OccurrencePage as OccurrencePage
    from tocsin.actors.scheduler.model.schedule_records import Registration as Registration
    from tocsin.actors.scheduler.model.schedule_records import SchedulePage as SchedulePage
    from tocsin.actors.scheduler.model.schedule_records import SchedulePut as SchedulePut
    from tocsin.actors.scheduler.model.schedule_records import ScheduleRecord as ScheduleRecord
    from tocsin.actors.scheduler.model.schedule_records import TriggeredRun as TriggeredRun
    from tocsin.dispatch.catalog.catalog import Catalog as Catalog
    from tocsin.dispatch.pulled import Claimed as Claimed
    from tocsin.dispatch.pulled import Settlement as Settlement
    from tocsin.dispatch.pulled import WorkerInfo as WorkerInfo
    from tocsin.dispatch.pulled import WorkerSnapshot as WorkerSnapshot
    from tocsin.dispatch.receiver.dedup import MemoryDedup as MemoryDedup
    from tocsin.dispatch.receiver.dedup import NoDedup as NoDedup
    from tocsin.dispatch.receiver.lease_client import LeaseClient as LeaseClient
    from tocsin.dispatch.receiver.outcomes import Accepted as Accepted
    from tocsin.dispatch.receiver.outcomes import RetryLater as RetryLater
    from tocsin.dispatch.receiver.outcomes import TerminalError as TerminalError
    from tocsin.dispatch.receiver.received import Leased as Leased
    from tocsin.dispatch.receiver.received import Received as Received
    from tocsin.dispatch.receiver.receiver import Receiver as Receiver
    from tocsin.dispatch.receiver.sqlite_dedup import SQLiteDedup as SQLiteDedup
    from tocsin.dispatch.retry import Retry as Retry
    from tocsin.dispatch.signing import Signer as Signer
    from tocsin.dispatch.worker.context import Context as Context
    from tocsin.dispatch.worker.handlers import Handlers as Handlers
    from tocsin.dispatch.worker.lease import LeaseLostError as LeaseLostError
    from tocsin.dispatch.worker.remote import RemoteScheduler as RemoteScheduler
    from tocsin.dispatch.worker.worker import Worker as Worker
    from tocsin.errors import JobFailedError as JobFailedError
    from tocsin.errors import NotYetError as NotYetError
    from tocsin.errors import TocsinError as TocsinError
    from tocsin.storage.memory import MemoryProvider as MemoryProvider
    from tocsin.storage.sqlite.provider import SQLiteProvider as SQLiteProvider

_HOMES = {
    "Accepted": "tocsin.dispatch.receiver.outcomes",
    "Actor": "tocsin.actors.runtime.actor",
    "ActorContext": "tocsin.actors.runtime.actor",
    "ActorHost": "tocsin.actors.actor_host",
    "AsyncpgDatabase": "tocsin.actors.outbox.databases",
    "Cancelled": "tocsin.actors.scheduler.model.records",
    "Catalog": "tocsin.dispatch.catalog.catalog",
    "Claimed": "tocsin.dispatch.pulled",
    "Context": "tocsin.dispatch.worker.context",
    "Cron": "tocsin.actors.cron.builder",
    "CronPreview": "tocsin.actors.scheduler.model.schedule_records",
    "DeadRetried": "tocsin.actors.scheduler.model.records",
    "DeadJob": "tocsin.actors.scheduler.inflight.deaths",
    "Deferred": "tocsin.actors.scheduler.client.deferred",
    "Drain": "tocsin.actors.outbox.drain",
    "Firing": "tocsin.actors.scheduler.model.records",
    "Handlers": "tocsin.dispatch.worker.handlers",
    "Initiator": "tocsin.actors.scheduler.model.records",
    "Job": "tocsin.actors.scheduler.client.scheduler",
    "JobFailedError": "tocsin.errors",
    "LeaseClient": "tocsin.dispatch.receiver.lease_client",
    "LeaseLostError": "tocsin.dispatch.worker.lease",
    "Leased": "tocsin.dispatch.receiver.received",
    "MemoryDedup": "tocsin.dispatch.receiver.dedup",
    "MemoryProvider": "tocsin.storage.memory",
    "NoDedup": "tocsin.dispatch.receiver.dedup",
    "NotYetError": "tocsin.errors",
    "Occurrence": "tocsin.actors.scheduler.model.schedule_records",
    "OccurrencePage": "tocsin.actors.scheduler.model.schedule_records",
    "Outbox": "tocsin.actors.outbox.entry",
    "OutboxClient": "tocsin.actors.outbox.remote",
    "OutboxEntry": "tocsin.actors.outbox.entry",
    "Page": "tocsin.actors.scheduler.model.records",
    "ParkedRow": "tocsin.actors.outbox.table",
    "Pending": "tocsin.actors.scheduler.model.records",
    "Queue": "tocsin.actors.scheduler.model.records",
    "Received": "tocsin.dispatch.receiver.received",
    "Receiver": "tocsin.dispatch.receiver.receiver",
    "Record": "tocsin.actors.scheduler.model.records",
    "Registration": "tocsin.actors.scheduler.model.schedule_records",
    "RemoteScheduler": "tocsin.dispatch.worker.remote",
    "Retry": "tocsin.dispatch.retry",
    "RetryLater": "tocsin.dispatch.receiver.outcomes",
    "SQLAlchemyDatabase": "tocsin.actors.outbox.databases",
    "SQLiteDatabase": "tocsin.actors.outbox.databases",
    "SQLiteDedup": "tocsin.dispatch.receiver.sqlite_dedup",
    "SQLiteProvider": "tocsin.storage.sqlite.provider",
    "SchedulePage": "tocsin.actors.scheduler.model.schedule_records",
    "SchedulePut": "tocsin.actors.scheduler.model.schedule_records",
    "ScheduleRecord": "tocsin.actors.scheduler.model.schedule_records",
    "ScheduleSlot": "tocsin.actors.scheduler.model.records",
    "Scheduled": "tocsin.actors.scheduler.model.records",
    "Scheduler": "tocsin.actors.scheduler.client.scheduler",
    "Schedules": "tocsin.actors.scheduler.client.schedules",
    "Settlement": "tocsin.dispatch.pulled",
    "Signer": "tocsin.dispatch.signing",
    "Status": "tocsin.actors.scheduler.model.records",
    "Stub": "tocsin.actors.actor_host",
    "TerminalError": "tocsin.dispatch.receiver.outcomes",
    "TocsinError": "tocsin.errors",
    "TriggeredRun": "tocsin.actors.scheduler.model.schedule_records",
    "Worker": "tocsin.dispatch.worker.worker",
    "WorkerInfo": "tocsin.dispatch.pulled",
    "WorkerSnapshot": "tocsin.dispatch.pulled",
}

__all__ = [
    "Accepted",
    "Actor",
    "ActorContext",
    "ActorHost",
    "AsyncpgDatabase",
    "Cancelled",
    "Catalog",
    "Claimed",
    "Context",
    "Cron",
    "CronPreview",
    "DeadJob",
    "DeadRetried",
    "Deferred",
    "Drain",
    "Firing",
    "Handlers",
    "Initiator",
    "Job",
    "JobFailedError",
    "LeaseClient",
    "LeaseLostError",
    "Leased",
    "MemoryDedup",
    "MemoryProvider",
    "NoDedup",
    "NotYetError",
    "Occurrence",
    "OccurrencePage",
    "Outbox",
    "OutboxClient",
    "OutboxEntry",
    "Page",
    "ParkedRow",
    "Pending",
    "Queue",
    "Received",
    "Receiver",
    "Record",
    "Registration",
    "RemoteScheduler",
    "Retry",
    "RetryLater",
    "SQLAlchemyDatabase",
    "SQLiteDatabase",
    "SQLiteDedup",
    "SQLiteProvider",
    "SchedulePage",
    "SchedulePut",
    "ScheduleRecord",
    "ScheduleSlot",
    "Scheduled",
    "Scheduler",
    "Schedules",
    "Settlement",
    "Signer",
    "Status",
    "Stub",
    "TerminalError",
    "TocsinError",
    "TriggeredRun",
    "Worker",
    "WorkerInfo",
    "WorkerSnapshot",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
