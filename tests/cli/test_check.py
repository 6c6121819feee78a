"""`tocsin check` names every broken invariant of a store, `--repair` repairs what can be, and the jobs arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from tocsin.actors.scheduler.integrity.findings import KINDS
from tocsin.actors.scheduler.model.acts import TrashRow
from tocsin.actors.scheduler.model.backfill_rows import Backfilling, BackfillRow
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.groups import GroupRow
from tocsin.actors.scheduler.model.rows import (
    DAY_MS,
    AtRow,
    DeadRow,
    IdemRow,
    JobRow,
    LeaseRow,
    LinesRow,
    ParkedRow,
    PoolRow,
    R,
    RedriveRow,
    ResultRow,
    decode,
    encode,
)
from tocsin.actors.scheduler.model.schedule_rows import CursorRow

from .conftest import Run
from .damaged_stores import WAITING, Rows, deliver, edited

ALL = {*WAITING, "held"}


def change(rows: Rows, key: bytes, kind: type[R], **members: object) -> None:
    rows.put(key, encode(msgspec.structs.replace(decode(kind, key, rows.get(key)), **members)))


def move(rows: Rows, key: bytes, to: bytes) -> None:
    rows.put(to, rows.get(key))
    rows.delete(key)


@dataclass(frozen=True)
class Break:
    """An edit, the faults it makes, and what is different after the repair from a store that was whole."""

    edit: Callable[[Rows], object]
    codes: set[str]
    lost: set[str] = field(default_factory=set)
    """Jobs that are not delivered: dead after all, or in people's hands."""
    more: set[str] = field(default_factory=set)
    """Jobs that are delivered although they would not be from a whole store."""
    left: set[str] = field(default_factory=set)
    """Faults that only people can repair."""
    aside: int = 0


def garbage(prefix: bytes, holding: bytes = b"") -> Callable[[Rows], None]:
    return lambda rows: rows.put(rows.one(prefix, holding), b"\xc1 garbage")


def drop(prefix: bytes, holding: bytes = b"") -> Callable[[Rows], None]:
    return lambda rows: rows.delete(rows.one(prefix, holding))


def line_of(rows: Rows, job_id: bytes) -> bytes:
    return rows.one(b"line/", b"/" + job_id)


def a_second_line(rows: Rows) -> None:
    rows.put(line_of(rows, b"plain").replace(b"/09/", b"/03/"))


def a_little_later(rows: Rows) -> None:
    """A word of its own may have been lost: so where it stands is believed."""
    key = line_of(rows, b"plain")
    move(rows, key, b"line///09/%015d/plain" % (int(key.split(b"/")[4]) + 300_000))


def a_line_beside_a_lease(rows: Rows) -> None:
    rows.put(line_of(rows, b"plain").replace(b"plain", b"held"))


def a_line_beside_a_letter(rows: Rows) -> None:
    job = decode(JobRow, b"job/dead", rows.get(b"job/dead"))
    rows.put(b"line///09/%015d/dead" % job.scheduled_for)
    at = decode(DeadRow, b"dead/dead", rows.get(b"dead/dead")).at
    rows.put(b"at/dead", encode(msgspec.structs.replace(at, next_at=job.scheduled_for)))


def a_letter_beside_a_line(rows: Rows) -> None:
    rows.put(b"dead/plain", encode(DeadRow("exhausted", 1_700_000_000_000, AtRow(0))))
    rows.put(b"parked/001700000000000/plain", encode(ParkedRow("exhausted", "", "work:run")))


def a_lease_of_nobody(rows: Rows) -> None:
    key = rows.one(b"lease/held/")
    rows.put(b"lease/nobody/9.9.ffff", rows.get(key))


def a_second_lease(rows: Rows) -> None:
    key = rows.one(b"lease/held/")
    lease = decode(LeaseRow, key, rows.get(key))
    rows.put(
        b"lease/held/9.9.ffff", encode(msgspec.structs.replace(lease, at=msgspec.structs.replace(lease.at, attempt=0)))
    )


def a_lease_of_two(rows: Rows) -> None:
    key = rows.one(b"lease/held/")
    rows.put(key.replace(b"held", b"plain"), rows.get(key))


def a_job_that_is_another(rows: Rows) -> None:
    rows.put(b"job/impostor", rows.get(b"job/plain"))


def history_of_another_day(rows: Rows) -> None:
    key = rows.keys(b"hist/")[0]
    move(rows, key, b"hist/000001/" + key.split(b"/", 2)[2])


def answers_without_timer(rows: Rows) -> None:
    today = 20_000
    rows.put(b"idem/%06d/abcd" % today, encode(IdemRow(b"b", today * DAY_MS + 5, 200, b"{}")))


