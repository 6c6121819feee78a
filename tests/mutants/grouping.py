"""Breakages of groups: what is counted, and when what follows starts."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

G = "tests/actors/scheduler/queues/test_groups.py::"
GROUPS = "actors/scheduler/transitions/groups.py"

GROUPING = (
    Mutant(
        "groups: one that is complete is told twice that some have died",
        GROUPS,
        "told=row.told or state == DEAD",
        "told=False",
        tests=(G + "test_some_dead_members_start_the_other_jobs_once_and_a_retry_that_succeeds_completes_it",),
    ),
    Mutant(
        "groups: a group that is cancelled is followed",
        GROUPS,
        "    if row.stopping:\n",
        "    if False:\n",
        tests=(G + "test_a_group_is_cancelled_page_after_page_over_a_crash_and_nothing_follows",),
    ),
    Mutant(
        "groups: a retried member does not open it again",
        GROUPS,
        "if row.state == DEAD and row.open:",
        "if False:",
        tests=(G + "test_some_dead_members_start_the_other_jobs_once_and_a_retry_that_succeeds_completes_it",),
    ),
    Mutant(
        "groups: those that do not fit are forgotten",
        GROUPS,
        "            state.put_timer(AT_ONCE, GROUP, name)\n",
        "            pass\n",
        tests=(G + "test_many_groups_that_are_complete_at_once_start_what_follows_in_several_turns",),
    ),
    Mutant(
        "groups: a job that was replaced is counted",
        "actors/scheduler/transitions/apply.py",
        'Replace: {"open": -1, "members": -1}',
        'Replace: {"open": -1, "cancelled": 1}',
        tests=(G + "test_cancelled_expired_and_replaced_members_end_too",),
    ),
)
