"""Breakages of the rules of bulk actions and of undo, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_schedules import Mutant

ACTS = (
    Mutant(
        "undo: a job comes back under another name",
        "actors/scheduler/transitions/undo.py",
        "    await restore(turn, job, await",
        "    job = replace(job, incarnation=turn.incarnation())\n    await restore(turn, job, await",
    ),
    Mutant(
        "undo: a job whose id is free stays gone",
        "actors/scheduler/transitions/undo.py",
        "    await restore(turn, job, await",
        "    return None\n    await restore(turn, job, await",
    ),
    Mutant(
        "undo: a job that ran when it was cancelled comes back",
        "actors/scheduler/transitions/pools.py",
        "    if done.was_running:",
        "    if False:",
        seeds=200,
    ),
    Mutant(
        "undo: a letter that was retried and has run is dead again",
        "actors/scheduler/transitions/undo.py",
        "    if not waits or known.at.attempt != trash.dead.at.attempt:",
        "    if not waits:",
        seeds=300,
    ),
)
