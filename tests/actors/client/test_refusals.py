"""What is refused by each way to a scheduler: by the same error, in the same words."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.actors.client.doors import each_door, house
from tocsin.errors import (
    ConflictError,
    InvalidCronError,
    InvalidInputError,
    InvalidScheduleIdError,
    NotFoundError,
    PayloadTooLargeError,
    StaleLeaseError,
    UnknownTimezoneError,
)

pytestmark = pytest.mark.anyio

REFUSED: dict[str, tuple[type[Exception], str, Any]] = {
    "a naive instant": (InvalidInputError, "at .*time zone", lambda jobs: jobs.run_at(datetime(2031, 1, 1), "a")),
    "seconds": (InvalidInputError, "at .*looks like seconds", lambda jobs: jobs.run_at(1_900_000_000, "a")),
    "a negative delay": (InvalidInputError, "delay .*", lambda jobs: jobs.run_after(-1, "a")),
    "no path": (InvalidInputError, "give exactly one of path and workflow", lambda jobs: jobs.run_after(1)),
    "an id": (InvalidScheduleIdError, "id must match", lambda jobs: jobs.run_after(1, "a", id="a b")),
    "a slip": (InvalidInputError, "unknown option 'pol'", lambda jobs: jobs.run_after(1, "a", pol="p")),
    "args": (InvalidInputError, r"args\.x\[0\] is", lambda jobs: jobs.run_after(1, "a", {"x": [object()]})),
    "large args": (PayloadTooLargeError, "args: .* bytes", lambda jobs: jobs.run_after(1, "a", "x" * 300_000)),
    "a limit": (InvalidInputError, r"limit must be 1\.\.1000, not 0", lambda jobs: jobs.list(limit=0)),
    "a limit that is none": (InvalidInputError, "limit must be", lambda jobs: jobs.list(limit="x")),
    "an order": (InvalidInputError, "order must be one of", lambda jobs: jobs.list(order="x")),
    "a cursor": (InvalidInputError, "cursor", lambda jobs: jobs.list(cursor="x")),
    "a name of a pool": (InvalidInputError, "name must be", lambda jobs: jobs.pool("a b")),
    "a cap": (
        InvalidInputError, r"max_concurrency must be 0\.\.10000", lambda jobs: jobs.set_pool("p", max_concurrency=-1)
    ),
    "no setting": (InvalidInputError, "give at least one of max_concurrency, paused", lambda jobs: jobs.set_pool("p")),
    "no filter": (InvalidInputError, "give pool, label or path, or all=True", lambda jobs: jobs.cancel_all()),
    "filters and all": (InvalidInputError, "or all=True", lambda jobs: jobs.dead_retry_all(all=True, pool="p")),
    "a reason": (InvalidInputError, "reason must be one of", lambda jobs: jobs.dead_retry_all(reason="x")),
    "a rate": (
        InvalidInputError, r"rate_per_second must be 1\.\.1000",
        lambda jobs: jobs.dead_retry_all(all=True, rate_per_second=0),
    ),
    "how many": (InvalidInputError, r"max must be 1\.\.100", lambda jobs: jobs.claim("q", max=0, wait=0)),
    "a lease": (
        InvalidInputError, r"lease_ms must be 1000\.\.3600000", lambda jobs: jobs.claim("q", lease_ms=5, wait=0)
    ),
    "a wait": (InvalidInputError, r"wait \(in ms\) must be 0\.\.300000", lambda jobs: jobs.claim("q", wait="1h")),
    "excluded": (
        InvalidInputError, r'exclude goes with queue "\*"', lambda jobs: jobs.claim("q", exclude=["r"], wait=0)
    ),
    "a queue": (InvalidInputError, r"queue\[0\] must be 1 to 128", lambda jobs: jobs.claim("a/b", wait=0)),
    "no queue": (InvalidInputError, "queue: name one", lambda jobs: jobs.claim([], wait=0)),
    "an end": (InvalidInputError, "error goes with ok=False", lambda jobs: jobs.complete("a", "1.1.a", error="x")),
    "a stale lease": (StaleLeaseError, "no lease of job 'a' is alive", lambda jobs: jobs.complete("a", "1.1.a")),
    "a stale extend": (StaleLeaseError, "no lease of job 'a' is alive", lambda jobs: jobs.extend("a", "1.1.a", 5_000)),
    "no result": (NotFoundError, "nothing is known of job 'nobody'", lambda jobs: jobs.result("nobody", 0)),
    "a wrong delay": (InvalidInputError, "timeout must look", lambda jobs: jobs.result("nobody", "soon")),
    "cron": (InvalidCronError, "61 \\* \\* \\* \\*", lambda jobs: jobs.schedules.put("s", "a", cron="61 * * * *")),
    "a zone": (
        UnknownTimezoneError, "Mars", lambda jobs: jobs.schedules.put("s", "a", cron="1 * * * *", timezone="Mars")
    ),
    "no rule": (InvalidInputError, "cron, every", lambda jobs: jobs.schedules.put("s", "a")),
    "a slip in a rule": (
        InvalidInputError, "there is no argument 'evry'", lambda jobs: jobs.schedules.put("s", "a", evry=1)
    ),
    "a name": (InvalidInputError, "a schedule's name must match", lambda jobs: jobs.schedules.get("a b")),
    "a name with a slash": (
        InvalidInputError, "a schedule's name must match", lambda jobs: jobs.schedules.pause("a/b")
    ),
    "nothing to pause": (NotFoundError, "there is no schedule 's'", lambda jobs: jobs.schedules.pause("s")),
    "nothing to trigger": (NotFoundError, "there is no schedule 's'", lambda jobs: jobs.schedules.trigger("s")),
    "a revision": (
        ConflictError, "is not at revision 7", lambda jobs: jobs.schedules.put("s", "a", every=60, revision=7)
    ),
    "no owner": (InvalidInputError, "must match", lambda jobs: jobs.schedules.register("a b", [])),
    "a preview": (InvalidCronError, "nonsense", lambda jobs: jobs.schedules.preview("nonsense")),
    "how far": (
        InvalidInputError, r"count must be 1\.\.100", lambda jobs: jobs.schedules.preview("* * * * *", count=0)
    ),
    "a redrive": (InvalidScheduleIdError, "id must match", lambda jobs: jobs.redrive("a b")),
}  # fmt: skip


@each_door
async def test_what_is_refused_is_refused_in_the_same_words(door: str) -> None:
    async with house(door) as found:
        for name, (kind, words, ask) in REFUSED.items():
            with pytest.raises(kind, match=words) as refused:
                await ask(found.jobs)
            assert type(refused.value) is kind, name
        assert (await found.jobs.status()).backlog == 0
