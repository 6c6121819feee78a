"""docs/limits.md says the numbers that the code has."""

from __future__ import annotations

import re

import pytest

from tocsin import ActorHost
from tocsin.actors.cron import preview
from tocsin.actors.http import body, sessions, transfers
from tocsin.actors.scheduler.client import bulk
from tocsin.actors.scheduler.inflight import feed, worker_registry
from tocsin.actors.scheduler.model import activity, acts, audit, followers, timing, validation
from tocsin.actors.scheduler.model.rows import DAY_MS
from tocsin.actors.scheduler.schedules import definition
from tocsin.dispatch import answer_contents, dispatcher, failure, pulled, retry, url_list, values

from .pages import ROOT

ROWS = dict(re.findall(r"^\| (.+?) \| (.+) \|$", (ROOT / "docs" / "limits.md").read_text("utf-8"), re.M))
KIB, MIB = 1024, 1024 * 1024


def kib(size: int) -> str:
    return f"{size // KIB} KiB"


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("args", [kib(validation.MAX_ARGS), f"{values.MAX_DEPTH} levels"]),
        ("path or workflow", [f"{validation.MAX_TARGET} characters"]),
        (
            "jobs in one call",
            [
                f"{validation.MAX_BATCH:,};",
                f"{validation.MAX_BATCH_BYTES // MIB} MiB",
                f"{body.BATCH_BODY // MIB} MiB over HTTP",
            ],
        ),
        ("labels", [f"{validation.MAX_LABELS} a job"]),
        ("a job's `url`", [f"{url_list.URL_LIMIT:,} characters", f"{url_list.ENTRIES_LIMIT:,} entries"]),
        ("cap of a pool", ["{:,} to {:,}".format(*validation.MAX_CONCURRENCY)]),
        ("retries", [f"{retry.MAX_RETRIES}"]),
        (
            "`debounce`, `max_wait` and `throttle`",
            ["1 ms", f"{timing.PUT_OFF_MS[1] // DAY_MS} days"],
        ),
        (
            "chains",
            [
                f"{followers.MAX_FOLLOWERS} jobs",
                f"{followers.MAX_CHAIN} in the whole",
                f"{followers.MAX_LEVELS} levels",
                kib(followers.MAX_THEN),
            ],
        ),
        ("answer of a callback", [kib(dispatcher.MAX_ANSWER)]),
        ("result", [kib(pulled.MAX_RESULT)]),
        ("code of a handler's error; its data", [f"{failure.MAX_CODE} characters", kib(failure.MAX_DATA)]),
        ("waits that an answer asks for (`Retry-After`)", [f"{answer_contents.RETRY_AFTER_MAX_MS // 3_600_000} h"]),
        ("one claim", [f"{validation.CLAIM_MAX[1]} jobs", f"{validation.QUEUES_MAX} queues"]),
        ("schedules registered at once", [f"{definition.MAX_SET:,}"]),
        ("instants of a preview", [f"{preview.MAX_COUNT}"]),
        ("workers known", [f"{worker_registry.MAX_WORKERS:,}"]),
        (
            "requests waiting for one scheduler",
            ["{:,}".format((ActorHost.__init__.__kwdefaults__ or {})["mailbox_limit"])],
        ),
        ("ids in one bulk action on dead letters", [f"{bulk.MOST_IDS:,}"]),
        (
            "undo",
            [f"{acts.UNDO_MS // 60_000} minutes", f"{acts.KEPT_MOST:,} jobs", f"{acts.KEPT_BYTES // MIB} MiB"],
        ),
        ("audit log", [f"{audit.AUDIT_MS // DAY_MS} days"]),
        ("activity", [f"{activity.MOST_MINUTES} minutes"]),
        (
            "what a [feed](feed.md) remembers",
            [f"{feed.KEPT_S:.0f} s", f"{feed.MOST_FRAMES:,} frames", f"{feed.MOST_BYTES // MIB} MiB"],
        ),
        ("session of the dashboard", [f"{sessions.LIFE_MS // 3_600_000} hours"]),
        ("exports at once", [f"{transfers.MOST_TOGETHER}"]),
        ("place of a [move](export.md#moving)", [f"{validation.LONGEST_PLACE} printable"]),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_limit_is_the_one_in_the_code(row: str, numbers: list[str]) -> None:
    assert [number for number in numbers if number not in ROWS[row]] == []
