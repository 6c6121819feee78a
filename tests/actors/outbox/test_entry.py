"""What an app writes: checked at the call, in the words of the scheduler, for every driver."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Group
from tocsin.actors.outbox.entry import Outbox, OutboxEntry
from tocsin.actors.outbox.job_text import new_job, read
from tocsin.actors.outbox.statements import schema
from tocsin.actors.runtime.clock import SystemClock
from tocsin.actors.scheduler.client.job_checks import Job, JobOptions
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.scheduler.model.validation import OPTIONS
from tocsin.dispatch.job_options import MEMBERS
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.retry import Retry
from tocsin.errors import InvalidInputError, InvalidScheduleIdError, PayloadTooLargeError, SettingsError

AT = datetime(2030, 1, 1, tzinfo=UTC)
AT_MS = 1_893_456_000_000


class StoppedClock(SystemClock):
    def now_ms(self) -> int:
        return AT_MS - 1_000_000


def outbox(**options: Any) -> Outbox:
    return Outbox(random=Random(1), **options)


def job(entry: OutboxEntry) -> dict[str, Any]:
    text: dict[str, Any] = msgspec.json.decode(entry.statement.values["job"])
    return text


# ---- What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda box: box.run_at(AT.replace(tzinfo=None), "a:b"), InvalidInputError, "at must be an aware datetime"),
        (lambda box: box.run_at(1_893_456_000, "a:b"), InvalidInputError, "at looks like seconds"),
        (lambda box: box.run_after(-1, "a:b"), InvalidInputError, "delay must not be negative"),
        (lambda box: box.run_after("soon", "a:b"), InvalidInputError, "delay must look like"),
        (lambda box: box.run_after(1, None), InvalidInputError, "exactly one of path and workflow"),
        (lambda box: box.run_after(1, "a:b", workflow="w"), InvalidInputError, "exactly one of path"),
        (lambda box: box.run_after(1, " "), InvalidInputError, "path must be a text that is not empty"),
        (lambda box: box.run_after(1, "a:b", {"x": [object()]}), InvalidInputError, r"args\.x\[0\]"),
        (lambda box: box.run_after(1, "a:b", "x" * 300_000), PayloadTooLargeError, "args: 300002 bytes"),
        (lambda box: box.run_after(1, "a:b", id="no good"), InvalidScheduleIdError, "id must match"),
        (lambda box: box.run_after(1, "a:b", pool="no good"), InvalidInputError, "pool must be"),
        (lambda box: box.run_after(1, "a:b", max_concurrency=2), InvalidInputError, "give pool as well"),
        (lambda box: box.run_after(1, "a:b", priority=10), InvalidInputError, r"priority must be -9\.\.9"),
        (lambda box: box.run_after(1, "a:b", retry={"max_retries": 1}), InvalidInputError, "retry must be a Retry"),
        (lambda box: box.run_after(1, "a:b", on_conflict="x"), InvalidInputError, "on_conflict must be one of"),
        (lambda box: box.run_after(1, "a:b", timout_ms=1), InvalidInputError, "unknown option 'timout_ms'"),
    ],
)
def test_a_mistake_is_an_error_in_the_transaction_that_names_it(
    call: Callable[[Outbox], OutboxEntry], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(outbox())


def test_what_is_not_in_the_catalog_is_an_error_in_the_transaction() -> None:
    box = outbox(catalog={"a:known": int})
    box.run_after(1, "a:known", 7)
    with pytest.raises(InvalidInputError, match="args"):
        box.run_after(1, "a:known", "seven")
    with pytest.raises(InvalidInputError, match="a:other"):
        box.run_after(1, "a:other", 7)
    with pytest.raises(InvalidInputError, match=r"then\[0\]: .*a:other"):
        box.run_after(1, "a:known", 7, then=[Job(path="a:other")])


def test_names_that_could_be_sql_are_refused() -> None:
    for table in ("x; DROP TABLE y", 'x"', "1x", "", "a.b.c", "x" * 49, 7):
        with pytest.raises(SettingsError, match="table must be a plain SQL name"):
            outbox(table=table)
    with pytest.raises(InvalidInputError, match="instance name"):
        outbox(instance="a b")
    with pytest.raises(SettingsError, match="dialect must be one of sqlite, postgresql, not 'mysql'"):
        outbox().schema("mysql")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="PostgreSQL only"):
        outbox().schema("sqlite", announce=True)


# ---- What is written -----------------------------------------------------------------------------


def test_every_option_of_a_job_comes_over() -> None:
    given: JobOptions = {
        "id": "mine", "on_conflict": "replace", "pool": "p", "max_concurrency": 3, "priority": -2,
        "retry": Retry(max_retries=1, jitter=0.5), "timeout_ms": 5_000, "expires_at": AT + timedelta(days=1),
        "shard_key": "s", "labels": ["a", "b"], "initiator": "ann", "keep_result": "1h",
        "rate": Rate(5, "1m", 2), "throttle": "1m", "on_throttle": "refuse",
        "then": [Job(path="a:next", args=AT, after="5m", options={"queue": "q", "then": [Job(workflow="w")]})],
        "group": Group("g", then=[Job(path="a:next", options={"queue": "q"})], size=2),
        "on_dead": [Job(path="a:gone", options={"queue": "q", "on_dead": [Job(workflow="w")]})],
    }  # fmt: skip
    in_ms = ("keep_result_ms", "max_wait_ms", "throttle_ms")
    known = {one.removesuffix("_ms") if one in in_ms else one for one in OPTIONS - {"debounce_ms"}}
    assert known == {*MEMBERS, "initiator"} == JobOptions.__annotations__.keys(), "an option is new"
    assert given.keys() == known - {"queue", "origin", "url", "max_wait"}, "those that this host takes for a callback"

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        box = Outbox("t", clock=sim.clock, random=sim.random)
        args = {"when": AT, "sum": Decimal("1.20"), "raw": b"\0", "many": 2**70, "ü": None}
        entry = box.run_at(AT, "a:b", args, **given)
        direct: Any = {**given, "id": "direct"}
        await sim.jobs.run_at(AT, "a:b", args, **direct)

        brought = new_job(sim.port.checks, "t", entry.statement.values["job"])
        await sim.port.jobs.submit(brought)
        one, other = await sim.jobs.get("mine"), await sim.jobs.get("direct")
        assert one is not None and other is not None
        assert without_ids(one) == without_ids(other)
        assert (one.args, one.raw_args) == (args, other.raw_args)

    run()


def without_ids(record: Record) -> bytes:
    """All but the ids, also of what follows."""
    return re.sub(rb'"(id|incarnation)":"[^"]*"', b"", msgspec.json.encode(record))


def test_the_text_is_what_schedule_takes_over_http() -> None:
    entry = outbox(clock=StoppedClock()).run_at(AT_MS, None, {"a": 1}, workflow="w", retry=Retry(max_retries=0))
    assert job(entry) == {
        "workflow": "w", "args": {"a": 1}, "scheduledFor": AT_MS, "id": entry.id, "onConflict": "keep",
        "retry": {"maxRetries": 0},
    }  # fmt: skip
    assert read(entry.statement.values["job"]).scheduled_for == AT_MS


def test_a_delay_is_counted_from_the_call() -> None:
    entry = outbox(clock=StoppedClock()).run_after("5m", "a:b")
    assert job(entry)["scheduledFor"] == AT_MS - 700_000


def test_ids_grow_within_a_transaction_and_over_threads() -> None:
    box = outbox(clock=StoppedClock())
    rows: list[str] = []

    def write() -> None:
        rows.extend([box.run_after(0, "a:b", id="same").statement.values["id"] for _ in range(200)])

    write()
    assert rows == sorted(rows)
    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*rows}) == 1_000


def test_two_rows_may_have_the_same_job_id() -> None:
    with sqlite3.connect(":memory:") as db:
        for sql in schema("sqlite"):
            db.execute(sql)
        box = outbox()
        for _ in range(2):
            db.execute(*box.run_after(0, "a:b", id="same", on_conflict="replace").qmark)
        assert db.execute("SELECT count(*) FROM tocsin_outbox").fetchone() == (2,)
    db.close()


# ---- For every driver ----------------------------------------------------------------------------


def test_each_driver_gets_its_own_form() -> None:
    entry = outbox(table="app.jobs").run_at(AT, "a:b", {"it's": ":id %s ? $1"})
    values = entry.statement.values
    into = "INSERT INTO app.jobs (id, instance, job, created_at) VALUES "
    assert entry.qmark == (into + "(?, ?, ?, ?)", tuple(values.values()))
    assert entry.dollar == (into + "($1, $2, $3, $4)", *values.values())
    assert entry.named == (into + "(:id, :instance, :job, :created_at)", values)
    assert entry.pyformat == (into + "(%(id)s, %(instance)s, %(job)s, %(created_at)s)", values)
    assert str(entry.insert) == into + "(:id, :instance, :job, :created_at)"
    assert entry.insert.compile().params == values
