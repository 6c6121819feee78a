"""Breakages of groups and of backfills, for `mutants.py`."""

from __future__ import annotations

from tests.simulation.mutants_flow import flow

GROUPS = "actors/scheduler/transitions/groups.py"
APPLY = "actors/scheduler/transitions/apply.py"
BACKFILL = "actors/scheduler/schedules/backfill.py"

FLOW_GROUPS = (
    flow(
        "a member that died has ended well",
        APPLY,
        '    Park: {"open": -1, "dead": 1},\n',
        '    Park: {"open": -1, "done": 1},\n',
    ),
    flow(
        "a dead member that is retried does not open its group again",
        GROUPS,
        "    if row.state == DEAD and row.open:",
        "    if False and row.open:",
    ),
    flow(
        "what follows a group follows it, though it was cancelled",
        GROUPS,
        "    if row.stopping:\n        return replace(row, state=CANCELLED, ended_at=turn.now)\n",
        "",
    ),
    flow(
        "a group is complete with members that live",
        "actors/scheduler/model/groups.py",
        "        return not self.open and (",
        "        return self.open < 2 and (",
    ),
    flow(
        "slots that an earlier backfill has run are run again",
        BACKFILL,
        "            return row.state in RUN_AGAIN\n",
        "            return True\n",
    ),
)
