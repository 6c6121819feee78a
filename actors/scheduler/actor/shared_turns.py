"""Which events of a scheduler may share a turn, the rows they will read, and when such a turn takes no more of them.

They are those that many callers send at once. Each answers its refusals, and changes nothing that an event behind it
could see before the end of the turn, except rows and the memory that mirrors them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.model.later_rows import throttle_key
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import DAY_MS, at_key, dead_key, idem_key, job_key
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import events
from tocsin.actors.scheduler.transitions.job import Completion

JOBS_OF_AN_EVENT: Final = 16
"""A submission of more jobs, or of args that take more than one row, has a turn of its own."""
KEYS_PER_TURN: Final = 1_000
"""Once a turn has written so many rows, some 400 jobs, the next event gets another one, and others the event loop."""
BYTES_PER_TURN: Final = 1024 * 1024
"""So it is after this much: the next event may write several MiB itself, and a commit holds 8."""

SHARED: Final = frozenset({
    events.ClaimMore,
    events.SettleFinished,
    events.Complete,
    events.Extend,
    events.Cancel,
    events.Reschedule,
    events.RetryDead,
    events.CancelDead,
})  # fmt: skip
READ_IN_STEPS: Final = (events.SubmitOnce, events.Cancel, events.Reschedule)
"""Events that would read one row after the other: also in turns of their own their rows are read ahead."""
SUBMISSIONS: Final = frozenset({events.Submit, events.SubmitOnce})


def may_share(event: Event[Any]) -> bool:
    """Return whether this event may share one turn with others that wait next to it."""
    kind = type(event)
    if kind in SUBMISSIONS:
        jobs = event.jobs  # type: ignore[attr-defined]
        return len(jobs) <= JOBS_OF_AN_EVENT and not any(new.rest_of_args for new in jobs)
    return kind in SHARED


def takes_no_more(turn: Turn) -> bool:
    """Return whether this turn has written so much that the next event should have another one."""
    layer = turn.state.storage.layer
    return layer.size >= BYTES_PER_TURN or len(layer.puts) + len(layer.deletes) >= KEYS_PER_TURN


async def read_ahead(
    turn: Turn, sharing: Sequence[Event[Any]], completions: Callable[[int], Sequence[Completion]]
) -> None:
    """Read what these events will read, all of it in one hop; in a second one what there is of jobs whose ids are
    taken."""
    storage = turn.state.storage
    asked = Counter(new.job.id for event in sharing for new in _submitted(event) if new.chosen)
    keys = {key for event in sharing for key in _keys_of(turn, event, completions)}
    keys.update(job_key(job_id) for job_id in asked)
    throttled = [new.job.id for event in sharing for new in _submitted(event) if new.throttle is not None]
    keys.update(throttle_key(job_id) for job_id in throttled)
    keys.update(key for job_id, count in asked.items() if count > 1 for key in (at_key(job_id), dead_key(job_id)))
    if not keys:
        return
    await storage.prefetch(keys)
    read = storage.layer.read
    taken = (job_id for job_id in asked if read[job_key(job_id)] is not None)
    if more := [key for job_id in taken for key in (at_key(job_id), dead_key(job_id)) if key not in read]:
        await storage.prefetch(more)


def submits_from(turn: Turn, sharing: Sequence[Event[Any]], start: int) -> Sequence[Sequence[NewJob]]:
    """Return the jobs of those submissions that stand next to each other from here on, as many as a turn takes."""
    submits: list[Sequence[NewJob]] = []
    layer = turn.state.storage.layer
    keys, size = len(layer.puts) + len(layer.deletes), layer.size
    for event in islice(sharing, start, None):
        if not isinstance(event, events.Submit) or size >= BYTES_PER_TURN or keys >= KEYS_PER_TURN:
            break
        submits.append(event.jobs)
        keys += 2 * len(event.jobs)
        size += sum([len(new.job.args) for new in event.jobs])
    return submits


def _submitted(event: Event[Any]) -> Sequence[NewJob]:
    return event.jobs if isinstance(event, events.Submit | events.SubmitOnce) else ()


def _keys_of(turn: Turn, event: Event[Any], completions: Callable[[int], Sequence[Completion]]) -> Iterator[bytes]:
    """Return the keys that this event reads in any case, apart from those of ids that it chooses."""
    match event:
        case events.SubmitOnce(_, key):
            today = turn.now // DAY_MS
            yield from (idem_key(today, key), idem_key(today - 1, key))
        case events.Complete(batch):
            for said in completions(batch):
                if turn.state.held.get(said.lease) is not None:
                    continue
                yield from (job_key(said.id), at_key(said.id))
        case events.Cancel(job_id) | events.Reschedule(job_id):
            yield from (job_key(job_id), at_key(job_id), dead_key(job_id))
        case events.RetryDead(job_id) | events.CancelDead(job_id):
            yield from (job_key(job_id), dead_key(job_id))
