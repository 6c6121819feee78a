"""Slots of a schedule's past that are run: asked for, shown on its page, and stopped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.overview import share
from tocsin.actors.http.dashboard.page import Act, Done, Field, Question
from tocsin.actors.http.dashboard.words import amount, exact
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.schedule_records import ScheduleRecord
from tocsin.actors.scheduler.model.validation import instant_ms
from tocsin.errors import InvalidInputError, NotFoundError

RATE: Final = 10
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Line:
    """One backfill, and whether the caller may stop it."""

    backfill: Backfill
    may_stop: bool

    @property
    def share(self) -> float:
        return share(self.backfill.started, self.backfill.matched)


async def lines(asked: Asked, name: str) -> list[Line]:
    """Return the newest backfills of a schedule, for whoever may see them."""
    if not await asked.may("schedules.backfills", name):
        return []
    found = (await asked.port.schedules.backfills(name))[:SHOWN]
    may_stop = await asked.may("schedules.backfill_stop", name)
    return [Line(one, may_stop and one.state in ("running", "waiting")) for one in found]


async def ask_backfill(asked: Asked) -> Question:
    one = await _schedule(asked)
    hint = f"Like 2027-01-31 or 2027-01-31T09:00; without an offset in the time zone {one.timezone}."
    at_once = (
        "Several may run at once." if one.overlap == "allow" else "They run one at a time; slots that come go first."
    )
    return Question(
        title=f"Run the past of {one.name}?",
        words=("Slots of this time that had no run of their own are run now, each once.", at_once),
        button="Run them",
        back=_url(asked),
        fields=(
            Field(name="start", label="From", required=True, hint=hint),
            Field(name="end", label="Before", required=True, hint="Slots to come are left out."),
            Field(name="rate", label="Slots a second, at most", value=str(RATE), kind="number", required=True),
        ),
    )


async def backfill(asked: Asked) -> Done:
    one = await _schedule(asked)
    given = asked.field("rate")
    if not (given.isascii() and given.isdecimal() and len(given) <= 9):
        raise InvalidInputError(f"rate must be a whole number of slots a second, not {given[:80]!r}")
    start, end = (_instant(asked.field(name), name, one) for name in ("start", "end"))
    begun = await asked.port.schedules.backfill(
        one.name, start=start, end=end, rate_per_second=int(given), dry_run=False
    )
    if not begun.matched:
        left = f": {amount(begun.left_out or 0, 'slot')} ran already, or cannot" if begun.left_out else ""
        return Done(words=f"There is no slot to run{left}.", back=_url(asked), changed=False)
    return Done(
        words=f"{amount(begun.matched, 'slot')} of {one.name} will be run, the first of {exact(begun.slots[0])}.",
        back=_url(asked),
    )


async def ask_stop(asked: Asked) -> Question:
    return Question(
        title="Stop this backfill?",
        words=("What it has started goes on; slots that it has not reached stay as they are.",),
        button="Stop it",
        back=_url(asked),
    )


async def stop(asked: Asked) -> Done:
    stopped = await asked.port.schedules.backfill_stop(asked.names["name"], asked.names["id"])
    words = "The backfill is stopped." if stopped else "The backfill had ended."
    return Done(words=words, back=_url(asked), changed=stopped)


async def _schedule(asked: Asked) -> ScheduleRecord:
    name = asked.names["name"]
    await asked.admit("schedules.get", name)
    one = await asked.port.schedules.get(name)
    if one is None:
        raise NotFoundError(f"there is no schedule {name!r}")
    return one


def _instant(text: str, name: str, one: ScheduleRecord) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"{name} must look like 2027-01-31 or 2027-01-31T09:00, not {text[:80]!r}") from None
    if moment.tzinfo is None:
        try:
            moment = moment.replace(tzinfo=ZoneInfo(one.timezone))
        except (ZoneInfoNotFoundError, ValueError):  # a zone that this host no longer knows
            moment = moment.replace(tzinfo=UTC)
    return instant_ms(moment, name)


def _url(asked: Asked) -> str:
    return asked.url(f"/schedules/{asked.names['name']}")


STOP: Final = Act(
    path="/schedules/{name}/backfills/{id}/stop", action="schedules.backfill_stop", resource="name", name="schedules",
    ask=ask_stop, do=stop,
)  # fmt: skip