def a_redrive_without_timer(rows: Rows) -> None:
    rows.put(b"redrive/r1", encode(RedriveRow(before=0, rate=1, matched=0, next_at=1_900_000_000_000)))


BACKFILL = BackfillRow(1, 2, 1, 1, 0, ("* * * * *", None, None, "UTC", 0))


def a_backfill(rows: Rows) -> None:
    rows.put(b"backfill/rare/b1", encode(BACKFILL))


def a_backfill_without_timer(rows: Rows) -> None:
    a_backfill(rows)
    change(rows, b"cronat/rare", CursorRow, backfill=Backfilling(("b1",)))


def a_result_without_timer(rows: Rows) -> None:
    rows.put(b"result/gone", encode(ResultRow("1-1", "done", 1_900_000_000_000, 1_900_000_060_000, b"1")))


def lose_a_schedule(rows: Rows) -> None:
    rows.delete(b"cron/rare")
    rows.delete(b"cronat/rare")


BREAKS: dict[str, Break] = {
    # Places
    "a line row is gone": Break(lambda r: r.delete(line_of(r, b"plain")), {"NO_PLACE", "LINES", "COUNTER"}),
    "a line row of a pool is gone": Break(lambda r: r.delete(line_of(r, b"pooled")), {"NO_PLACE", "LINES", "COUNTER"}),
    "a lease is gone": Break(drop(b"lease/held/"), {"NO_PLACE", "COUNTER"}),
    "a letter is gone": Break(drop(b"dead/dead"), {"NO_PLACE", "COUNTER", "PARKED", "PATHS", "TIMER_IDLE"}),
    "a job stands in line twice": Break(a_second_line, {"TWO_PLACES", "LINES", "COUNTER"}, aside=1),
    "a running job stands in line beside its lease": Break(
        a_line_beside_a_lease, {"TWO_PLACES", "LINES", "COUNTER"}, aside=1
    ),
    "a dead job stands in line": Break(
        a_line_beside_a_letter, {"TWO_PLACES", "LINES", "COUNTER", "LEFTOVER", "WAKE"}, more={"dead"}, aside=1
    ),
    "a waiting job is dead, too": Break(a_letter_beside_a_line, {"TWO_PLACES", "COUNTER", "PATHS"}, aside=1),
    "a job has two leases": Break(a_second_lease, {"TWO_PLACES", "COUNTER"}),
    "a job stands at another instant than it says": Break(
        lambda r: move(r, line_of(r, b"retried"), b"line///09/001900000000000/retried"), {"WRONG_PLACE"}
    ),
    "a job that says nothing stands at another instant": Break(a_little_later, {"WRONG_PLACE", "LINES"}),
    "a job stands in another pool": Break(
        lambda r: move(r, line_of(r, b"plain"), line_of(r, b"plain").replace(b"line//", b"line/q/")),
        {"WRONG_PLACE", "LINES"},
    ),
    "a job's place is gone": Break(drop(b"at/retried"), {"WRONG_PLACE"}),
    # Rows of nobody
    "a line row of nobody": Break(
        lambda r: r.put(line_of(r, b"plain").replace(b"plain", b"nobody")),
        {"NO_JOB", "LINES", "COUNTER"},
        left={"LOST"},
        aside=1,
    ),
    "a lease of nobody": Break(a_lease_of_nobody, {"NO_JOB", "COUNTER"}),
    "a lease is of two jobs": Break(a_lease_of_two, {"TWO_PLACES", "NO_JOB", "COUNTER"}, aside=1),
    "a letter of nobody": Break(
        lambda r: r.put(b"dead/nobody", r.get(b"dead/dead")), {"NO_JOB", "COUNTER"}, left={"LOST"}, aside=2
    ),
    "a place of nobody": Break(lambda r: r.put(b"at/nobody", encode(AtRow(5))), {"NO_JOB"}, aside=1),
    "a place of a dead job": Break(lambda r: r.put(b"at/dead", encode(AtRow(5))), {"LEFTOVER"}, aside=1),
    "a job is gone": Break(
        lambda r: r.delete(b"job/plain"), {"NO_JOB", "PATHS"}, lost={"plain"}, left={"LOST"}, aside=1
    ),
    "a dead job is gone": Break(
        lambda r: r.delete(b"job/dead"), {"NO_JOB", "PARKED", "TIMER_IDLE"}, left={"LOST"}, aside=2
    ),
    # Args
    "a piece of args of nobody": Break(lambda r: r.put(b"args/nobody/00", b"x"), {"ARGS_EXTRA"}, aside=1),
    "a piece of args too many": Break(lambda r: r.put(b"args/big/07", b"x"), {"ARGS_EXTRA"}, aside=1),
    "a piece of args is gone": Break(
        lambda r: r.delete(b"args/big/00"), {"ARGS_LOST"}, lost={"big"}, left={"ARGS_LOST"}
    ),
    "args are no JSON": Break(
        lambda r: change(r, b"job/plain", JobRow, args=b'{"a":'), {"ARGS_LOST"}, lost={"plain"}, left={"ARGS_LOST"}
    ),
    # Summaries
    "a summary is wrong": Break(lambda r: r.put(b"lines/p/", encode(LinesRow({0: (7, 5)}))), {"LINES"}),
    "a summary is gone": Break(drop(b"lines/p/"), {"LINES"}),
    "a summary of nothing": Break(lambda r: r.put(b"lines/q/", encode(LinesRow({0: (1, 5)}))), {"LINES"}),
    "a counter is wrong": Break(
        lambda r: change(r, b"meta/counters", Counters, waiting=99, leased=98, orphaned=97, dead=96), {"COUNTER"}
    ),
    "the counters are gone": Break(drop(b"meta/counters"), {"COUNTER"}),
    "a count of a path is wrong": Break(lambda r: r.put(b"paths/work:run", b"5"), {"PATHS"}),
    "a count of a path is gone": Break(drop(b"paths/work:run"), {"PATHS"}),
    "a count of a path that nothing runs": Break(lambda r: r.put(b"paths/work:other", b"1"), {"PATHS"}),
    "an entry of parked is gone": Break(drop(b"parked/"), {"PARKED"}),
    "an entry of parked is of nobody": Break(
        lambda r: r.put(b"parked/001700000000000/nobody", encode(ParkedRow("x", "", "y"))), {"PARKED"}
    ),
    "an entry of parked says something else": Break(
        lambda r: change(r, r.one(b"parked/"), ParkedRow, pool="q"), {"PARKED"}
    ),
    "a row of a label is gone": Break(drop(b"label/"), {"LABELS"}),
    "a row of a label says another instant": Break(lambda r: r.put(r.one(b"label/"), b"001900000000000"), {"LABELS"}),
    "a row of a label is of nobody": Break(lambda r: r.put(b"label/eu/nobody", b"001900000000000"), {"LABELS"}),
    "a row of a label that its job has not": Break(
        lambda r: r.put(b"label/us/expiring", b"001900000000000"), {"LABELS"}
    ),
    "a row of a label is of a dead job that is none": Break(
        lambda r: r.put(b"deadlabel/eu/001700000000000/expiring", encode(ParkedRow("x", "", "y"))), {"LABELS"}
    ),
    "a row of a label is garbage": Break(garbage(b"label/"), {"UNREADABLE", "LABELS"}, aside=1),
    # Timers
    "an expiry has no timer": Break(drop(b"timer/", b"/expire/"), {"TIMER_MISSING"}),
    "a letter's age has no timer": Break(drop(b"timer/", b"/retire/"), {"TIMER_MISSING"}),
    "a day of history has no timer": Break(drop(b"timer/", b"/history/"), {"TIMER_MISSING"}),
    "answers have no timer": Break(answers_without_timer, {"TIMER_MISSING"}),
    "a redrive has no timer": Break(a_redrive_without_timer, {"TIMER_MISSING"}),
    "a result has no timer": Break(a_result_without_timer, {"TIMER_MISSING"}),
    "a timer at another instant": Break(
        lambda r: move(r, r.one(b"timer/", b"/expire/"), b"timer/001900000000000/expire/expiring"),
        {"TIMER_MISSING", "TIMER_IDLE"},
    ),
    "a timer of nobody": Break(lambda r: r.put(b"timer/001900000000000/retire/x"), {"TIMER_IDLE"}),
    "a timer of no redrive": Break(lambda r: r.put(b"timer/001900000000000/redrive/x"), {"TIMER_IDLE"}),
    "what is kept of an action that is not there": Break(
        lambda r: r.put(b"trash/01mcc5rm0006hhgq2g00002xm9/plain", encode(TrashRow("cancelled", "1-1"))),
        {"TRASH"},
        aside=1,
    ),
    "history under another day": Break(history_of_another_day, {"DAY", "TIMER_MISSING"}),
    # The wake time
    "nobody is to be woken": Break(lambda r: r.wake(None), {"WAKE"}),
    "to be woken too late": Break(lambda r: r.wake(1_950_000_000_000), {"WAKE"}),
    # What cannot be read
    "a job is garbage": Break(
        garbage(b"job/plain"), {"UNREADABLE", "NO_JOB", "PATHS"}, lost={"plain"}, left={"LOST"}, aside=2
    ),
    "a job with pieces of args is garbage": Break(
        garbage(b"job/big"), {"UNREADABLE", "NO_JOB", "ARGS_EXTRA", "PATHS"}, lost={"big"}, left={"LOST"}, aside=5
    ),
    "a job says it is another": Break(a_job_that_is_another, {"UNREADABLE"}, left={"LOST"}, aside=1),
    "a place is garbage": Break(garbage(b"at/retried"), {"UNREADABLE", "WRONG_PLACE"}, aside=1),
    "a lease is garbage": Break(garbage(b"lease/held/"), {"UNREADABLE", "NO_PLACE", "COUNTER"}, aside=1),
    "a letter is garbage": Break(
        garbage(b"dead/dead"), {"UNREADABLE", "NO_PLACE", "PARKED", "PATHS", "TIMER_IDLE"}, aside=1
    ),
    "an entry of parked is garbage": Break(garbage(b"parked/"), {"UNREADABLE", "PARKED"}, aside=1),
    "a summary is garbage": Break(garbage(b"lines/p/"), {"UNREADABLE", "LINES"}, aside=1),
    "the counters are garbage": Break(garbage(b"meta/counters"), {"UNREADABLE", "COUNTER"}, aside=1),
    "a pool is garbage": Break(garbage(b"pool/p"), {"UNREADABLE"}, aside=1),
    "the instance is garbage": Break(lambda r: r.put(b"instance", b"\xc1"), {"UNREADABLE"}, aside=1),
    "history is garbage": Break(lambda r: r.put(r.keys(b"hist/")[0], b"\xc1"), {"UNREADABLE"}, aside=1),
    "a key has another shape": Break(lambda r: r.put(b"line/too/short"), {"UNREADABLE"}, aside=1),
    "a timer's key has another shape": Break(lambda r: r.put(b"timer/soon/expire/x"), {"UNREADABLE"}, aside=1),
    "a key is no text": Break(lambda r: r.put(b"pool/\xff\xfe", encode(PoolRow(3))), {"UNREADABLE"}, aside=1),
    # Schedules
    "a schedule has no timer": Break(drop(b"timer/", b"/cron/"), {"SCHEDULE"}),
    "a schedule's timer is at another instant": Break(
        lambda r: move(r, r.one(b"timer/", b"/cron/"), b"timer/001900000000000/cron/rare"), {"SCHEDULE"}
    ),
    "a timer of no schedule": Break(lambda r: r.put(b"timer/009000000000000/cron/x"), {"SCHEDULE"}),
    "a schedule counts wrong": Break(lambda r: change(r, b"cronat/rare", CursorRow, live=3, kept=9), {"SCHEDULE"}),
    "a schedule holds back what is not there": Break(
        lambda r: change(r, b"cronat/rare", CursorRow, queued=1_900_000_000_000), {"SCHEDULE"}
    ),
    "a backfill is named by no schedule": Break(a_backfill, {"SCHEDULE"}),
    "a backfill has no timer": Break(a_backfill_without_timer, {"SCHEDULE"}),
    "a group counts a member that is not there": Break(
        lambda r: r.put(b"group/import", encode(GroupRow("u1", 1, members=1, open=1))), {"GROUP"}
    ),
    "a backfill has lost its schedule": Break(lambda r: r.put(b"backfill/gone/b1", encode(BACKFILL)), {"SCHEDULE"}),
    "a timer of no backfill": Break(lambda r: r.put(b"timer/009000000000000/cronbackfill/rare"), {"SCHEDULE"}),
    "a schedule has lost its cursor": Break(drop(b"cronat/rare"), {"SCHEDULE"}),
    "a schedule has lost its definition": Break(drop(b"cron/rare"), {"SCHEDULE"}),
    "a schedule has lost both": Break(lose_a_schedule, {"SCHEDULE"}),
    "a definition is garbage": Break(garbage(b"cron/rare"), {"UNREADABLE", "SCHEDULE"}, left={"LOST"}, aside=1),
    "a cursor is garbage": Break(garbage(b"cronat/rare"), {"UNREADABLE", "SCHEDULE"}, aside=1),
    "a result is garbage": Break(lambda r: r.put(b"result/gone", b"\xc1"), {"UNREADABLE"}, aside=1),
    "a count of a path is garbage": Break(
        lambda r: r.put(b"paths/work:run", b"many"), {"PATHS", "UNREADABLE"}, aside=1
    ),
    "a slot is garbage": Break(garbage(b"slot/rare/"), {"UNREADABLE"}, aside=1),
    "args are kept of no bulk action": Break(lambda r: r.put(b"trashargs/none/a/00", b"y"), {"TRASH"}, aside=1),
    # What is not known
    "a row of no known kind": Break(lambda r: r.put(b"sched/x", b"y"), {"UNKNOWN_ROW"}, left={"UNKNOWN_ROW"}),
    "a timer of no known kind": Break(
        lambda r: r.put(b"timer/009000000000000/comet/x"), {"UNKNOWN_ROW"}, left={"UNKNOWN_ROW"}
    ),
}


