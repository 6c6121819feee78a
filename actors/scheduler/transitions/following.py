"""Start what follows a death: the jobs of `on_dead`, in the commit in which their job dies.

What does not fit into that commit is started by a timer in the turns behind it, which it names in its key: the job, and
of which death it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.damage import intact
from tocsin.actors.scheduler.model.followers import on_dead_of
from tocsin.actors.scheduler.model.rows import DeadRow, JobRow
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.chains import LEAST_SIZE, load_followers, start

FOLLOW: Final = "follow"
BYTES_PER_TURN: Final = 2 * 1024 * 1024
"""About how many bytes of jobs that follow deaths are started in one turn."""
AT_MOST: Final = 20 * LEAST_SIZE
"""How many bytes the jobs behind one death count as, besides their args."""
AT_ONCE: Final = 1
"""The instant of a timer that rings as soon as there is a turn."""


class Death(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A death, as the jobs behind it are told of it."""

    reason: str
    parked_at: int
    attempts: int
    message: str | None = None
    status: int | None = None
    code: str | None = None
    data: msgspec.Raw | None = None
    response: str | None = None


async def follow_deaths(turn: Turn) -> None:
    """Start what follows the deaths of this turn, as many as fit; the others have a timer."""
    deaths, turn.state.following = turn.state.following, ()
    await _follow(turn, deaths)


async def follow_later(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Start what follows deaths for which there was no room in their own commits."""
    deaths = [_named(key) for _, key in due]
    ids = [job_id for job_id, _, _ in deaths]
    letters, known = await turn.letters(ids), await turn.jobs(ids)
    found: list[tuple[JobRow, DeadRow]] = []
    for job_id, parked_at, reason in deaths:
        if job_id in letters and letters[job_id][1].parked_at == parked_at:
            found.append(letters[job_id])
        elif job_id in known:  # it was retried meanwhile; it died all the same
            found.append((known[job_id].job, DeadRow(reason, parked_at, known[job_id].at)))
    await _follow(turn, found)


async def _follow(turn: Turn, deaths: Sequence[tuple[JobRow, DeadRow]]) -> None:
    size = fits = 0
    for job, _ in deaths:
        if size >= BYTES_PER_TURN or (fits and turn.is_full):
            break
        size += _size_of(job)
        fits += 1
    chains = await load_followers(turn, [job for job, _ in deaths[:fits]], on_dead_of, lambda blob: blob.on_dead)
    for job, dead in deaths[:fits]:
        start(turn, job, chains.get(job.id, ()), _told(dead), "dead")
    for job, dead in deaths[fits:]:
        turn.state.put_timer(AT_ONCE, FOLLOW, f"{job.id}.{dead.parked_at}.{dead.reason}")


def _size_of(job: JobRow) -> int:
    return AT_MOST + (0 if job.extras is None else job.extras.on_dead_size)


def _named(key: str) -> tuple[str, int, str]:
    """Return the id of the job, when it was parked, and the reason."""
    job_id, parked_at, reason = key.split(".", 2)
    return job_id, int(parked_at), reason


def _told(dead: DeadRow) -> bytes:
    """Return a death as JSON."""
    error: Any = dead.at.last_error
    return msgspec.json.encode(
        Death(
            reason=dead.reason,
            parked_at=dead.parked_at,
            attempts=dead.at.attempts,
            message=None if error is None else error.message,
            status=dead.status,
            code=None if error is None else error.code,
            data=None if error is None else intact(error.data),
            response=None if dead.response is None else dead.response.decode("utf-8", "replace"),
        )
    )
