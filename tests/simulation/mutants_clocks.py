"""Breakages of the rules of test clocks, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_schedules import Mutant

CLOCKS = (
    Mutant(
        "clocks: time goes on while attempts are under way",
        "actors/scheduler/transitions/clock.py",
        "    if state.leases or outlook.ready or outlook.suspects or outlook.named:\n",
        "    if outlook.ready or outlook.suspects or outlook.named:\n",
    ),
    Mutant(
        "clocks: due instants are passed over",
        "actors/scheduler/transitions/clock.py",
        "    at = min([clock.target, *(instant for",
        "    at = max([clock.target, *(instant for",
    ),
    Mutant(
        "clocks: an advance does not go on after a crash",
        "actors/scheduler/actor/clock_of_turn.py",
        " or bool(clock.target) or rings_now",
        " or rings_now",
    ),
    Mutant(
        "clocks: a frozen instance is rung for what is due later",
        "actors/scheduler/actor/clock_of_turn.py",
        "        return 0 if due else end_at, min(rings, default=None)\n",
        "        return 0 if due else end_at or timer, min(rings, default=None)\n",
    ),
)
