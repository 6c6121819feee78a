"""Requests with an Idempotency-Key: the first answer is committed with its effect and given again for 24 hours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import DAY_MS, IdemRow, idem_key
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.kept_answers import Kept
from tocsin.actors.scheduler.transitions.submit import Answer, submit
from tocsin.errors import IdempotencyMismatchError, TocsinError
from tocsin.storage.api import StoreView

KEPT_MS = DAY_MS
Render = Callable[[Sequence[Answer]], Kept | TocsinError]


@dataclass(frozen=True, slots=True)
class Once:
    """A request to be done once. `key` hashes identity, route and Idempotency-Key; `render` writes the answer, or
    gives a refusal that is not to be kept, since the same request may pass later."""

    key: bytes
    body: bytes
    render: Render


def damaged_answer() -> IdempotencyMismatchError:
    """Make the refusal of a request whose kept answer cannot be read any more. It was carried out, so it is not carried
    out again."""
    return IdempotencyMismatchError(
        "this Idempotency-Key was used in the last 24 hours, and the answer kept for it was damaged in the store: look "
        "for what that request made, or send it again under a new key"
    )


async def answered(view: StoreView, key: bytes, now: int) -> bool:
    """Tell whether an answer may be kept for the request: then nothing new is needed to give it again."""
    today = now // DAY_MS
    return bool(await view.get([idem_key(day, key) for day in (today, today - 1)]))


async def submit_once(turn: Turn, jobs: Sequence[NewJob], once: Once) -> Kept | TocsinError:
    """Return status and body, those of the first time if there was one. IdempotencyMismatchError if that was another
    request.

    Refusals are answered, not raised: a raised one ends this activation, and callers may repeat them at will.
    """
    today = turn.now // DAY_MS
    for day in (today, today - 1):
        key = idem_key(day, once.key)
        value = await turn.state.storage.get(key)
        row = None if value is None else turn.state.read(IdemRow, key, value)
        if row is not None and turn.now - row.at <= KEPT_MS:
            if row.body != once.body:
                return IdempotencyMismatchError(
                    "this Idempotency-Key was used for another request in the last 24 hours: send that one again, or "
                    "make a new key"
                )
            return row.status, row.answer
    answer = once.render(await submit(turn, jobs))
    if not isinstance(answer, TocsinError):
        turn.state.remember_answer(once.key, IdemRow(once.body, turn.now, *answer))
    return answer
