"""One schedule: its definition, its next instants where it lives, how its slots ended, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tocsin.actors.http.dashboard.args import readable
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.audit import paused_words
from tocsin.actors.http.dashboard.backfills import STOP, Line, ask_backfill, backfill, lines
from tocsin.actors.http.dashboard.marks import Mark, legend, marks_of
from tocsin.actors.http.dashboard.page import Act, Done, Field, Page, Question
from tocsin.actors.http.dashboard.schedules import rule_of
from tocsin.actors.http.dashboard.words import LAST_MS, amount, exact, relative, span
from tocsin.actors.scheduler.model.schedule_records import Occurrence, OccurrencePage, ScheduleRecord
from tocsin.errors import NotFoundError, TocsinError

NEXT: Final = 5
MARKS: Final = 60
KEY_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant to come: epoch ms, what clocks show where the schedule lives, and what a change of the clock does."""

    at: int
    there: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSchedule:
    """The page of a schedule: where it stands, what comes, what was."""

    schedule: ScheduleRecord
    rule: str
    facts: Sequence[tuple[str, str]]
    """Names and values of its definition."""
    next: Sequence[Instant]
    marks: Sequence[Mark]
    legend: Sequence[tuple[str, str]]
    occurrences: Sequence[Occurrence]
    older: str | None
    """The cursor of the marks before these."""
    later: bool
    """True where there are marks after these."""
    paused: str
    """By whom it was paused, and when."""
    args: str | None
    """As JSON, where they were asked for."""
    cut: bool
    """True if they are too long for a page."""
    told: bool
    """False to whom HTTP would not tell its occurrences."""
    may: frozenset[str]
    """The acts that the caller may do, by the last part of their paths."""
    backfills: Sequence[Line] = ()


async def show(asked: Asked) -> OneSchedule:
    query = asked.query("cursor", "args")
    one = await _known(asked)
    told = await asked.may("schedules.occurrences", one.name)
    page = OccurrencePage(occurrences=(), truncated=False)
    if told:
        page = await asked.port.schedules.occurrences(one.name, cursor=query.text("cursor") or None, limit=MARKS)
    marks = marks_of(page.occurrences)
    args, cut = readable(one.raw_args) if query.text("args") else (None, False)
    return OneSchedule(
        schedule=one,
        rule=rule_of(one),
        facts=facts_of(one),
        next=await _next(asked, one),
        marks=marks,
        legend=legend(marks),
        occurrences=page.occurrences,
        older=page.cursor,
        later=query.text("cursor") is not None,
        paused=paused_words(one.paused_at, one.paused_by, asked.now_ms) if one.paused else "",
        args=args,
        cut=cut,
        told=told,
        backfills=await lines(asked, one.name),
        may=frozenset([act.path.rpartition("/")[2] for act in ACTS if await asked.may(act.action, one.name)]),
    )


async def _known(asked: Asked) -> ScheduleRecord:
    name = asked.names["name"]
    await asked.admit("schedules.get", name)
    one = await asked.port.schedules.get(name)
    if one is None:
        raise NotFoundError(f"there is no schedule {name!r}")
    return one


async def _next(asked: Asked, one: ScheduleRecord) -> Sequence[Instant]:
    """Return its next instants: of its rule, without the jitter that its jobs are given."""
    first = one.next_at
    if first is None:
        return ()
    if not await asked.may("schedules.preview"):
        return [_instant(first, one.timezone)]
    if one.cron is None:
        every = one.every_ms
        return [_instant(first + n * (every or 0), one.timezone) for n in range(NEXT if every else 1)]
    try:
        found = await asked.port.schedules.preview(one.cron, timezone=one.timezone, start=None, count=NEXT)
    except TocsinError:  # a zone that this host no longer knows: the schedule's own error says so
        return [_instant(first, "UTC")]
    return [_instant(at, one.timezone, note) for at, note in zip(found.next, found.notes, strict=True)]


def _instant(at: int, zone: str, note: str | None = None) -> Instant:
    if not 0 <= at <= LAST_MS - 86_400_000:
        return Instant(at, f"{at} ms", note)
    try:
        there = datetime.fromtimestamp(at / 1000, ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):  # a zone that this host no longer knows
        there = datetime.fromtimestamp(at / 1000, UTC)
    return Instant(at, there.strftime("%a %Y-%m-%d %H:%M:%S %Z"), note)


def facts_of(one: ScheduleRecord) -> Sequence[tuple[str, str]]:
    """Return its definition as names and values; what is as it is by default is left out, but for the policies."""
    facts: list[tuple[str, str | None]] = [
        ("Calls", one.function_path or (f"workflow {one.workflow}" if one.workflow else None)),
        ("Rule", rule_of(one)),
        ("Time zone", one.timezone),
        ("If slots were missed", _misfire(one)),
        ("If one is still live", {"skip": "skip the slot", "queue": "hold one back", "allow": "run both"}[one.overlap]),
        ("Pool", one.pool),
        ("Queue", one.queue),
        ("Priority", str(one.priority) if one.priority else None),
        ("Labels", ", ".join(one.labels) if one.labels else None),
        ("Jitter", f"up to {span(one.jitter_ms)}" if one.jitter_ms else None),
        ("Deadline of a call", span(one.timeout_ms) if one.timeout_ms else None),
        ("Expires", f"{span(one.expires_after_ms)} after its slot" if one.expires_after_ms else None),
        ("Then", amount(len(one.then), "job follows", "jobs follow") if one.then else None),
        ("If it dies", amount(len(one.on_dead), "job follows", "jobs follow") if one.on_dead else None),
        ("Owner", one.owner),
        ("Put by", " ".join(filter(None, (one.initiator.token, one.initiator.user))) if one.initiator else None),
        ("Since", exact(one.created_at)),
        ("Revision", str(one.revision)),
    ]
    return [(name, value) for name, value in facts if value]