def lines_of(run: Run, *words: str) -> tuple[int, list[dict[str, object]]]:
    result = run("check", *words, "--json")
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_every_kind_of_fault_is_made_here() -> None:
    made = {code for each in BREAKS.values() for code in each.codes | each.left}
    assert made | {"LAYOUT"} == set(KINDS)


@pytest.mark.parametrize("name", ["a job is garbage", "a job is gone", "a dead job is gone", "a definition is garbage"])
def test_lost_work_is_told_until_what_is_left_of_it_is_discarded(run: Run, store: Path, name: str) -> None:
    """After looking at it, from a copy that has it still."""
    with edited(store) as rows:
        BREAKS[name].edit(rows)
    url = f"sqlite:///{store}"
    assert run("check", "--repair", "--store", url).exit_code == 1
    both = run("check", "--repair", "--discard", "--store", url)
    assert both.exit_code == 2 and "two steps" in both.stderr

    gone = run("check", "--discard", "--store", url)
    assert gone.exit_code == 0, gone.output
    assert f"deleted {BREAKS[name].aside} row" in gone.stderr and "sound:" in gone.stderr
    (copy,) = store.parent.glob("jobs.db.before-discard-*")
    assert run("check", "--store", f"sqlite:///{copy}").exit_code == 1
    code, found = lines_of(run, "--discard", "--store", url)
    assert (code, [one["type"] for one in found]) == (0, ["summary"]), "nothing to discard, so nothing is copied"
    assert len(list(store.parent.glob("jobs.db.before-discard-*"))) == 1


