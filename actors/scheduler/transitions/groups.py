"""Turns of groups: made, joined, sealed; and what follows one is started in the commit in which its last member ends.

Counts change in memory while a turn goes on, and each group that has changed is read and written once, at its end. So a
member that starts another one as it ends, in one commit, never leaves its group complete in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.groups import (
    CANCELLED,
    DEAD,
    DONE,
    GROUP,
    KEPT_MS,
    MAX_MEMBERS,
    OPEN,
    STOP,
    GroupJobsRow,
    GroupRow,
    counts_of,
    group_jobs_key,
    group_key,
    is_as,
    jobs_of_group,
    member_prefix,
    row_of,
)
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import BadRow, JobRow, encode
from tocsin.actors.scheduler.state.groups import added, groups_of, load_groups, uid_of
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.chains import start, with_free_ids
from tocsin.actors.scheduler.transitions.following import AT_ONCE, follow_deaths
from tocsin.errors import ConflictError, NotFoundError
from tocsin.storage.api import after

BYTES_PER_TURN: Final = 2 * 1024 * 1024
"""About how many bytes of what follows groups are started in one turn."""
PAGE: Final = 500
Refused = NotFoundError | ConflictError


async def follow(turn: Turn) -> bool:
    """Start what follows the deaths and the groups of this turn; return whether there was anything."""
    state = turn.state
    worked = False
    while state.following or (state.groups is not None and state.groups.touched):
        worked = True
        if state.following:
            await follow_deaths(turn)
        if state.groups is not None and state.groups.touched:
            await settle_groups(turn)
    return worked


# ---- Made and joined -----------------------------------------------------------------------------


async def read_groups(turn: Turn, jobs: Sequence[NewJob]) -> None:
    """Read the groups that these jobs name, and what follows those that some of them define."""
    named = {new.job.extras.group for new in jobs if new.job.extras is not None and new.job.extras.group is not None}
    if named:
        await load_groups(turn.state, named)
        keys = {group_jobs_key(new.group.name) for new in jobs if new.group is not None}
        await turn.state.storage.prefetch([key for key in keys if key not in turn.state.storage.layer.read])


def may_join(turn: Turn, new: NewJob, replaced: JobRow | None) -> Refused | None:
    """Say why a job cannot join the group that it names, which was read; None if it can, or names none. `replaced`
    makes way for it."""
    extras = new.job.extras
    if extras is None or extras.group is None:
        return None
    groups, name = groups_of(turn.state), extras.group
    row = groups.rows.get(name)
    if row is None and new.group is None:
        return NotFoundError(f"there is no group {name!r}: open it first, or define it with the job")
    if row is None:
        return None
    if new.group is not None and (another := _differs(turn, new.group, row)) is not None:
        return another
    if row.sealed or row.state != OPEN:
        how = "sealed" if row.state == OPEN else f"complete ({row.state})"
        return ConflictError(f"group {name!r} is {how} and takes no more jobs: choose another name", group=name)
    most = MAX_MEMBERS if row.size is None else row.size
    leaves = replaced is not None and uid_of(replaced) == row.uid
    if groups.members(name) - leaves >= most:
        return ConflictError(f"group {name!r} has {most} members, and may have no more", group=name)
    return None


def join(turn: Turn, new: NewJob) -> NewJob:
    """Return a job that may join its group as a member of it; make the group, if the job defines it."""
    extras = new.job.extras
    if extras is None or extras.group is None:
        return new
    row = groups_of(turn.state).rows.get(extras.group)
    if row is None:
        assert new.group is not None
        row = _make(turn, replace(new.group, initiator=new.job.initiator))
    return replace(new, job=replace(new.job, extras=replace(extras, group_uid=row.uid)))


async def open_group(turn: Turn, new: NewGroup) -> GroupRow | ConflictError:
    """Make a group. The same again changes nothing."""
    await load_groups(turn.state, [new.name])
    await turn.state.storage.prefetch([group_jobs_key(new.name)])
    row = groups_of(turn.state).rows.get(new.name)
    return _make(turn, new) if row is None else _differs(turn, new, row) or row


def _make(turn: Turn, new: NewGroup) -> GroupRow:
    turn.state.use_flow()
    row = row_of(new, mint_id(turn.now, turn.random.getrandbits(80)), turn.now)
    groups_of(turn.state).put(new.name, row)
    turn.state.storage.put(group_jobs_key(new.name), encode(GroupJobsRow(new.then, new.on_dead)))
    return row


def _differs(turn: Turn, new: NewGroup, row: GroupRow) -> ConflictError | None:
    """Say that there is another group of this name than the one that is asked for; None if it is the same."""
    layer, key = turn.state.storage.layer, group_jobs_key(new.name)
    value = layer.puts.get(key) or layer.read.get(key)
    jobs = None if value is None else turn.state.read(GroupJobsRow, key, value)
    with suppress(BadRow):
        if jobs is not None and is_as(new, row, jobs):
            return None
    return ConflictError(
        f"there is a group {new.name!r} with another size, or with other jobs that follow: name it only, or choose "
        "another name",
        group=new.name,
    )


async def seal(turn: Turn, name: str) -> GroupRow | Refused:
    """Let no more jobs join a group. It is complete when all its members have ended."""
    groups = await load_groups(turn.state, [name])
    row = groups.rows.get(name)
    if row is None:
        return NotFoundError(f"there is no group {name!r}")
    if row.sealed:
        return row
    groups.put(name, replace(row, sealed=True))
    await settle_groups(turn)
    return groups.rows[name]


# ---- Complete ------------------------------------------------------------------------------------


async def settle_groups(turn: Turn) -> None:
    """Add what the turn has noted, and complete the groups that it has completed."""
    groups = groups_of(turn.state)
    deltas, groups.deltas = groups.deltas, {}
    await load_groups(turn.state, sorted({name for name, _ in deltas} | groups.changed))
    changed, groups.changed = groups.changed, set()
    for (name, uid), by in deltas.items():
        row = groups.rows.get(name)
        if row is not None and uid == row.uid:
            groups.rows[name] = added(row, by)
            changed.add(name)
    for name in sorted(changed):
        if name in groups.rows:
            await _complete(turn, name, groups.rows[name])


async def _complete(turn: Turn, name: str, row: GroupRow) -> None:
    state, groups = turn.state, groups_of(turn.state)
    old = groups.stored.get(name)
    if row.state == DEAD and row.open:  # a dead member was retried
        row = replace(row, state=OPEN, ended_at=None)
    if row.stopping and row.open and old is not None and row.members > old.members:
        # What follows a member that had ended joined behind the page that was cancelled last.
        row = replace(row, cursor="")
        state.put_timer(AT_ONCE, STOP, name)
    if row.state == OPEN and row.is_complete:
        if groups.started >= BYTES_PER_TURN:
            state.put_timer(AT_ONCE, GROUP, name)
        else:
            row = await _end(turn, name, row)
    rings_at = _rings_at(turn, row)
    if rings_at != row.rings_at:
        if row.rings_at:
            state.drop_timer(row.rings_at, GROUP, name)
        if rings_at:
            state.put_timer(rings_at, GROUP, name)
        row = replace(row, rings_at=rings_at)
    groups.rows[name] = groups.stored[name] = row
    if row == old:
        return
    changes = state.paths.changes
    for target in () if old is None else old.pending():
        changes[target] -= 1
    for target in row.pending():
        changes[target] += 1
    state.storage.put(group_key(name), encode(row))


def _rings_at(turn: Turn, row: GroupRow) -> int:
    """Return when a group is dropped: one of whose members some are dead when they are dropped, too."""
    if row.ended_at is None:
        return 0
    kept_ms = KEPT_MS if row.state != DEAD else turn.state.limits.dead_ms
    return 0 if kept_ms is None else row.ended_at + kept_ms


async def _end(turn: Turn, name: str, row: GroupRow) -> GroupRow:
    """Complete a group, and start what follows it: if all is well, or once if some of its members have died."""
    if row.stopping:
        return replace(row, state=CANCELLED, ended_at=turn.now)
    state = DEAD if row.dead else DONE
    key = group_jobs_key(name)
    value = None if row.dead and row.told else await turn.state.storage.get(key)
    jobs = None if value is None else turn.state.read(GroupJobsRow, key, value)
    if jobs is not None:
        try:
            followers = (await with_free_ids(turn, {name: jobs_of_group(jobs.on_dead if row.dead else jobs.then)}))[
                name
            ]
        except BadRow as error:
            turn.state.set_aside(key, value or b"", str(error))
            followers = ()
        parent = JobRow(name, "", turn.now, turn.now, b"", initiator=row.initiator)
        said = msgspec.json.encode(counts_of(row))
        groups_of(turn.state).started += start(turn, parent, followers, said, "group")
    return replace(row, state=state, told=row.told or state == DEAD, ended_at=turn.now)


# ---- Dropped -------------------------------------------------------------------------------------


async def look_again(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Drop groups that are past their age, and complete those for which there was no room in their own commit."""
    groups = await load_groups(turn.state, sorted({name for _, name in due}))
    for ms, name in due:
        row = groups.rows.get(name)
        if row is not None and row.rings_at == ms:
            await _drop(turn, name, row)
        elif row is not None:
            groups.changed.add(name)


async def _drop(turn: Turn, name: str, row: GroupRow) -> None:
    """Delete a group, and a page of the rows of members that are dead letters; the next page has a turn of its own."""
    state, groups, prefix = turn.state, groups_of(turn.state), member_prefix(row.uid)
    left = [] if turn.is_full else await state.storage.scan(prefix, after(prefix), limit=PAGE)
    for key, _ in left:
        state.storage.delete(key)
    if turn.is_full or len(left) == PAGE:
        again = replace(row, rings_at=turn.now)
        state.put_timer(turn.now, GROUP, name)
        groups.rows[name] = groups.stored[name] = again
        state.storage.put(group_key(name), encode(again))
        return
    state.storage.delete(group_key(name))
    state.storage.delete(group_jobs_key(name))
    groups.rows.pop(name, None)
    groups.stored.pop(name, None)