def _misfire(one: ScheduleRecord) -> str:
    late = f"later than {span(one.grace_ms)}"
    if one.misfire == "skip":
        return f"skip those {late}"
    if one.misfire == "one":
        return f"one run stands for all {late}"
    return "run all" if one.catch_up_limit is None else f"run the newest {one.catch_up_limit:,}"


# ---- What can be done ----------------------------------------------------------------------------


def _when(asked: Asked, one: ScheduleRecord) -> str:
    if one.next_at is None:
        return "It has no next slot."
    return f"Its next slot is {exact(one.next_at)}, {relative(one.next_at, asked.now_ms)}."


def _live(one: ScheduleRecord) -> str:
    return f"{amount(one.live, 'occurrence is', 'occurrences are')} live, and not touched by this."


async def ask_pause(asked: Asked) -> Question:
    one = await _known(asked)
    words = ("Its slots pass as skipped until it is resumed; they are not caught up.", _when(asked, one), _live(one))
    return Question(title=f"Pause the schedule {one.name}?", words=words, button="Pause", back=_url(asked))


async def pause(asked: Asked) -> Done:
    one = await asked.port.schedules.pause(asked.names["name"], revision=None)
    return Done(words=f"The schedule {one.name} is paused: its slots are skipped.", back=_url(asked))


async def ask_resume(asked: Asked) -> Question:
    one = await _known(asked)
    words = ("It fires again from its next slot on; slots that passed meanwhile stay skipped.",)
    return Question(title=f"Resume the schedule {one.name}?", words=words, button="Resume", back=_url(asked))


async def resume(asked: Asked) -> Done:
    one = await asked.port.schedules.resume(asked.names["name"], revision=None)
    return Done(words=f"The schedule {one.name} is resumed. {_when(asked, one)}", back=_url(asked))


async def ask_trigger(asked: Asked) -> Question:
    one = await _known(asked)
    what = one.function_path or one.workflow
    return Question(
        title=f"Run the schedule {one.name} now?",
        words=(f"One job of {what} becomes due at once, also if the schedule is paused.", _when(asked, one)),
        button="Run it now",
        back=_url(asked),
        # The same form sent twice starts one.
        kept={"key": f"dashboard-{asked.host.runtime.random.randbytes(KEY_BYTES).hex()}"},
    )


async def trigger(asked: Asked) -> Done:
    run = await asked.port.schedules.trigger(asked.names["name"], asked.field("key"))
    words = f"The schedule {run.name} runs now, as job {run.id}." if run.created else "It was run by this form already."
    return Done(words=words, back=_url(asked), changed=run.created)


async def ask_delete(asked: Asked) -> Question:
    one = await _known(asked)
    choice = Field(
        name="cancel", label="Cancel its live occurrences too", kind="checkbox",
        hint=f"{amount(one.live, 'job')} of it now",
    )  # fmt: skip
    return Question(
        title=f"Delete the schedule {one.name}?",
        words=("It fires no more, and its definition is gone. Its history is kept for 30 days.", _when(asked, one)),
        button="Delete it",
        back=_url(asked),
        grave=True,
        fields=(choice,) if one.live else (),
    )


async def delete(asked: Asked) -> Done:
    name, cancels = asked.names["name"], asked.form.get("cancel") == "on"
    deleted = await asked.port.schedules.delete(name, revision=None, cancel_pending=cancels)
    said = f"The schedule {name} is deleted" + (", and its live occurrences are cancelled." if cancels else ".")
    words = said if deleted else f"There was no schedule {name} any more."
    return Done(words=words, back=asked.url("/schedules"), changed=deleted)


def _url(asked: Asked) -> str:
    return asked.url(f"/schedules/{asked.names['name']}")


_NAMED: Final = "/schedules/{name}"
ACTS: Final = tuple(
    Act(path=f"{_NAMED}/{verb}", action=f"schedules.{verb}", resource="name", name="schedules", ask=ask, do=do)
    for verb, ask, do in (
        ("pause", ask_pause, pause),
        ("resume", ask_resume, resume),
        ("trigger", ask_trigger, trigger),
        ("backfill", ask_backfill, backfill),
        ("delete", ask_delete, delete),
    )
)
PLACES: Final = (
    Page(
        path=_NAMED, action="schedules.get", resource="name", name="schedules", title="Schedule",
        show=show, template="schedule.html",
    ),
    *ACTS,
    STOP,
)  # fmt: skip