def test_a_whole_store_is_sound(run: Run, store: Path) -> None:
    result = run("check", "--store", f"sqlite:///{store}")
    assert result.exit_code == 0, result.output
    assert "sound: 1 scheduler, 8 jobs" in result.stderr
    assert sorted(each.name for each in store.parent.iterdir()) == ["jobs.db"]
    assert run("check", "--repair", "--store", f"sqlite:///{store}").exit_code == 0
    assert sorted(each.name for each in store.parent.iterdir()) == ["jobs.db"], "nothing to repair, nothing copied"
    assert {one.id for one in asyncio.run(deliver(store, ALL))} == ALL


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_named_and_mended_and_the_jobs_arrive(run: Run, store: Path, name: str) -> None:
    broken = BREAKS[name]
    with edited(store) as rows:
        broken.edit(rows)
    url = f"sqlite:///{store}"
    before = store.read_bytes()

    code, found = lines_of(run, "--store", url)
    assert (code, {str(one["code"]) for one in found if one["type"] == "fault"}) == (1, broken.codes)
    assert store.read_bytes() == before, "a check writes nothing"
    assert [each.name for each in store.parent.iterdir()] == ["jobs.db"]
    shown = run("check", "--store", url).stdout
    assert max(map(len, shown.splitlines())) <= 80

    mended = run("check", "--repair", "--store", url)
    assert mended.exit_code == (1 if broken.left else 0), mended.output
    code, found = lines_of(run, "--store", url)
    assert {str(one["code"]) for one in found if one["type"] == "fault"} == broken.left
    aside = [one for one in found if one["type"] == "setAside"]
    if broken.codes - broken.left:
        (copy,) = store.parent.glob("jobs.db.before-repair-*")
        code, found_before = lines_of(run, "--store", f"sqlite:///{copy}")
        assert {str(one["code"]) for one in found_before if one["type"] == "fault"} == broken.codes
    assert len(aside) == broken.aside, aside

    expected = (ALL | broken.more) - broken.lost
    # Held work comes again a moment later than all else; where no lease was touched nobody waits for it.
    arrived = [one.id for one in asyncio.run(deliver(store, expected if "lease" in name else expected - {"held"}))]
    assert len(arrived) == len(set(arrived)), "each once"
    assert {*arrived, "held"} == expected
    _, found = lines_of(run, "--store", url)
    assert {str(one["code"]) for one in found if one["type"] == "fault"} <= broken.left
