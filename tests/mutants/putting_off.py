"""Breakages of debounce and throttle, and the tests that notice them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

F = "actors/scheduler/transitions/put_off.py"
K = "actors/scheduler/state/keeping.py"
D = "tests/actors/scheduler/test_debounce.py::test_"
T = "tests/actors/scheduler/test_throttle.py::test_"
C = "tests/actors/scheduler/test_kept_calls.py::test_"

PUTTING_OFF = (
    Mutant(
        "debounce: a call does not know when the first one came",
        F,
        "        first, said = before\n",
        "        first, said = now, before[1]\n",
        tests=(D + "an_end_that_only_a_later_call_names_counts_from_the_first_call",),
    ),
    Mutant(
        "debounce: a later call takes back the end that was promised",
        F,
        "for end in (said, None if",
        "for end in (None if max_wait_ms is None else None, None if",
        tests=(D + "no_later_call_takes_back_the_end_that_an_earlier_one_was_promised",),
    ),
    Mutant(
        "debounce: after a step back of the clock it waits for the old time",
        F,
        "        if first > now:",
        "        if False:",
        tests=(D + "after_a_step_back_of_the_clock_it_is_put_off_no_longer_than_max_wait",),
    ),
    Mutant(
        "debounce: a retry is put off on the window of the run that failed",
        F,
        "None if holder is None or holder.at.attempt else",
        "None if holder is None else",
        tests=(D + "a_call_that_finds_a_retry_begins_anew",),
    ),
    Mutant(
        "kept calls: the first call is kept, and not the newest",
        K,
        "    drop_later(state, job.id)\n",
        "    if state.later is not None and job.id in state.later.kept:\n        return\n",
        tests=(D + "calls_while_it_runs_become_one_job_when_the_run_has_ended",),
    ),
    Mutant(
        "kept calls: a retry of the old args goes on",
        F,
        "    elif holder is not None:\n",
        "    elif holder is not None and holder.at.attempt < 1:\n",
        tests=(D + "a_kept_call_takes_the_place_of_the_retry_of_a_run_that_failed",),
    ),
    Mutant(
        "kept calls: they are lost with a run that dies",
        F,
        "    if dead:\n",
        "    if dead:\n        return\n    if dead:\n",
        tests=(D + "a_call_kept_for_a_run_that_dies_runs_under_another_id_and_the_letter_keeps_its_own",),
    ),
    Mutant(
        "kept calls: they outlive the cancel of their id",
        K,
        "    if cancelled:\n",
        "    if False:\n",
        tests=(D + "who_cancels_the_id_cancels_the_run_and_the_kept_call",),
    ),
    Mutant(
        "kept calls: they are forgotten at a restart",
        "actors/scheduler/state/rebuild.py",
        "    if state.has_flow and not state.instance.erasing:\n        await load_later(state)\n",
        "",
        tests=(D + "kept_calls_outlive_a_crash_with_args_of_many_pieces",),
    ),
    Mutant(
        "kept calls: all of them are brought, however much the turn has written",
        F,
        "        if turn.is_full and not only:\n",
        "        if False:\n",
        tests=(C + "calls_that_do_not_fit_the_commit_in_which_their_runs_end_go_on_by_timers",),
    ),
    Mutant(
        "kept calls: one that is late takes the place of a newer job",
        F,
        "    if later is not None and late:\n",
        "    if False:\n",
        tests=(C + "calls_that_do_not_fit_the_commit_in_which_their_runs_end_go_on_by_timers",),
    ),
    Mutant(
        "kept calls: nobody counts them as pending",
        K,
        "    state.later.kept[job.id] = without_args(row)\n    _count_paths(state, row, 1)\n",
        "    state.later.kept[job.id] = without_args(row)\n",
        tests=(C + "a_paused_instance_keeps_what_is_put_off_and_a_kept_call_counts_as_pending",),
    ),
    Mutant(
        "throttle: the period begins when the job is asked for",
        F,
        "min(max(turn.now, job.scheduled_for) + length_ms",
        "min(turn.now + length_ms",
        tests=(T + "a_call_that_comes_before_the_job_started_is_merged_into_it_and_it_keeps_its_instant",),
    ),
    Mutant(
        "throttle: a merged call is due at once",
        F,
        "max(job.scheduled_for, min(turn.now + left, LARGEST_MS))",
        "job.scheduled_for",
        tests=(T + "merged_calls_are_one_job_at_the_end_of_the_period_with_the_newest_args",),
    ),
    Mutant(
        "throttle: a merged call begins no period",
        F,
        "    if row.throttle_ms:\n",
        "    if False:\n",
        tests=(T + "calls_while_it_runs_are_merged_into_one_that_comes_after_it_and_after_the_period",),
    ),
    Mutant(
        "throttle: a period outlives a step back of the clock by that step",
        "actors/scheduler/model/later_rows.py",
        "max(period.until - max(now, period.at), 0)",
        "max(period.until - now, 0)",
        tests=(T + "after_a_step_back_of_the_clock_nobody_waits_longer_than_a_period",),
    ),
    Mutant(
        "throttle: rows of periods stay",
        F,
        "        if row is not None and row.until <= ms:",
        "        if False:",
        tests=(T + "the_period_outlives_a_crash_and_its_row_goes_when_it_is_over",),
    ),
    Mutant(
        "throttle: a call that comes again after its answer was lost is refused",
        F,
        "if period is not None and job.incarnation and job.incarnation == period.incarnation:",
        "if False:",
        tests=(C + "a_throttled_job_that_comes_again_is_answered_as_at_first",),
    ),
    Mutant(
        "throttle: a refusal is given again under its Idempotency-Key",
        "actors/scheduler/transitions/kept_answers.py",
        "(QuotaExceededError, ThrottledError)",
        "(QuotaExceededError,)",
        tests=(
            "tests/http/test_put_off_routes.py::"
            "test_a_refusal_says_when_the_next_job_is_taken_and_is_not_kept_under_a_key",
        ),
    ),
)
