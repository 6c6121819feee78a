"""Breakages of what becomes of an attempt: claims, settlements, completions, leases."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

T = "tests/actors/scheduler/"
Q = "tests/actors/scheduler/queues/"

ATTEMPTS = (
    Mutant(
        "claim: a job is sent at the very millisecond at which it expires",
        "actors/scheduler/transitions/job.py",
        "job.expires_at <= now\n",
        "job.expires_at < now\n",
        tests=(T + "test_attempts.py::test_a_job_has_expired_at_the_instant_that_was_said",),
    ),
    Mutant(
        "claim: a job expires though it was retried from the dead",
        "actors/scheduler/transitions/job.py",
        "job.expires_at is not None and at.expires and ",
        "job.expires_at is not None and ",
        tests=(T + "test_attempts.py::test_a_dead_letter_retried_after_it_would_have_expired_is_sent",),
    ),
    Mutant(
        "claim: a full pool starts more",
        "actors/scheduler/transitions/claim.py",
        "            if left == 0:\n",
        "            if False:\n",
        tests=(T + "test_pools.py::test_the_default_cap_is_one_and_a_slot_is_handed_over_at_once",),
    ),
    Mutant(
        "claim: the start order knows no priority",
        "actors/scheduler/transitions/claim.py",
        "(due - ahead_ms, job_id,",
        "(due, job_id,",
        tests=(Q + "test_claiming.py::test_jobs_come_by_priority_due_and_id",),
    ),
    Mutant(
        "claim: what is not due is started with what is",
        "actors/scheduler/transitions/claim.py",
        "for due, job_id in head.rows if due <= turn.now]\n",
        "for due, job_id in head.rows]\n",
        tests=(Q + "test_claiming.py::test_what_is_due_takes_nothing_along_that_is_not",),
    ),
    Mutant(
        "claim: an attempt is not counted",
        "actors/scheduler/transitions/claim.py",
        "attempt=at.attempt + 1",
        "attempt=at.attempt or 1",
        tests=(T + "test_attempts.py::test_failures_climb_the_ladder_and_end_dead",),
    ),
    Mutant(
        "claim: a job forgets by which lease it was last held",
        "actors/scheduler/transitions/claim.py",
        "attempt=at.attempt + 1, last_token=token",
        "attempt=at.attempt + 1",
        tests=(Q + "test_claiming.py::test_late_success_counts_while_the_job_waits",),
    ),
    Mutant(
        "claim: a turn that is full goes on",
        "actors/scheduler/transitions/claim.py",
        "    if turn.is_full:\n        head.used -= 1",
        "    if False:\n        head.used -= 1",
        tests=(Q + "test_many_paths.py::test_all_are_found_damaged_together",),
    ),
    Mutant(
        "claim: a damaged job is sent",
        "actors/scheduler/transitions/claim.py",
        "if (fault := job_fault(job, whole)) is not None:",
        "if (fault := job_fault(job, whole)) is not None and not job:",
        tests=(T + "test_damaged_args.py::test_a_damaged_job_dies_unsent_and_its_neighbours_run",),
    ),
    Mutant(
        "claim: nothing stands for the job of a place that was set aside",
        "actors/scheduler/transitions/apply.py",
        "job_id)), NO_JOB)",
        'job_id)), b"")',
        tests=(
            T
            + "test_health.py::test_jobs_and_schedules_that_cannot_be_read_any_more_are_told_until_their_rows_are_gone",
        ),
    ),
    Mutant(
        "settle: declines are never charged",
        "actors/scheduler/transitions/job.py",
        "    return now - due_of(job, at) >= UNCHARGED_UNTIL_MS\n",
        "    return False\n",
        tests=(T + "test_attempts.py::test_declines_are_charged_once_a_day_has_passed",),
    ),
    Mutant(
        "settle: an origin that cannot be reached is charged",
        "actors/scheduler/transitions/job.py",
        "        return _later(job, at, now, UNREACHABLE_MS)\n",
        "        return _after_failure(job, at, now, delay_ms)\n",
        tests=(T + "test_attempts.py::test_an_unreachable_origin_charges_nobody",),
    ),
    Mutant(
        "settle: a broken exchange ends what was promised more time",
        "actors/scheduler/transitions/job.py",
        "    return unanswered and _promised(lease, now) > now\n",
        "    return False\n",
        tests=(T + "test_lease_extension.py::test_what_the_receiver_was_promised_outlasts_any_end_of_its_callback",),
    ),
    Mutant(
        "settle: a promise of a clock that was a day ahead holds a job for a day",
        "actors/scheduler/transitions/job.py",
        "    return lease.promised if lease.promised <= now + PROMISED_MAX_MS else 0\n",
        "    return lease.promised\n",
        tests=(T + "test_lease_extension.py::test_a_promise_of_a_clock_that_was_a_day_ahead_holds_no_job_for_a_day",),
    ),
    Mutant(
        "settle: a success of any attempt counts",
        "actors/scheduler/transitions/settle.py",
        "        or found.at.last_token != end.token\n",
        "",
        tests=(T + "test_turns.py::test_a_success_of_an_earlier_attempt_than_the_last_changes_nothing",),
    ),
    Mutant(
        "settle: an attempt that was answered may speak again",
        "actors/scheduler/transitions/job.py",
        'last_error=_error(outcome, now), last_token="")',
        "last_error=_error(outcome, now))",
        tests=(T + "test_accepted_work.py::test_what_has_failed_is_not_done_by_a_later_word_of_the_same_attempt",),
    ),
    Mutant(
        "settle: one try fewer",
        "actors/scheduler/transitions/job.py",
        "if at.attempts > retry_of(job).max_retries:",
        "if at.attempts >= retry_of(job).max_retries:",
        tests=(T + "test_attempts.py::test_failures_climb_the_ladder_and_end_dead",),
    ),
    Mutant(
        "settle: an instant that no row can hold is written",
        "actors/scheduler/transitions/job.py",
        "    if not indexable(due):\n",
        "    if False:\n",
        tests=(T + "test_attempts.py::test_a_retry_that_could_not_be_indexed_parks_the_job",),
    ),
    Mutant(
        "settle: a decline is tried again by the ladder",
        "actors/scheduler/transitions/job.py",
        "DECLINED_MIN_MS if verdict is Verdict.DECLINED else outcome.retry_after_ms or 0",
        "outcome.retry_after_ms or 0",
        tests=(T + "test_attempts.py::test_a_decline_is_not_charged_and_waits_half_a_minute",),
    ),
    Mutant(
        "settle: what was stopped with its host is charged",
        "actors/scheduler/transitions/job.py",
        "    charged = outcome.verdict is not Verdict.STOPPED\n",
        "    charged = True\n",
        tests=(T + "test_lifecycle.py::test_a_graceful_stop_lets_attempts_end_and_does_not_charge_those_it_ends",),
    ),
    Mutant(
        "complete: a repeat across midnight is refused",
        "actors/scheduler/transitions/complete.py",
        "for ms in {turn.now, turn.now - REPLAY_MS}:",
        "for ms in {turn.now}:",
        tests=(T + "test_accepted_work.py::test_a_completion_is_known_again_across_midnight",),
    ),
    Mutant(
        "complete: a repeat is known for as long as the history",
        "actors/scheduler/transitions/complete.py",
        "row.outcome if turn.now - row.ended <= REPLAY_MS else None",
        "row.outcome",
        tests=(T + "test_accepted_work.py::test_a_completion_settles_and_says_the_same_again_for_ten_minutes",),
    ),
    Mutant(
        "complete: an extension shortens a lease",
        "actors/scheduler/transitions/job.py",
        "until = max(now + lease_ms, lease.until)",
        "until = now + lease_ms",
        tests=(T + "test_lease_extension.py::test_an_extension_never_shortens_the_lease_of_accepted_or_pulled_work",),
    ),
    Mutant(
        "complete: work of a cancelled job is given more time",
        "actors/scheduler/transitions/complete.py",
        "    if held[1].orphan:\n",
        "    if False:\n",
        tests=(T + "test_accepted_work.py::test_a_worker_hears_that_its_job_was_cancelled",),
    ),
    Mutant(
        "complete: an attempt that nobody is known to work on is given more time",
        "actors/scheduler/transitions/complete.py",
        ' or held[1].kind == "unknown":',
        ":",
        tests=(T + "test_lease_extension.py::test_an_attempt_whose_callback_was_given_up_is_not_extended",),
    ),
    Mutant(
        "complete: what is given back is never charged",
        "actors/scheduler/transitions/job.py",
        "said.charge or not said.retryable or is_charged_anyway(job, lease.at, now)",
        "said.charge or not said.retryable",
        tests=(Q + "test_claiming.py::test_what_is_never_charged_is_charged_a_day_past_due",),
    ),
    Mutant(
        "complete: a delay that was asked for is passed over",
        "actors/scheduler/transitions/job.py",
        "    delay_ms = delay_ms if said.delay_ms is None else said.delay_ms\n",
        "",
        tests=(T + "test_accepted_work.py::test_a_failure_that_overtakes_a_good_answer_stands",),
    ),
    Mutant(
        "complete: one lease settles another job",
        "actors/scheduler/transitions/complete.py",
        "    return held is not None and held[0] == said.id\n",
        "    return held is not None\n",
        tests=(T + "test_accepted_work.py::test_made_up_leases_and_bad_values_are_refused",),
    ),
    Mutant(
        "leases: one ends before it was promised to",
        "actors/scheduler/state/leases.py",
        "    return lease if lease.until >= lease.promised else msgspec.structs.replace(lease, until=lease.promised)\n",
        "    return lease\n",
        tests=(T + "test_lease_extension.py::test_what_the_receiver_was_promised_outlasts_any_end_of_its_callback",),
    ),
    Mutant(
        "permits: a turn keeps those that it did not use",
        "actors/scheduler/inflight/lanes.py",
        "            self._lanes.give_back(self.unused, self._level)\n",
        "            pass\n",
        tests=(T + "test_lanes.py::test_a_block_that_fails_gives_back_the_permits_it_has_not_used",),
    ),
    Mutant(
        "permits: a scheduler that has left its line is taken for one that waits",
        "actors/scheduler/inflight/permits.py",
        "            del line[taker]\n            taker.places -= 1\n",
        "            del line[taker]\n",
        tests=(T + "test_permits.py::test_a_taker_knows_in_how_many_lines_it_stands",),
    ),
    Mutant(
        "permits: an answer between failures is not noted",
        "actors/scheduler/inflight/permits.py",
        "        if self.circuit.failures or outcome",
        "        if outcome",
        tests=(T + "test_permits.py::test_answers_between_failures_keep_the_circuit_closed",),
    ),
    Mutant(
        "permits: a timer of an earlier event loop stands in the way of the next one",
        "actors/scheduler/inflight/permits.py",
        "                self._timer.cancel()  # a timer of one event loop must not block one in the next\n"
        "                self._timer = None\n",
        "                pass\n",
        tests=(
            T + "test_permits.py::test_a_probe_is_sent_in_a_later_event_loop_though_an_earlier_one_had_a_timer_for_it",
        ),
    ),
    Mutant(
        "idempotency: a renderer stays in memory when its event fails",
        "actors/scheduler/inflight/renderers.py",
        "        asked.add_done_callback(lambda _: self._waiting.pop(number, None))\n",
        "",
        tests=(
            T
            + "test_events.py::"
            + "test_the_function_that_writes_an_answer_goes_with_an_event_that_fails_after_its_caller_has_gone",
        ),
    ),
)
