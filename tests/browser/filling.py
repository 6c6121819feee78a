"""What a server that has been in use holds: instances, a hundred thousand jobs, long ids, pools that are full, paused
and idle, dead letters of several paths and reasons, schedules whose slots ended in every way, queues and workers."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from typing import Any, Final

from tests.browser.operated import Operated
from tests.waiting import wait_until

JOBS: Final = 100_000
INSTANCES: Final = ("acme-production", "eu-west-1:tenant-with-a-rather-long-name.example:staging-2", "tenant-a")
LONG_ID: Final = "order-2027-00000000000000000000000000000000000000000000042-retry"
LONG_PATH: Final = "accounting.ledgers.reconciliation:reconcile_every_account_of_a_tenant_and_report"
HOUR_MS: Final = 3_600_000
ONCE: Final = {"retry": {"maxRetries": 0}}
ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "payments:capture": {"status": 500, "body": "ConnectionError: card processor did not answer within 30 s"},
    "mail:digest": {"status": 422, "body": '{"error": {"message": "template digest-v2 has no subject"}}'},
    LONG_PATH: {"status": 503, "body": "<html><h1>503 Service Unavailable</h1><p>upstream & <b>proxy</b></p></html>"},
    "webhooks:deliver": {"status": 410, "body": "the subscriber is gone"},
    "imports:run": {"status": 202, "headers": {"tocsin-accepted": "1", "tocsin-lease-ms": "3600000"}},
    "reports:broken": {"status": 500, "body": "ZeroDivisionError: division by zero"},
}
DEAD: Final = (("payments:capture", 137), ("mail:digest", 41), (LONG_PATH, 12), ("webhooks:deliver", 5))
SCHEDULES: Final[dict[str, dict[str, Any]]] = {
    "invoices-nightly": {"cron": "15 2 * * *", "timezone": "Europe/Berlin", "functionPath": "invoices:nightly"},
    "sweep-sessions": {"everyMs": 1000, "functionPath": "sessions:sweep", "misfire": "one", "graceMs": 0},
    "import-feed": {"everyMs": 1000, "functionPath": "imports:run", "pool": "imports", "overlap": "skip"},
    "report-broken": {"everyMs": 2000, "functionPath": "reports:broken", "retry": {"maxRetries": 0}},
    "catch-up": {"everyMs": 1000, "functionPath": "sessions:sweep", "misfire": "skip", "graceMs": 0},
    "month-end.accounting:close-all-ledgers-of-every-tenant-and-send-the-summary": {
        "cron": "0 30 6 L * ?", "timezone": "America/Argentina/ComodRivadavia", "functionPath": LONG_PATH,
        "pool": "ledgers", "priority": 5, "args": {"tenants": "all", "dry": False},
    },
    "once-in-spring": {"at": 1_900_000_000_000, "functionPath": "gardens:wake"},
    "paused-for-now": {"cron": "*/5 * * * *", "functionPath": "mail:digest", "paused": True},
}  # fmt: skip


def fill(server: Operated, jobs: int = JOBS) -> None:
    """Takes about a minute for all jobs, most of it to write them."""
    chance = random.Random(7)
    server.answers(**ANSWERS)
    for name, definition in SCHEDULES.items():
        server.ask(f"/schedules/{name}", definition, "PUT")
    _fill_dead_letters(server, chance)
    _fill_pools(server)
    _fill_queues(server)
    now = int(time.time() * 1000)
    server.schedule([_job(n, now, chance) for n in range(jobs)])
    for instance in INSTANCES:
        server.schedule([_job(n, now, chance) for n in range(chance.randrange(5, 900))], instance)
    server.ask("/instance", {"paused": True}, "PUT", instance="tenant-a")
    miss_slots(server)


def _job(n: int, now: int, chance: random.Random) -> dict[str, Any]:
    path = chance.choice(("invoices:send", "mail:welcome", "mail:digest", "exports:build", LONG_PATH))
    job: dict[str, Any] = {
        "id": LONG_ID if n == 0 else f"{path.split(':')[0].split('.')[0]}-{n:06d}",
        "functionPath": path,
        "scheduledFor": now + HOUR_MS + chance.randrange(72 * HOUR_MS),
        "args": {"tenant": chance.randrange(400), "attempt of": "the seventh kind", "items": [1, 2, 3]},
        "labels": [f"tenant-{chance.randrange(40)}"],
    }
    if n % 7 == 0:
        job["pool"] = chance.choice(("smtp", "exports"))
    if n % 31 == 0:
        job["priority"] = chance.choice((-3, 5, 9))
    return job


def _fill_dead_letters(server: Operated, chance: random.Random) -> None:
    for path, count in DEAD:
        server.schedule([
            {
                "id": f"{path.split(':')[-1][:20]}-{n:04d}", "functionPath": path, "delayMs": 0, **ONCE,
                "args": {"order": chance.randrange(10**6)}, "labels": [f"tenant-{n % 9}"],
            }
            for n in range(count)
        ])  # fmt: skip
    wait_until(lambda: server.ask("/status")["dead"] >= sum(count for _, count in DEAD))


def _fill_pools(server: Operated) -> None:
    server.ask("/pool", {"name": "imports", "maxConcurrency": 4}, "PUT")
    server.ask("/pool", {"name": "exports", "maxConcurrency": 16}, "PUT")
    server.ask("/pool", {"name": "smtp", "maxConcurrency": 10, "paused": True}, "PUT")
    server.ask("/pool", {"name": "warehouse.eu-west-1:nightly-imports-of-every-supplier", "maxConcurrency": 1}, "PUT")
    server.ask("/pool", {"name": "idle", "maxConcurrency": 8}, "PUT")
    holders = [
        {"id": f"import-{n:03d}", "functionPath": "imports:run", "pool": "imports", "delayMs": 0} for n in range(40)
    ]
    warehouse = "warehouse.eu-west-1:nightly-imports-of-every-supplier"
    server.schedule([*holders, {"id": LONG_ID[:-1], "functionPath": "imports:run", "pool": warehouse, "delayMs": 0}])
    wait_until(lambda: server.ask("/pool?name=imports")["inFlight"] == 4)


def _fill_queues(server: Operated) -> None:
    for queue, count in (("thumbnails", 230), ("video.transcode:4k-hdr-with-a-long-queue-name", 17), ("mail", 1)):
        first = queue.split(".")[0]
        job = {"functionPath": f"{first}:make", "queue": queue, "delayMs": 0}
        server.schedule([{**job, "id": f"{first}-{n:04d}"} for n in range(count)])
    announce(server, [*_claimed(server, "w-7f31", "thumbs", "worker-1.eu-west-1.internal", 3)])


def announce(server: Operated, jobs: Sequence[dict[str, Any]]) -> None:
    """Have the workers be heard of: who was not for half a minute is lost. `jobs` are what the busy one runs."""
    workers = (
        ("w-7f31", "thumbs", "worker-1.eu-west-1.internal", ["thumbnails"], "busy", 8),
        ("w-9c02", "thumbs", "worker-2.eu-west-1.internal", ["thumbnails", "mail"], "idle", 8),
        ("w-0b77", "transcoder", "gpu-box", "*", "stopping", 1),
    )
    now = int(time.time() * 1000)
    times = {"startedAt": now - 5 * HOUR_MS, "heartbeatAt": now}
    for id, name, hostname, queues, status, concurrency in workers:
        server.ask("/workers", {
            "id": id, "name": name, "hostname": hostname, "pid": 4242, "queues": queues, "concurrency": concurrency,
            "status": status, "jobs": list(jobs) if status == "busy" else [], **times,
        })  # fmt: skip


def _claimed(server: Operated, id: str, name: str, hostname: str, count: int) -> list[dict[str, Any]]:
    worker = {"id": id, "name": name, "hostname": hostname}
    request = {"max": count, "leaseMs": 900_000, "waitMs": 0, "worker": worker}
    claimed = server.ask("/queues/thumbnails/claim", request)["jobs"]
    now = int(time.time() * 1000)
    return [
        {"id": job["id"], "functionPath": job["functionPath"], "attempt": job["attempt"], "startedAt": now}
        for job in claimed
    ]


def miss_slots(server: Operated) -> None:
    """Let slots pass while the server stands still, and others while their schedule is paused."""
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(4.5)  # what is missed is a matter of real time
    server.process.send_signal(signal.SIGCONT)
    wait_until(lambda: _states(server, "sweep-sessions") >= {"fired", "coalesced"})
    wait_until(lambda: _states(server, "catch-up") >= {"fired", "skipped"})
    wait_until(lambda: _states(server, "report-broken") >= {"dead"})


def _states(server: Operated, schedule: str) -> set[str]:
    found = server.ask(f"/schedules/{schedule}/occurrences")["occurrences"]
    return {one["state"] for one in found}
