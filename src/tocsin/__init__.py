"""tocsin: durable scheduling for Python, one actor per tenant.

The public names. They are imported when first used, so the command line starts without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.actors.actor_host import ActorHost as ActorHost
    from tocsin.actors.client.client import Client as Client
    from tocsin.actors.client.client import RemoteScheduler as RemoteScheduler
    from tocsin.actors.client.sync_client import SyncClient as SyncClient
    from tocsin.actors.client.sync_scheduler import SyncScheduler as SyncScheduler
    from tocsin.actors.cron.builder import Cron as Cron
    from tocsin.actors.outbox.databases import AsyncpgDatabase as AsyncpgDatabase
    from tocsin.actors.outbox.databases import SQLAlchemyDatabase as SQLAlchemyDatabase
    from tocsin.actors.outbox.databases import SQLiteDatabase as SQLiteDatabase
    from tocsin.actors.outbox.drain import Drain as Drain
    from tocsin.actors.outbox.entry import Outbox as Outbox
    from tocsin.actors.outbox.entry import OutboxEntry as OutboxEntry
    from tocsin.actors.outbox.remote import OutboxClient as OutboxClient
    from tocsin.actors.outbox.table import ParkedRow as ParkedRow
    from tocsin.actors.own_actors import Stub as Stub
    from tocsin.actors.runtime.actor import Actor as Actor
    from tocsin.actors.runtime.actor import ActorContext as ActorContext
    from tocsin.actors.scheduler.client.deferred import Deferred as Deferred
    from tocsin.actors.scheduler.client.groups import Groups as Groups
    from tocsin.actors.scheduler.client.job_checks import Group as Group
    from tocsin.actors.scheduler.client.pools import PoolHandle as PoolHandle
    from tocsin.actors.scheduler.client.scheduler import Job as Job
    from tocsin.actors.scheduler.client.scheduler import Scheduler as Scheduler
    from tocsin.actors.scheduler.client.schedules import Schedules as Schedules
    from tocsin.actors.scheduler.client.tasks import Task as Task
    from tocsin.actors.scheduler.client.tasks import Tasks as Tasks
    from tocsin.actors.scheduler.inflight.deaths import DeadJob as DeadJob
    from tocsin.actors.scheduler.model.due_run import DueRun as DueRun
    from tocsin.actors.scheduler.model.due_run import LeftBehind as LeftBehind
    from tocsin.actors.scheduler.model.feed_frames import Change as Change
    from tocsin.actors.scheduler.model.feed_frames import ChangedJob as ChangedJob
    from tocsin.actors.scheduler.model.group_records import GroupPage as GroupPage
    from tocsin.actors.scheduler.model.group_records import GroupRecord as GroupRecord
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
    from tocsin.dispatch.allowed_urls import AllowedUrls as AllowedUrls
    from tocsin.dispatch.catalog.catalog import Catalog as Catalog
    from tocsin.dispatch.job_context import JobContext as JobContext
    from tocsin.dispatch.origin import Origin as Origin
    from tocsin.dispatch.pulled import Claimed as Claimed
    from tocsin.dispatch.pulled import Settlement as Settlement
    from tocsin.dispatch.pulled import WorkerInfo as WorkerInfo
    from tocsin.dispatch.pulled import WorkerSnapshot as WorkerSnapshot
    from tocsin.dispatch.rate import Rate as Rate
    from tocsin.dispatch.receiver.dedup import MemoryDedup as MemoryDedup
    from tocsin.dispatch.receiver.dedup import NoDedup as NoDedup
    from tocsin.dispatch.receiver.lease_client import LeaseClient as LeaseClient
    from tocsin.dispatch.receiver.outcomes import Accepted as Accepted
    from tocsin.dispatch.receiver.outcomes import HandlerError as HandlerError
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
    from tocsin.dispatch.worker.worker import Worker as Worker
    from tocsin.errors import JobFailedError as JobFailedError
    from tocsin.errors import NotYetError as NotYetError
    from tocsin.errors import TocsinError as TocsinError
    from tocsin.storage.memory import MemoryProvider as MemoryProvider
    from tocsin.storage.sqlite.provider import SQLiteProvider as SQLiteProvider

_NAMES = {
    "actors.actor_host": "ActorHost",
    "actors.own_actors": "Stub",
    "actors.client.client": "Client RemoteScheduler",
    "actors.client.sync_client": "SyncClient",
    "actors.client.sync_scheduler": "SyncScheduler",
    "actors.cron.builder": "Cron",
    "actors.outbox.databases": "AsyncpgDatabase SQLAlchemyDatabase SQLiteDatabase",
    "actors.outbox.drain": "Drain",
    "actors.outbox.entry": "Outbox OutboxEntry",
    "actors.outbox.remote": "OutboxClient",
    "actors.outbox.table": "ParkedRow",
    "actors.runtime.actor": "Actor ActorContext",
    "actors.scheduler.client.deferred": "Deferred",
    "actors.scheduler.client.groups": "Groups",
    "actors.scheduler.client.job_checks": "Group",
    "actors.scheduler.client.pools": "PoolHandle",
    "actors.scheduler.client.scheduler": "Job Scheduler",
    "actors.scheduler.client.schedules": "Schedules",
    "actors.scheduler.client.tasks": "Task Tasks",
    "actors.scheduler.inflight.deaths": "DeadJob",
    "actors.scheduler.model.due_run": "DueRun LeftBehind",
    "actors.scheduler.model.feed_frames": "Change ChangedJob",
    "actors.scheduler.model.group_records": "GroupPage GroupRecord",
    "actors.scheduler.model.records": "Cancelled DeadRetried Firing Initiator Page Pending "
    "Queue Record ScheduleSlot Scheduled Status",
    "actors.scheduler.model.schedule_records": "CronPreview Occurrence OccurrencePage Registration "
    "SchedulePage SchedulePut ScheduleRecord TriggeredRun",
    "dispatch.allowed_urls": "AllowedUrls",
    "dispatch.catalog.catalog": "Catalog",
    "dispatch.job_context": "JobContext",
    "dispatch.pulled": "Claimed Settlement WorkerInfo WorkerSnapshot",
    "dispatch.receiver.dedup": "MemoryDedup NoDedup",
    "dispatch.receiver.lease_client": "LeaseClient",
    "dispatch.receiver.outcomes": "Accepted HandlerError RetryLater TerminalError",
    "dispatch.receiver.received": "Leased Received",
    "dispatch.receiver.receiver": "Receiver",
    "dispatch.receiver.sqlite_dedup": "SQLiteDedup",
    "dispatch.origin": "Origin",
    "dispatch.rate": "Rate",
    "dispatch.retry": "Retry",
    "dispatch.signing": "Signer",
    "dispatch.worker.context": "Context",
    "dispatch.worker.handlers": "Handlers",
    "dispatch.worker.lease": "LeaseLostError",
    "dispatch.worker.worker": "Worker",
    "errors": "JobFailedError NotYetError TocsinError",
    "storage.memory": "MemoryProvider",
    "storage.sqlite.provider": "SQLiteProvider",
}
"""The same names by module, for the import at their first use."""
_HOMES = {name: f"tocsin.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
