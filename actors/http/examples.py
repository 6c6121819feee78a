"""Examples for the OpenAPI document: a request and its answer for each operation, by name. A test sends each one to
a real app and compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

NOW: Final = 1_795_962_007_484
LATER: Final = NOW + 300_000
LEASE: Final = "7.12.5e0c1b0f9a3d47c2b6a1f0e4"


@dataclass(frozen=True, slots=True)
class Example:
    """What is sent (None: nothing) and what comes back."""

    answer: Any
    request: Any = None


_JOB: Final[Mapping[str, Any]] = {
    "id": "invoice-42",
    "functionPath": "invoices:send",
    "args": {"invoice": 42},
    "pool": "stripe",
    "maxConcurrency": 4,
    "labels": ["tenant-7"],
    "retry": {"maxRetries": 3},
}
_RECORD: Final[Mapping[str, Any]] = {
    **_JOB,
    "instanceName": "default",
    "retry": {"maxRetries": 3, "backoff": "exponential", "baseMs": 30_000, "maxMs": 3_600_000, "jitter": 0},
    "incarnation": "9f2c41d7b08ae365-11",
    "scheduledFor": LATER,
    "nextAttemptAt": LATER,
    "state": "pending",
    "attempt": 0,
    "attempts": 0,
    "enqueuedAt": NOW,
}
_DEAD: Final[Mapping[str, Any]] = {
    "id": "invoice-41",
    "instanceName": "default",
    "incarnation": "9f2c41d7b08ae365-3",
    "functionPath": "invoices:send",
    "args": {"invoice": 41},
    "pool": "stripe",
    "scheduledFor": NOW,
    "labels": ["tenant-7"],
    "state": "dead",
    "attempt": 1,
    "attempts": 1,
    "enqueuedAt": NOW,
    "lastError": {"at": NOW + 80, "message": "answered 410", "status": 410},
    "reason": "refused",
    "parkedAt": NOW + 80,
    "lastStatus": 410,
    "lastResponse": "no such invoice",
}
_ID: Final = {"id": "invoice-42"}
_DEAD_ID: Final = {"id": "invoice-41"}
_HOLDER: Final = {"id": "invoice-42", "kind": "accepted", "until": LATER, "orphan": False}
_POOL: Final[Mapping[str, Any]] = {
    "name": "stripe", "inFlight": 0, "maxConcurrency": 8, "queued": 0, "paused": False, "holders": [],
}  # fmt: skip
_ATTEMPT: Final = {
    "attempt": 1, "outcome": "done", "started": LATER + 2, "ended": LATER + 76, "latenessMs": 2, "status": 200,
}  # fmt: skip
_REDRIVE_ID: Final = "01m4cw2n8j6t0q7v9xk3d5r1zb"

_DEFINITION: Final[Mapping[str, Any]] = {
    "cron": "0 9 * * mon-fri",
    "timezone": "Europe/Berlin",
    "functionPath": "reports:send",
    "args": {"to": "team"},
    "misfire": "one",
    "overlap": "skip",
}
_WEEKDAYS: Final = [1_796_025_600_000 + day * 86_400_000 for day in (0, 1, 2, 3, 4)]
_SCHEDULE: Final[Mapping[str, Any]] = {
    "name": "daily-report",
    "revision": 1,
    "state": "active",
    "nextAt": _WEEKDAYS[0],
    "paused": False,
    "live": 0,
    "createdAt": NOW,
    "cron": "0 9 * * mon-fri",
    "timezone": "Europe/Berlin",
    "functionPath": "reports:send",
    "args": {"to": "team"},
    "misfire": "one",
    "graceMs": 60_000,
    "catchUpLimit": 100,
    "overlap": "skip",
}
_RUN_ID: Final = "run-5e2kq0h1c8m4t7v9xk3d5r1z-9b1t5s0q2c7f4x8d"

_WORKER: Final[Mapping[str, Any]] = {
    "id": "4711-9f3b0c5e7a21d4c68b90",
    "name": "mailer",
    "hostname": "app-1",
    "pid": 4711,
    "queues": "*",
    "exclude": ["reports"],
    "concurrency": 8,
    "status": "busy",
    "jobs": [{"id": "invoice-42", "functionPath": "invoices:send", "attempt": 1, "startedAt": NOW}],
    "startedAt": NOW - 60_000,
}

EXAMPLES: Final[Mapping[str, Example]] = {
    "schedule": Example(
        {"id": "invoice-42", "scheduledFor": LATER, "created": True},
        {**_JOB, "delayMs": 300_000},
    ),
    "submit_many": Example(
        {
            "results": [
                {"id": "invoice-42", "scheduledFor": LATER, "created": True},
                {
                    "error": {
                        "code": "DUPLICATE_SCHEDULE_ID",
                        "message": "id 'invoice-42' is taken by a pending job: cancel it, choose another id, or say "
                        "what to do on conflict: keep or replace",
                        "id": "invoice-42",
                        "state": "pending",
                    }
                },
            ]
        },
        {
            "jobs": [
                {"id": "invoice-42", "functionPath": "invoices:send", "args": {"invoice": 42}, "scheduledFor": LATER},
                {"id": "invoice-42", "functionPath": "invoices:remind", "delayMs": 86_400_000},
            ]
        },
    ),
    "cancel": Example({"cancelled": True, "wasRunning": False}, _ID),
    "get": Example({"record": _RECORD}),
    "list": Example({"records": [_RECORD], "truncated": False}),
    "dead": Example({"records": [_DEAD], "truncated": False}),
    "dead_retry": Example({"retried": True, "id": "invoice-41", "scheduledFor": NOW}, _DEAD_ID),
    "dead_cancel": Example({"removed": True}, _DEAD_ID),
    "status": Example(
        {
            "backlog": 1,
            "inFlight": 0,
            "due": 0,
            "oldestDueMs": None,
            "dead": 0,
            "lanes": {"inFlight": 0, "limit": 64},
            "health": "green",
            "pools": [{"name": "stripe", "inFlight": 0, "maxConcurrency": 4, "queued": 1, "paused": False}],
        }
    ),
    "why": Example(
        {"id": "invoice-42", "reasons": [{"code": "NOT_DUE", "message": "it is due in 299312 ms", "at": LATER}]}
    ),
    "history": Example(
        {
            "id": "invoice-42",
            "attempts": [
                {"attempt": 1, "outcome": "done", "started": LATER, "ended": LATER + 74, "latenessMs": 2, "status": 200}
            ],
        }
    ),
    "cancel_all": Example({"matched": 1, "cancelled": 1}, {"pool": "stripe", "label": "tenant-7"}),
    "reschedule": Example(
        {"rescheduled": True, "scheduledFor": LATER + 60_000}, {**_ID, "scheduledFor": LATER + 60_000}
    ),
    "dead_retry_all": Example(
        {"redriveId": _REDRIVE_ID, "matched": 1, "retried": 0, "running": True},
        {"reason": "refused", "ratePerSecond": 5},
    ),
    "redrive": Example({"redriveId": _REDRIVE_ID, "matched": 1, "retried": 1, "running": False}),
    "redrive_stop": Example({"stopped": False}),
    "schedules_put": Example(
        {"name": "daily-report", "revision": 1, "nextAt": _WEEKDAYS[0], "preview": _WEEKDAYS}, _DEFINITION
    ),
    "schedules_get": Example(_SCHEDULE),
    "schedules_list": Example({"schedules": [_SCHEDULE], "truncated": False}),
    "schedules_delete": Example({"deleted": True}),
    "schedules_pause": Example(
        {**_SCHEDULE, "revision": 2, "state": "paused", "nextAt": None, "paused": True}, {"revision": 1}
    ),
    "schedules_resume": Example({**_SCHEDULE, "revision": 3}, {"revision": 2}),
    "schedules_trigger": Example(
        {"name": "daily-report", "slot": NOW, "id": _RUN_ID, "created": True}, {"requestKey": "after-the-fix"}
    ),
    "schedules_occurrences": Example(
        {
            "occurrences": [
                {
                    "slot": NOW,
                    "state": "fired",
                    "due": NOW,
                    "decidedAt": NOW,
                    "latenessMs": 0,
                    "jobId": _RUN_ID,
                    "live": True,
                    "triggered": True,
                },
                {
                    "slot": NOW - 86_400_000,
                    "state": "skipped",
                    "due": NOW - 86_400_000,
                    "decidedAt": NOW - 7_000,
                    "latenessMs": 86_393_000,
                    "reason": "misfire",
                },
            ],
            "truncated": False,
        }
    ),
    "schedules_preview": Example(
        {
            "next": [1_793_511_000_000, 1_793_601_000_000, 1_793_687_400_000],
            "notes": [
                "DST: 01:30 comes twice, it runs the first time only",
                "DST: the clock went from UTC-04:00 to UTC-05:00 since the line before",
                None,
            ],
        }
    ),
    "claim": Example(
        {
            "jobs": [
                {
                    "id": "invoice-42",
                    "incarnation": "9f2c41d7b08ae365-11",
                    "args": {"invoice": 42},
                    "scheduledFor": NOW,
                    "attempt": 1,
                    "attempts": 0,
                    "lease": LEASE,
                    "leaseUntil": NOW + 60_000,
                    "leaseMs": 60_000,
                    "queue": "mail",
                    "instanceName": "default",
                    "functionPath": "invoices:send",
                    "labels": ["tenant-7"],
                    "then": True,
                }
            ]
        },
        {"max": 10, "leaseMs": 60_000, "waitMs": 20_000, "worker": {"id": "w-7f3a", "name": "mailer", "pid": 4711}},
    ),
    "queues": Example(
        {"queues": [{"name": "mail", "waiting": 1, "due": 1, "inFlight": 0, "workersWaiting": 0, "oldestDueMs": 1_200}]}
    ),
    "pending": Example({"pending": True, "count": 2}),
    "result": Example(
        {
            "id": "invoice-42",
            "state": "done",
            "result": {"sent": True},
            "endedAt": LATER,
            "keptUntil": LATER + 3_600_000,
        }
    ),
    "complete": Example({"settled": True, "state": "done"}, {**_ID, "lease": LEASE, "result": {"sent": True}}),
    "announce": Example({}, {**_WORKER, "heartbeatAt": NOW}),
    "workers": Example({"workers": [{**_WORKER, "heartbeatAt": NOW}], "truncated": False}),
    "extend": Example({"leaseUntil": LATER + 900_000}, {**_ID, "lease": LEASE, "leaseMs": 900_000}),
    "pool": Example({**_POOL, "inFlight": 1, "maxConcurrency": 1, "holders": [_HOLDER]}),
    "set_pool": Example({**_POOL, "created": True}, {"name": "stripe", "maxConcurrency": 8}),
    "delete_pool": Example({"deleted": True}),
    "catalog": Example(
        {
            "checked": True,
            "entries": [
                {
                    "functionPath": "invoices:send",
                    "args": {
                        "type": "object",
                        "properties": {"invoice": {"type": "integer"}},
                        "required": ["invoice"],
                    },
                }
            ],
        }
    ),
    "pause": Example({"name": "default", "paused": True, "timeoutMs": 900_000}, {"paused": True, "timeoutMs": 900_000}),
    "remove": Example({"jobs": 1, "rows": 6}),
    "instances": Example(
        {
            "instances": [{"name": "tenant-a", "backlog": 1, "inFlight": 0, "dead": 0, "paused": False}],
            "truncated": False,
        }
    ),
    "health": Example({"ok": True}),
    "ready": Example({"ready": True}),
}
