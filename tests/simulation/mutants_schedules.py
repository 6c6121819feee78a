"""Breakages of the rules of schedules, for `mutants.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.breaking import Breakage


@dataclass(frozen=True, slots=True)
class Mutant(Breakage):
    """A breakage that the simulation must catch."""

    seeds: int = 0
    """At least so many, if the story that shows it is a rare one."""
    tests: str = "tests/simulation/test_simulation.py"


SCHEDULES = (
    Mutant(
        "schedules: the cursor does not move with the occurrence",
        "actors/scheduler/schedules/process_due.py",
        "        last=decided.last,\n",
        "        last=one.cursor.last if owed.fires and not owed.more else decided.last,\n",
    ),
    Mutant(
        "schedules: the next slot follows from the clock",
        "actors/scheduler/schedules/slots.py",
        "    first, newest, coming = found.slots[0], found.slots[-1], found.next\n",
        "    first, newest, coming = found.slots[0], now // 1000 * 1000, series(now)\n",
    ),
    Mutant(
        "schedules: the cursor jumps to the clock",
        "actors/scheduler/schedules/process_due.py",
        "        last=decided.last,\n",
        "        last=max(decided.last, turn.now + 5_000),\n",
    ),
    Mutant(
        "schedules: an end is not counted",
        "actors/scheduler/schedules/apply_ends.py",
        "                one.move(live=max(one.cursor.live + LIVE_BY[how], 0))\n",
        "                one.move(live=one.cursor.live)\n",
    ),
    Mutant(
        "schedules: a slot held back is forgotten",
        "actors/scheduler/schedules/apply_ends.py",
        "        if not one.cursor.paused:\n            one.arm()\n",
        "        one.move(queued=None)\n",
    ),
    Mutant(
        "schedules: revisions are not compared",
        "actors/scheduler/schedules/change.py",
        "    if revision != at:\n",
        "    if revision > at:\n",
    ),
    Mutant(
        "schedules: overlaps are not looked at",
        "actors/scheduler/schedules/fire.py",
        "    elif not one.may_start:\n",
        "    elif False:\n",
    ),
    Mutant(
        "schedules: slots say coalesced though no run stands for them",
        "actors/scheduler/schedules/fire.py",
        "        record_pieces(turn, one, fire.pieces, state, reason)\n",
        '        record_pieces(turn, one, fire.pieces, "coalesced")\n',
        also=(
            (
                "actors/scheduler/schedules/apply_ends.py",
                '_pieces(turn, one, one.cursor.stands or (), "skipped", reason)\n',
                '_pieces(turn, one, one.cursor.stands or (), "coalesced")\n',
            ),
        ),
        seeds=400,
    ),
    Mutant(
        "schedules: one of a backlog is not counted",
        "actors/scheduler/schedules/slots.py",
        "        older = ((first, found.slots[-2], len(found.slots) - 1),)\n",
        "        older = ((first, found.slots[-2], len(found.slots)),)\n",
        seeds=200,
    ),
    Mutant(
        "schedules: an edit drops the slots that had come",
        "actors/scheduler/schedules/change.py",
        "    if until > one.cursor.last:\n        try:\n",
        "    if until < one.cursor.last:\n        try:\n",
    ),
    Mutant(
        "schedules: a pause drops the slots that pass",
        "actors/scheduler/schedules/change.py",
        "skip_to=turn.now if turn.now > cursor.last else None)\n",
        "last=max(turn.now, cursor.last))\n",
        seeds=300,
    ),
    Mutant(
        "schedules: one that is made again begins anew",
        "actors/scheduler/schedules/change.py",
        "        last = max(turn.now, left.last)\n",
        "        last = turn.now - 120_000\n",
    ),
    Mutant(
        "schedules: what a turn leaves has no timer",
        "actors/scheduler/schedules/process_due.py",
        "    one.arm(more=owed.more)\n",
        "    one.arm()\n    if owed.more:\n        one.move(rings_at=None)\n",
        seeds=200,
    ),
    Mutant(
        "schedules: a cursor that is far ahead stays there",
        "actors/scheduler/schedules/recompute.py",
        "    return latest_slot > now + AHEAD_MS\n",
        "    return False\n",
        seeds=600,
    ),
    Mutant(
        "schedules: a triggered one is made at every call",
        "actors/scheduler/schedules/change.py",
        "    if row is not None:\n        return Triggered(name, row.slot, row.job_id, False)\n",
        '    if row is not None:\n        request += "x"\n',
    ),
)
