"""Breakages of backfills, and the tests that notice them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

B = "actors/scheduler/schedules/backfill.py"
S = "actors/scheduler/schedules/schedule.py"
T = "tests/actors/scheduler/recurring/test_backfill.py::"

BACKFILLING = (
    Mutant(
        "a backfill runs slots that have fired",
        B,
        "            return row.state in RUN_AGAIN\n",
        "            return True\n",
        tests=(T + "test_what_fired_is_left_out_and_slots_to_come_come_by_themselves",),
    ),
    Mutant(
        "a backfill runs slots anew whose rows were dropped for their age",
        B,
        "self.forgotten[0] <= slot <= self.forgotten[1]",
        "False",
        tests=(T + "test_slots_whose_rows_are_dropped_are_not_run_again",),
    ),
    Mutant(
        "a backfill runs slots anew that an earlier one ran, once their rows are dropped",
        B,
        "return not any(first <= slot <= last and slots(slot - 1) == slot for first, last, slots in self.earlier)",
        "return True",
        tests=(T + "test_slots_whose_rows_are_dropped_are_not_run_again",),
    ),
    Mutant(
        "a backfill runs several at once where the schedule has one",
        B,
        """    if not one.may_backfill:
        return
""",
        "",
        tests=(T + "test_a_slot_of_the_past_whose_turn_comes_while_another_one_runs_waits_for_it",),
    ),
    Mutant(
        "a slot that comes during a backfill is skipped",
        "actors/scheduler/schedules/fire.py",
        ' or one.definition.overlap == "queue" or one.runs_past',
        ' or one.definition.overlap == "queue"',
        tests=(T + "test_one_runs_at_a_time_where_the_schedule_says_so_and_the_next_slot_is_held_back",),
    ),
    Mutant(
        "the rest of a run of slots is lost when its first one is run",
        B,
        "if row is not None and row.until is not None and occurrence_id",
        "if False and occurrence_id",
        tests=(T + "test_a_part_of_a_run_of_slots_leaves_the_rest_as_it_was",),
    ),
    Mutant(
        "a backfill takes no account of the pace",
        B,
        "        not_before=turn.now + (TICK_MS",
        "        not_before=0 * (TICK_MS",
        tests=(T + "test_slots_before_it_was_made_are_run_once_in_order_at_the_pace",),
    ),
    Mutant(
        "a backfill fills an instance beyond its quota",
        B,
        " or turn.is_full or over_quota(turn) is not None",
        " or turn.is_full",
        tests=(T + "test_it_waits_while_the_instance_is_full",),
    ),
    Mutant(
        "jobs of a backfill stand in front of all that is due",
        "actors/scheduler/schedules/fire.py",
        "at = due = row.due if row.backfill is None else turn.now",
        "at = due = row.due",
        tests=(
            T + "test_its_jobs_wait_for_their_pool_and_behind_what_is_due",
            T + "test_a_run_expires_by_when_it_was_started_and_says_its_slot",
        ),
    ),
    Mutant(
        "a backfill goes on by another rule",
        B,
        "        if rule_key(one.definition) != row.rule:\n",
        "        if False:\n",
        tests=(T + "test_it_ends_with_its_schedule_and_when_the_rule_is_another",),
    ),
    Mutant(
        "a backfill forgets where it was when its host dies",
        B,
        "        cursor=max(row.cursor, horizon) if reached else cursor,\n",
        "        cursor=row.cursor,\n",
        tests=(T + "test_slots_before_it_was_made_are_run_once_in_order_at_the_pace",),
    ),
)
