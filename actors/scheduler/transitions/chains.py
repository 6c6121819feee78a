"""Chains: what follows a job is started in the commit that settles it, or in which it dies, so no crash comes
between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.followers import Follower, followers_of, with_blob
from tocsin.actors.scheduler.model.groups import DEAD, OPEN
from tocsin.actors.scheduler.model.payload import Blob, parts_of
from tocsin.actors.scheduler.model.rows import LARGEST_MS, BadRow, JobRow, job_key
from tocsin.actors.scheduler.state.groups import load_groups
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.apply import accept

log = logging.getLogger("tocsin.scheduler")

LEAST_SIZE: Final = 2_000
"""How many bytes a small job counts as, since a commit also holds a limited number of rows."""
Chains = dict[str, tuple[Follower, ...]]
"""By the id of a job: the jobs that are to follow it."""


async def load_followers(
    turn: Turn,
    chained: Sequence[JobRow],
    read: Callable[[JobRow, bytes], tuple[Follower, ...]] = followers_of,
    stored: Callable[[Blob], bytes] = lambda blob: blob.then,
) -> Chains:
    """Read what follows each of these jobs, by its id. A hop only for those whose args continue in other rows."""
    whole = await turn.all_args(chained)
    found: Chains = {}
    for job in chained:
        try:
            found[job.id] = read(job, whole[job.id])
        except BadRow as error:
            # Nothing can run it any more. It is kept under bad/, and the job is settled as done, which it is, or dead.
            turn.state.set_aside(error.key, stored(parts_of(job, whole[job.id])), str(error))
    return await with_free_ids(turn, found)


async def with_free_ids(turn: Turn, found: Chains) -> Chains:
    """Mint another id for each follower whose id was taken after the chain was submitted."""
    found = await _in_groups(turn, found)
    keys = [job_key(one.job.id) for followers in found.values() for one in followers]
    taken = await turn.state.storage.get_many(keys) if keys else {}
    if not taken:
        return found

    def free(one: Follower) -> Follower:
        if job_key(one.job.id) not in taken:
            return one
        other = mint_id(turn.now, turn.random.getrandbits(80))
        log.warning("id %r is taken: the job that was to follow with it is now %r", one.job.id, other)
        return msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, id=other))

    return {parent: tuple(free(one) for one in followers) for parent, followers in found.items()}


async def _in_groups(turn: Turn, found: Chains) -> Chains:
    """Tell each follower that is to join a group which one that is; leave out one that is there no more."""
    named = {one.job.extras.group for jobs in found.values() for one in jobs if one.job.extras is not None} - {None}
    if not named:
        return found
    groups = await load_groups(turn.state, sorted(name for name in named if name is not None))

    def placed(one: Follower) -> Follower:
        extras = one.job.extras
        if extras is None or extras.group is None:
            return one
        row = groups.rows.get(extras.group)
        if row is None or row.state not in (OPEN, DEAD):
            log.warning(
                "there is no open group %r: the job %r that was to join it is in none", extras.group, one.job.id
            )
            where = msgspec.structs.replace(extras, group=None)
        else:
            where = msgspec.structs.replace(extras, group_uid=row.uid)
        return msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, extras=where))

    return {parent: tuple(placed(one) for one in jobs) for parent, jobs in found.items()}


def start(turn: Turn, parent: JobRow, followers: Sequence[Follower], result: bytes | None, parent_is: str = "") -> int:
    """Start the jobs that follow, in the commit that settles their parent; return about how many bytes they are.
    `result` is what they are told of it, and `parent_is` says what that is (`JobExtras`)."""
    size = 0
    for one in followers:
        due, extras = min(turn.now + one.delay_ms, LARGEST_MS), one.job.extras
        if parent_is:
            extras = msgspec.structs.replace(extras or JobExtras(), parent_is=parent_is)
        row = msgspec.structs.replace(
            one.job, scheduled_for=due, enqueued_at=turn.now, parent=parent.id, initiator=parent.initiator,
            trace=parent.trace, extras=extras,
        )  # fmt: skip
        new = with_blob(row, one.job.args, one.then, result or b"", one.on_dead)
        accept(turn, new, due)
        size += max(new.size, LEAST_SIZE)
    return size
