"""Acts on one job: cancel, run now, move; and of a dead one retry, or cancel for good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

from tocsin.actors.http.dashboard import freeing
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.page import Act, Done, Field, Question
from tocsin.actors.http.dashboard.words import exact, relative, span
from tocsin.actors.scheduler.model.records import Record, Rescheduled
from tocsin.actors.scheduler.model.validation import duration_ms, instant_ms
from tocsin.errors import InvalidInputError, NotFoundError

OF: Final = "incarnation"
Ask = Callable[[Asked], Awaitable[Question]]
Do = Callable[[Asked], Awaitable[Done]]


async def _job(asked: Asked) -> Record:
    id = asked.names["id"]
    await asked.admit("get", id)
    record = await asked.port.reads.get(id)
    if record is None:
        raise NotFoundError(f"there is no job {id!r} in {asked.instance} any more: it has ended, or was cancelled")
    return record


def _page_of(asked: Asked) -> str:
    return asked.url(f"/jobs/{asked.names['id']}")


def _of(record: Record) -> Mapping[str, str]:
    """Return what a question is about, beside the id: that may be another job's when it is answered."""
    return {OF: record.incarnation}


def _name(record: Record) -> str:
    """Return how questions call a job."""
    return f"{record.function_path or record.workflow}, {record.id}"


# ---- Live jobs -----------------------------------------------------------------------------------


async def ask_cancel(asked: Asked) -> Question:
    record = await _job(asked)
    words = [_name(record), "It is removed for good, and so are its retries and the jobs that would follow it."]
    if record.state == "running":
        words.append("It is running: its attempt goes on where it runs, but nothing comes of it.")
    return Question(
        title="Cancel this job?",
        words=words,
        button="Cancel the job",
        back=_page_of(asked),
        grave=True,
        kept=_of(record),
    )


async def cancel(asked: Asked) -> Done:
    id = asked.names["id"]
    answer = await asked.port.changes.cancel(id)
    if not answer.cancelled:
        return Done(
            words=f"{id} was not there any more: nothing was cancelled.", back=asked.url("/jobs"), changed=False
        )
    running = " Its attempt was running, and may end there." if answer.was_running else ""
    return Done(words=f"Cancelled {id}.{running}", back=asked.url("/jobs"))


async def ask_run(asked: Asked) -> Question:
    record = await _job(asked)
    words = [_name(record), "It becomes due now. It starts as soon as a lane, its pool and the rest let it."]
    return Question(title="Run this job now?", words=words, button="Run now", back=_page_of(asked), kept=_of(record))


async def run(asked: Asked) -> Done:
    return _moved(
        asked, await asked.port.changes.reschedule(asked.names["id"], asked.port.checks.now_ms()), "It is due now."
    )


async def ask_move(asked: Asked) -> Question:
    record = await _job(asked)
    due = record.next_attempt_at if record.next_attempt_at is not None else record.scheduled_for
    field = Field(
        name="when",
        label="When",
        required=True,
        hint='From now on, like "90s", "5m", "2h" or "1d", or an instant with its zone, like 2027-01-31T09:00Z.',
    )
    now = asked.now_ms
    stands = f"It has been due for {span(now - due)}" if due <= now else f"Its next attempt is {relative(due, now)}"
    words = [_name(record), f"{stands}: {exact(due)}."]
    return Question(
        title="Move this job", words=words, button="Move", back=_page_of(asked), fields=[field], kept=_of(record)
    )


async def move(asked: Asked) -> Done:
    now = asked.port.checks.now_ms()
    due = _instant(asked.field("when"), now)
    answer = await asked.port.changes.reschedule(asked.names["id"], due)
    return _moved(asked, answer, f"It is due {relative(due, now)}, at {exact(due)}.")


def _moved(asked: Asked, answer: Rescheduled, words: str) -> Done:
    id, back = asked.names["id"], _page_of(asked)
    if answer.rescheduled:
        return Done(words=f"Moved {id}. {words}", back=back)
    said = "is running already" if answer.was_running else "was not there any more"
    return Done(
        words=f"{id} {said}: nothing was moved.", back=back if answer.was_running else asked.url("/jobs"), changed=False
    )


def _instant(text: str, now: int) -> int:
    """Return the instant that somebody typed in. InvalidInputError says what it must look like."""
    if text[:1].isdigit() and "-" not in text:
        return now + duration_ms(text, "when")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f'when must look like "5m", "2h" or 2027-01-31T09:00Z (an instant with its zone), not {text[:80]!r}'
        ) from None
    return instant_ms(moment, "when")


# ---- Dead ones -----------------------------------------------------------------------------------


async def ask_retry(asked: Asked) -> Question:
    record = await _job(asked)
    words = [_name(record), "It becomes due now, with all its retries. Everything else of it stays as it is."]
    return Question(title="Retry this dead job?", words=words, button="Retry", back=_page_of(asked), kept=_of(record))


async def retry(asked: Asked) -> Done:
    id = asked.names["id"]
    answer = await asked.port.changes.dead_retry(id)
    if answer.retried:
        return Done(words=f"{id} is retried: it is due now.", back=_page_of(asked))
    return Done(words=f"{id} was not dead any more: nothing was retried.", back=asked.url("/jobs"), changed=False)


async def ask_cancel_dead(asked: Asked) -> Question:
    record = await _job(asked)
    words = [_name(record), "It is removed for good, with what it left behind. Its id is free then."]
    return Question(
        title="Cancel this dead job?",
        words=words,
        button="Cancel for good",
        back=_page_of(asked),
        grave=True,
        kept=_of(record),
    )


async def cancel_dead(asked: Asked) -> Done:
    id = asked.names["id"]
    if await asked.port.changes.dead_cancel(id):
        return Done(words=f"Cancelled {id} for good.", back=asked.url("/jobs"))
    return Done(words=f"{id} was not dead any more: nothing was cancelled.", back=asked.url("/jobs"), changed=False)


def _act(name: str, action: str, ask: Ask, do: Do) -> Act:
    async def do_that(asked: Asked) -> Done:
        id, about = asked.names["id"], asked.form.get(OF)
        record = await asked.port.reads.get(id) if about and await asked.may("get", id) else None
        if record is not None and record.incarnation != about:
            words = f"{id} is another job now: the one that was asked about has ended. Nothing was done."
            return Done(words=words, back=_page_of(asked), changed=False)
        return await do(asked)

    return Act(name="jobs", path=f"/jobs/{{id}}/{name}", action=action, resource="id", ask=ask, do=do_that)


PLACES: Final = (
    _act("cancel", "cancel", ask_cancel, cancel),
    _act("run", "reschedule", ask_run, run),
    _act("move", "reschedule", ask_move, move),
    _act("retry", "dead_retry", ask_retry, retry),
    _act("cancel-dead", "dead_cancel", ask_cancel_dead, cancel_dead),
    freeing.act("/jobs/{id}/free", "jobs", _page_of),
)
