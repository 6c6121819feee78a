"""The act that frees the slot of an attempt of which nobody will hear: of a job, or of a holder of a pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.page import Act, Done, Question
from tocsin.actors.http.dashboard.words import exact, relative
from tocsin.actors.scheduler.model.freed import Freed

KINDS: Final = ("accepted", "unknown")
"""Kinds of leases that can be ended."""


def ask(back: Callable[[Asked], str]) -> Callable[[Asked], Awaitable[Question]]:
    """Return what asks before a slot is freed."""

    async def ask_free(asked: Asked) -> Question:
        id = asked.names["id"]
        return Question(
            title=f"Free the slot of {id}?",
            words=(
                "Its attempt is given up now, as when its lease ends: the job is retried, or is dead without a retry "
                "left.",
                "If the receiver still works on it, it may run twice at a time. It may still report success until the "
                "next attempt starts.",
            ),
            button="Free the slot",
            back=back(asked),
            grave=True,
        )

    return ask_free


def do(back: Callable[[Asked], str]) -> Callable[[Asked], Awaitable[Done]]:
    """Return what frees a slot, and tells what became of its job."""

    async def free(asked: Asked) -> Done:
        id = asked.names["id"]
        freed = await asked.port.changes.free_slot(id)
        if not freed.freed:
            return Done(words=f"Nothing holds {id} any more: nothing was freed.", back=back(asked), changed=False)
        return Done(words=f"Freed the slot of {id}: {_becomes(freed, asked.now_ms)}.", back=back(asked))

    return free


def _becomes(freed: Freed, now: int) -> str:
    if freed.next_attempt_at is not None:
        return f"its next attempt is {relative(freed.next_attempt_at, now)}, at {exact(freed.next_attempt_at)}"
    return f"it is {freed.state}"


def act(path: str, page: str, back: Callable[[Asked], str]) -> Act:
    """Return the act at this path of a page."""
    return Act(name=page, path=path, action="free_slot", resource="id", ask=ask(back), do=do(back))
