"""The table of operations: route, scope, what runs, and what it takes, answers and refuses."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http import (
    job_records,
    wire,
    wire_clock,
    wire_jobs,
    wire_pools,
    wire_queues,
    wire_recurring,
    wire_workers,
)
from tocsin.actors.http import operations_audit as audits
from tocsin.actors.http import operations_changing as changing
from tocsin.actors.http import operations_clock as clock
from tocsin.actors.http import operations_groups as groups
from tocsin.actors.http import operations_operating as operating
from tocsin.actors.http import operations_queues as queues
from tocsin.actors.http import operations_reading as reading
from tocsin.actors.http import operations_recurring as recurring
from tocsin.actors.http import operations_scheduling as scheduling
from tocsin.actors.http import operations_workers as workers
from tocsin.actors.http import parameters as takes
from tocsin.actors.http import response_models as replies
from tocsin.actors.http.operation import ADMIN as ADMIN
from tocsin.actors.http.operation import BY_LEASE as BY_LEASE
from tocsin.actors.http.operation import OPERATE as OPERATE
from tocsin.actors.http.operation import READ as READ
from tocsin.actors.http.operation import SCHEDULE as SCHEDULE
from tocsin.actors.http.operation import WORK as WORK
from tocsin.actors.http.operation import About as About
from tocsin.actors.http.operation import Operation as Operation
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import schedule_records as recurring_records
from tocsin.actors.scheduler.model.audit_records import AuditPage, DeadGroups, Undone
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.feed_frames import Change
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord
from tocsin.dispatch.pulled import Settlement

_NO_ID: Final = ("INVALID_SCHEDULE_ID",)
_NEW_JOBS: Final = ("CONFLICT", "NOT_FOUND", "IDEMPOTENCY_KEY_REUSED")
_BY_LEASE: Final = ("INVALID_SCHEDULE_ID", "STALE_LEASE")

# ---- Jobs ----------------------------------------------------------------------------------------

_JOBS: Final = (
    Operation(
        "POST", "/schedule", "schedule", SCHEDULE, scheduling.schedule,
        name="schedule", group="jobs", said="Schedule a job: it is on disk when this is answered",
        request=wire_jobs.ScheduleRequest, answer=records.Scheduled, keyed=True,
        errors=(*_NO_ID, *_NEW_JOBS, "DUPLICATE_SCHEDULE_ID", "QUOTA_EXCEEDED", "THROTTLED", "ORIGIN_NOT_CONFIGURED"),
    ),
    Operation(
        "POST", "/schedule/batch", "schedule", SCHEDULE, scheduling.schedule_batch,
        name="submit_many", group="jobs", said="Schedule up to 1,000 jobs in one commit, with one answer for each",
        request=wire_jobs.BatchRequest, answer=replies.BatchResults, keyed=True, errors=_NEW_JOBS,
    ),
    Operation(
        "POST", "/cancel", "cancel", SCHEDULE | OPERATE, changing.cancel,
        name="cancel", group="jobs", said="Remove a live job; its id is free at once",
        request=wire.IdRequest, answer=records.Cancelled, errors=_NO_ID,
    ),
    Operation(
        "GET", "/get", "get", READ, reading.get,
        name="get", group="jobs", said="One job, live or dead",
        query=takes.ONE_JOB, answer=replies.Found, errors=_NO_ID,
    ),
    Operation(
        "GET", "/list", "list", READ, reading.list_jobs,
        name="list", group="jobs", said="A page of live jobs", query=takes.LISTED, answer=job_records.JobPage,
    ),
    Operation(
        "GET", "/dead", "dead", READ, reading.list_dead,
        name="dead", group="dead jobs", said="A page of dead jobs, the newest parked last",
        query=takes.DEAD_LISTED, answer=job_records.JobPage,
    ),
    Operation(
        "POST", "/dead/retry", "dead_retry", OPERATE, changing.dead_retry,
        name="dead_retry", group="dead jobs", said="Make a dead job due now, with a fresh budget",
        request=wire.IdRequest, answer=records.DeadRetried, errors=_NO_ID,
    ),
    Operation(
        "POST", "/dead/cancel", "dead_cancel", OPERATE, changing.dead_cancel,
        name="dead_cancel", group="dead jobs", said="Remove a dead job for good",
        request=wire.IdRequest, answer=replies.DeadCancelled, errors=_NO_ID,
    ),
    Operation(
        "GET", "/status", "status", READ, reading.status,
        name="status", group="operating", said="Counts and health of the instance", answer=records.Status,
    ),
    Operation(
        "GET", "/changes", "changes", READ, reading.changes,
        name="changes", group="operating", said="What changed behind a place, or as events as it changes",
        query=takes.CHANGES, answer=replies.ChangePage, also=(Change,), errors=("UNAVAILABLE",),
    ),
    Operation(
        "GET", "/activity", "activity", READ, reading.activity,
        name="activity", group="operating", said="What the instance did in each of the last minutes",
        query=takes.RECENT, answer=records.Activity,
    ),
    Operation(
        "GET", "/why", "why", READ, reading.why,
        name="why", group="jobs", said="Every reason why a job is not running now",
        query=takes.ONE_JOB, answer=replies.Reasons, errors=_NO_ID,
    ),
    Operation(
        "GET", "/history", "history", READ, reading.history,
        name="history", group="jobs", said="How the attempts of a job ended, kept for some days after it is gone",
        query=takes.ONE_JOB, answer=replies.History, errors=_NO_ID,
    ),
    Operation(
        "POST", "/cancel-all", "cancel_all", OPERATE, changing.cancel_all,
        name="cancel_all", group="jobs", said="Cancel every job that fits",
        request=wire.CancelAllRequest, answer=records.Matched,
    ),
    Operation(
        "POST", "/reschedule", "reschedule", SCHEDULE | OPERATE, changing.reschedule,
        name="reschedule", group="jobs", said="Move a job that does not run yet",
        request=wire.RescheduleRequest, answer=records.Rescheduled, errors=_NO_ID,
    ),
    Operation(
        "POST", "/dead/retry-all", "dead_retry_all", OPERATE, changing.dead_retry_all,
        name="dead_retry_all", group="dead jobs", said="Retry the dead jobs that fit, at a pace, as a durable job",
        request=wire.RetryAllRequest, answer=records.Redrive, errors=("CONFLICT",),
    ),
    Operation(
        "GET", "/dead/groups", "dead_groups", READ, audits.dead_groups,
        name="dead_groups", group="dead jobs", said="Dead jobs by reason and path, the largest group first",
        answer=DeadGroups,
    ),
    Operation(
        "POST", "/dead/cancel-all", "dead_cancel_all", OPERATE, changing.dead_cancel_all,
        name="dead_cancel_all", group="dead jobs", said="Remove the dead jobs that fit; to be undone for ten minutes",
        request=wire.DeadCancelAllRequest, answer=records.Matched,
    ),
    Operation(
        "GET", "/dead/redrives/{redriveId}", "redrive", READ, changing.get_redrive,
        name="redrive", group="dead jobs", said="How far a bulk retry has come",
        answer=records.Redrive, errors=(*_NO_ID, "NOT_FOUND"),
    ),
    Operation(
        "DELETE", "/dead/redrives/{redriveId}", "redrive_stop", OPERATE, changing.stop_redrive,
        name="redrive_stop", group="dead jobs", said="Stop a bulk retry; what it has retried stays retried",
        answer=replies.RedriveStopped, errors=(*_NO_ID, "NOT_FOUND"),
    ),
)  # fmt: skip

# ---- Schedules -----------------------------------------------------------------------------------

_CRON: Final = ("INVALID_CRON", "UNKNOWN_TIMEZONE")
_SCHEDULES: Final = (
    Operation(
        "PUT", "/schedules/{name}", "schedules.put", SCHEDULE, recurring.put,
        name="schedules_put", group="schedules", said="Define a schedule, or define it anew; this fires nothing",
        request=wire_recurring.DefinitionRequest, answer=recurring_records.SchedulePut,
        errors=(*_CRON, "CONFLICT", "ORIGIN_NOT_CONFIGURED"),
    ),
    Operation(
        "PUT", "/owners/{owner}/schedules", "schedules.register", SCHEDULE, recurring.register,
        name="schedules_register", group="schedules",
        said="Define an owner's whole set in one commit: what an app declares at its start",
        request=wire_recurring.RegisterRequest, also=(wire_recurring.OwnedRequest,), answer=replies.SetRegistered,
        errors=(*_CRON, "CONFLICT", "ORIGIN_NOT_CONFIGURED"),
    ),
    Operation(
        "GET", "/schedules/{name}", "schedules.get", READ, recurring.get,
        name="schedules_get", group="schedules", said="One schedule and where it stands",
        answer=recurring_records.ScheduleRecord,
    ),
    Operation(
        "DELETE", "/schedules/{name}", "schedules.delete", SCHEDULE | OPERATE, recurring.delete,
        name="schedules_delete", group="schedules", said="Remove a schedule; its occurrences go on",
        query=takes.DELETED, answer=replies.ScheduleDeleted, errors=("CONFLICT",),
    ),
    Operation(
        "GET", "/schedules", "schedules.list", READ, recurring.list_schedules,
        name="schedules_list", group="schedules", said="A page of schedules, by name",
        query=takes.PAGED, answer=recurring_records.SchedulePage,
    ),
    Operation(
        "POST", "/schedules/{name}/pause", "schedules.pause", SCHEDULE | OPERATE, recurring.pause,
        name="schedules_pause", group="schedules", said="Let its slots pass as skipped until it is resumed",
        request=wire_recurring.RevisionRequest, body_optional=True,
        answer=recurring_records.ScheduleRecord, errors=("CONFLICT",),
    ),
    Operation(
        "POST", "/schedules/{name}/resume", "schedules.resume", SCHEDULE | OPERATE, recurring.resume,
        name="schedules_resume", group="schedules", said="Go on from the next slot",
        request=wire_recurring.RevisionRequest, body_optional=True,
        answer=recurring_records.ScheduleRecord, errors=("CONFLICT",),
    ),
    Operation(
        "POST", "/schedules/{name}/trigger", "schedules.trigger", SCHEDULE | OPERATE, recurring.trigger,
        name="schedules_trigger", group="schedules", said="One occurrence now, also when it is paused",
        request=wire_recurring.TriggerRequest, body_optional=True,
        answer=recurring_records.TriggeredRun, errors=("CONFLICT", "QUOTA_EXCEEDED", "ORIGIN_NOT_CONFIGURED"),
    ),
    Operation(
        "POST", "/schedules/{name}/backfill", "schedules.backfill", OPERATE, recurring.backfill,
        name="schedules_backfill", group="schedules", said="Run slots of the past that had no run, each once",
        request=wire_recurring.BackfillRequest, answer=Backfill, errors=("CONFLICT",),
    ),
    Operation(
        "GET", "/schedules/{name}/backfills", "schedules.backfills", READ, recurring.backfills,
        name="schedules_backfills", group="schedules", said="The backfills of a schedule, and how far they have come",
        answer=replies.Backfills,
    ),
    Operation(
        "DELETE", "/schedules/{name}/backfills/{backfillId}", "schedules.backfill_stop", OPERATE,
        recurring.backfill_stop, name="schedules_backfill_stop", group="schedules",
        said="Stop a backfill; what it has started goes on", answer=replies.BackfillStopped, errors=_NO_ID,
    ),
    Operation(
        "GET", "/schedules/{name}/occurrences", "schedules.occurrences", READ, recurring.occurrences,
        name="schedules_occurrences", group="schedules", said="What became of its slots, the newest first",
        query=takes.PAGED, answer=recurring_records.OccurrencePage,
    ),
    Operation(
        "GET", "/cron/preview", "schedules.preview", READ, recurring.preview,
        name="schedules_preview", group="schedules", said="What a cron expression comes to next",
        query=takes.PREVIEWED, answer=recurring_records.CronPreview, errors=_CRON,
    ),
)  # fmt: skip

# ---- Accepted work, pools, the instance ----------------------------------------------------------

_OTHERS: Final = (
    Operation(
        "POST", "/complete", "complete", BY_LEASE, changing.complete,
        name="complete", group="accepted work", said="Settle an attempt that was claimed, or accepted",
        request=wire.CompleteRequest, answer=Settlement, errors=_BY_LEASE,
    ),
    Operation(
        "POST", "/extend", "extend", BY_LEASE, changing.extend,
        name="extend", group="accepted work", said="Hold the lease of an attempt longer",
        request=wire.ExtendRequest, answer=replies.Extended, errors=_BY_LEASE,
    ),
    Operation(
        "GET", "/pool", "pool", READ, operating.get_pool,
        name="pool", group="operating", said="A pool and who holds it", query=takes.ONE_POOL, answer=records.Pool,
    ),
    Operation(
        "PUT", "/pool", "set_pool", OPERATE, operating.put_pool,
        name="set_pool", group="operating", said="Set the cap or the rate of a pool, pause it, let its jobs share it",
        request=wire_pools.PoolRequest, answer=records.Pool,
    ),
    Operation(
        "DELETE", "/pool", "delete_pool", OPERATE, operating.delete_pool,
        name="delete_pool", group="operating", said="Forget what was set of a pool",
        query=takes.ONE_POOL, answer=replies.PoolDeleted, errors=("CONFLICT",),
    ),
    Operation(
        "POST", "/pool/free", "free_slot", OPERATE, operating.free_slot,
        name="free_slot", group="operating", said="Give up an attempt that holds a slot and of which nobody will hear",
        request=wire.IdRequest, answer=Freed, errors=(*_NO_ID, "CONFLICT"),
    ),
    Operation(
        "GET", "/audit", "audit", READ, audits.audit,
        name="audit", group="operating", said="What operators did, the newest first",
        query=takes.AUDITED, answer=AuditPage,
    ),
    Operation(
        "POST", "/undo", "undo", OPERATE, changing.undo,
        name="undo", group="operating", said="Undo a bulk action of the last ten minutes",
        request=wire.UndoRequest, answer=Undone, errors=(*_NO_ID, "CONFLICT", "NOT_FOUND"),
    ),
    Operation(
        "GET", "/catalog", "catalog", READ, reading.catalog,
        name="catalog", group="operating", said="The paths there are, and what args each takes",
        answer=replies.CatalogListed,
    ),
    Operation(
        "PUT", "/instance", "pause", ADMIN, operating.put_instance,
        name="pause", group="operating",
        said="Stop all firing of the instance or start it again; set how long its callbacks may take",
        request=wire.InstanceRequest, answer=records.InstanceState,
    ),
    Operation(
        "DELETE", "", "remove", ADMIN, operating.remove,
        name="remove", group="operating", said="Remove everything of the instance",
        query=takes.CONFIRMED, answer=records.Removed,
    ),
)  # fmt: skip

# ---- Test clocks ---------------------------------------------------------------------------------

_CLOCKS: Final = (
    Operation(
        "GET", "/clock", "clock", READ, clock.get_clock,
        name="clock", group="operating", said="How the test clock of the instance stands, if it has one",
        query=takes.CLOCK_READ, answer=replies.ClockFound,
    ),
    Operation(
        "PUT", "/clock", "clock.create", ADMIN, clock.put_clock,
        name="set_clock", group="operating", said="Make the instance, which must be new, with a test clock",
        request=wire_clock.ClockRequest, answer=records.ClockState, errors=("CONFLICT",),
    ),
    Operation(
        "POST", "/clock/advance", "clock.advance", OPERATE, clock.advance,
        name="advance_clock", group="operating",
        said="Begin to advance the test clock; all that is due until then happens, in order",
        request=wire_clock.AdvanceRequest, answer=records.ClockState, errors=("CONFLICT", "NOT_FOUND"),
    ),
    Operation(
        "POST", "/clock/freeze", "clock.freeze", OPERATE, clock.freeze,
        name="freeze_clock", group="operating", said="End an advance where the test clock stands",
        request=wire_clock.FreezeRequest, body_optional=True,
        answer=records.ClockState, errors=("CONFLICT", "NOT_FOUND"),
    ),
)  # fmt: skip

# ---- Groups --------------------------------------------------------------------------------------

_GROUPS: Final = (
    Operation(
        "POST", "/groups", "groups.open", SCHEDULE, groups.open_group,
        name="groups_open", group="groups", said="Make a group, which jobs join by `group`",
        request=wire_jobs.GroupRequest, answer=GroupRecord, errors=("CONFLICT", "ORIGIN_NOT_CONFIGURED"),
    ),
    Operation(
        "GET", "/groups", "groups.list", READ, groups.groups,
        name="groups_list", group="groups", said="A page of groups by name, with their counts",
        query=takes.PAGED, answer=GroupPage,
    ),
    Operation(
        "GET", "/groups/{group}", "groups.get", READ, groups.get,
        name="groups_get", group="groups", said="One group: how its members ended, and what follows",
        answer=GroupRecord, errors=("NOT_FOUND",),
    ),
    Operation(
        "GET", "/groups/{group}/members", "groups.members", READ, groups.members,
        name="groups_members", group="groups", said="A page of its members that live or are dead, by id",
        query=takes.PAGED, answer=job_records.JobPage,
    ),
    Operation(
        "POST", "/groups/{group}/seal", "groups.seal", SCHEDULE, groups.seal,
        name="groups_seal", group="groups", said="Let no more jobs join: it is complete when its members have ended",
        request=wire_jobs.GroupDeedRequest, body_optional=True, answer=GroupRecord, errors=("NOT_FOUND",),
    ),
    Operation(
        "POST", "/groups/{group}/cancel", "groups.cancel", OPERATE, groups.cancel,
        name="groups_cancel", group="groups", said="Begin to cancel all its members; nothing follows it then",
        request=wire_jobs.GroupDeedRequest, body_optional=True, answer=GroupRecord, errors=("CONFLICT", "NOT_FOUND"),
    ),
)  # fmt: skip

# ---- Queues --------------------------------------------------------------------------------------

_QUEUES: Final = (
    Operation(
        "POST", "/queues/{queue}/claim", "claim", WORK, queues.claim,
        name="claim", group="queues", said="Take due jobs of a queue, or wait until there is one",
        request=wire_queues.ClaimRequest, body_optional=True, answer=replies.ClaimedJobs,
    ),
    Operation(
        "GET", "/queues", "queues", READ, queues.queues,
        name="queues", group="queues", said="What each queue holds", answer=replies.QueueList,
    ),
    Operation(
        "PUT", "/queues/{queueName}", "set_queue", OPERATE, queues.set_queue,
        name="set_queue", group="queues", said="Let jobs with different shard keys have turns in a queue",
        request=wire_queues.QueueRequest, answer=records.Queue,
    ),
    Operation(
        "GET", "/pending", "pending", READ, queues.pending,
        name="pending", group="queues", said="Whether anything of a prefix still pends, chains included",
        query=takes.PREFIXED, answer=records.Pending,
    ),
    Operation(
        "GET", "/result", "result", READ, queues.result,
        name="result", group="jobs", said="What a job came to that asked for its result to be kept",
        query=takes.RESULT_OF, answer=records.Outcome, errors=(*_NO_ID, "NOT_FOUND"),
    ),
    Operation(
        "POST", "/workers", "announce", WORK, workers.announce,
        name="announce", group="queues", said="Say how a worker is",
        request=wire_workers.SnapshotRequest, answer=replies.Heard,
    ),
    Operation(
        "GET", "/workers", "workers", READ, workers.workers,
        name="workers", group="queues", said="A page of the workers that were heard of within five minutes",
        query=takes.PAGED, answer=records.WorkerPage,
    ),
)  # fmt: skip

OPERATIONS: Final = (*_JOBS, *_SCHEDULES, *_QUEUES, *_GROUPS, *_CLOCKS, *_OTHERS)
