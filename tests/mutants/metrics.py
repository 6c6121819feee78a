"""Breakages of what is counted: the equation of jobs, the last hour, metrics and who may read them."""

from __future__ import annotations

from tests.mutants.breaking import Mutant

ACTIVITY = "tests/actors/scheduler/test_activity.py::"
METRICS = "tests/http/test_metrics.py::"
BALANCE = METRICS + "test_what_was_accepted_has_ended_or_is_there_over_crashes"
COUNTING = "actors/scheduler/inflight/activity.py"

COUNTED = (
    Mutant(
        "counters: a job that another replaces has not ended",
        "actors/scheduler/transitions/apply.py",
        "            state.counters.replaced += 1\n",
        "",
        tests=(BALANCE,),
    ),
    Mutant(
        "counters: a dead letter that is retried stays one of those that died",
        "actors/scheduler/transitions/apply.py",
        "        turn.state.counters.retried += 1\n",
        "",
        tests=(BALANCE,),
    ),
    Mutant(
        "counters: a job that has a label, or any option, is accepted without being counted",
        "actors/scheduler/state/scheduler_state.py",
        "        self._count_paths(job, 1)\n        self.counters.accepted += 1\n",
        "        self._count_paths(job, 1)\n",
        tests=("tests/actors/scheduler/test_rows_model.py::test_rows_agree_with_a_plain_model",),
    ),
    Mutant(
        "activity: a host counts what a test clock lets pass",
        COUNTING,
        "            if counts:\n                self._totals.add(what)\n",
        "            self._totals.add(what)\n",
        tests=(METRICS + "test_a_scheduler_with_a_test_clock_is_counted_nowhere",),
    ),
    Mutant(
        "activity: what nobody asks for is kept for ever",
        "actors/scheduler/actor/end_of_turn.py",
        "            if len(activities.noted) >= MOST_NOTED:\n",
        "            if False:\n",
        tests=(ACTIVITY + "test_what_nobody_asks_for_is_counted_now_and_then",),
    ),
    Mutant(
        "activity: attempts count in the minute in which somebody asks",
        COUNTING,
        "now - int((at_now - at) * 1000)",
        "now",
        tests=(ACTIVITY + "test_each_minute_tells_what_was_done_in_it",),
    ),
    Mutant(
        "activity: the scheduler that is forgotten is the one that was seen first, not the one idle for longest",
        COUNTING,
        "            self._followed[name] = self._followed.pop(name)\n",
        "",
        tests=(ACTIVITY + "test_schedulers_that_were_active_last_are_remembered",),
    ),
    Mutant(
        "activity: a clock that is set back leaves minutes that are still to come",
        COUNTING,
        "        if number < self._number:\n",
        "        if False:\n",
        tests=(ACTIVITY + "test_a_clock_that_is_set_back_begins_the_hour_anew",),
    ),
    Mutant(
        "activity: lateness leaves out how long the commit took and the job waited",
        COUNTING,
        "claimed_late + passed_ms",
        "passed_ms",
        tests=(ACTIVITY + "test_lateness_counts_from_when_an_attempt_was_due",),
    ),
    Mutant(
        "histogram: what is as large as an edge counts above it",
        "storage/histogram.py",
        "bisect_left(edges, value) if",
        "bisect_left(edges, value + 1e-9) if",
        tests=(ACTIVITY + "test_what_seems_to_be_early_counts_as_in_time",),
    ),
    Mutant(
        "metrics: a token for some instances reads those of the whole host",
        "actors/http/metrics/endpoint.py",
        "if token is not None and token.instances is not None:",
        "if False:",
        tests=(METRICS + "test_metrics_are_for_tokens_that_may_read_the_whole_host",),
    ),
    Mutant(
        "metrics: a paused scheduler makes the host look late",
        "actors/scheduler/queries/host_counts.py",
        "                if not held.paused:\n    ",
        "",
        tests=(METRICS + "test_the_oldest_due_job_is_told_but_not_of_a_paused_scheduler",),
    ),
    Mutant(
        "metrics: every scheduler is read again at each scrape",
        "actors/scheduler/queries/host_counts.py",
        "                touched.discard(name)  # first",
        "                pass  # first",
        tests=(METRICS + "test_only_what_has_changed_is_read_again",),
    ),
    Mutant(
        "metrics: any method that a caller makes up is a label",
        "actors/http/methods.py",
        "method if method in METHODS else OTHER",
        "method",
        tests=(METRICS + "test_requests_count_by_route_and_status_whatever_is_asked",),
    ),
)
